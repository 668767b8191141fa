"""Which statements test somebody's attention kernel, which do not and why; and a count of the calls that prove it.

Light on purpose: the pytest plugin reads the ids before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from attention.implementation import Implementation

KERNEL_FUNCTIONS = ("weights", "risk", "scaled_gradient")
"""What of an :class:`Implementation` a kernel stands in for."""

TOUCHING = MappingProxyType(
    {
        "lemma-1": "each step of the run and random points: its gradient against autograd through W",
        "lemma-3": "its weights are the softmax of k·p, its gradient is their covariance",
        "lemma-4": "its gradient descends along p_mm at every point",
        "lemma-5": "its gradient at every point, n = 1",
        "lemma-6": "its gradient is Lipschitz and is that of its risk; descent steps along it",
        "lemma-14": "the sandwich of its prediction",
        "theorem-2": "every iterate of gradient descent on it; the limit is left to the reference",
    }
)
"""Statements that call a kernel, and where. Their rounding bounds know of ``textbook_eps``."""

KERNEL_UNTOUCHED = "on this case the statement does not call the attention kernel"
CHEAPEST_FIRST = ("lemma-3", "lemma-14", "lemma-5", "lemma-4", "lemma-1", "lemma-6", "theorem-2")
"""The order in which a test tries them: it ends with the first that fails."""

SVM_ONLY = "speaks of keys and hard-margin SVM alone; it calls no attention kernel"
BELOW_ROUNDING = (
    "compares risks that differ by e^{−R·margin}, below the spacing of a kernel's numbers; it uses the reference's"
)
FAR = "its cone reaches to norms at which a kernel's gradient is rounding noise; it uses the reference's"
SATURATED = "needs softmax weights of e^{−norm}, which underflow in a kernel; it uses the reference's"

NOT_TOUCHING = MappingProxyType(
    {
        "lemma-7": FAR,
        "lemma-8": BELOW_ROUNDING,
        "lemma-9": BELOW_ROUNDING,
        "lemma-10": SVM_ONLY,
        "lemma-11": SVM_ONLY,
        "lemma-12": SATURATED,
        "lemma-13": SATURATED,
        "theorem-1": BELOW_ROUNDING,
        "theorem-3": FAR,
        "theorem-4": BELOW_ROUNDING,
        "theorem-5": SATURATED,
        "theorem-6": SATURATED,
        "theorem-8": BELOW_ROUNDING,
        "conjecture-joint-descent": SATURATED,
    }
)
"""Statements that are not tried on a kernel, and why."""


@dataclass(frozen=True)
class OnKernel(Implementation):
    """An implementation whose softmax, risk and gradient are a kernel's.

    Attributes:
        kernel: the :class:`theorems.kernel.Kernel`.
    """

    kernel: Any = None


def out_of_reach(id: str, under_test: Implementation) -> str:
    """Why the statement of that id says nothing about this kernel; empty if it does, or if it is no kernel."""
    return NOT_TOUCHING.get(id, "") if isinstance(under_test, OnKernel) else ""


def watched(under_test: Implementation) -> tuple[Implementation, set[str]]:
    """The same implementation, and a set that fills with the functions of the kernel as they are called."""
    calls: set[str] = set()
    if not isinstance(under_test, OnKernel):
        return under_test, calls

    def noted(name: str) -> Callable[..., Any]:
        function = getattr(under_test, name)

        def call(*given: Any) -> Any:
            calls.add(name)
            return function(*given)

        return call

    return under_test.but(under_test.name, **{name: noted(name) for name in KERNEL_FUNCTIONS}), calls
