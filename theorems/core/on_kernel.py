"""What a statement calls of somebody's attention kernel, or why it calls none; and a record of the calls that proves
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from theorems.core.implementation import Implementation

KERNEL_FUNCTIONS = ("weights", "risk", "scaled_gradient")
"""What of an :class:`Implementation` a kernel stands in for."""

KERNEL_UNTOUCHED = "on this case the statement does not call the attention kernel"


@dataclass(frozen=True)
class KernelUse:
    """What a statement has to do with somebody's attention kernel.

    Attributes:
        called: whether it calls the kernel; its rounding bounds then know of ``textbook_eps``.
        says: where it calls it, or why it does not.
        turn: the order in which a test that ends with the first failure tries statements, cheap ones first.
    """

    called: bool
    says: str
    turn: int = 0


def calls(where: str, *, turn: int) -> KernelUse:
    """The statement calls the kernel: ``where``, for a reader of the report."""
    return KernelUse(True, where, turn)


SVM_ONLY = KernelUse(False, "speaks of keys and hard-margin SVM alone; it calls no attention kernel")
BELOW_ROUNDING = KernelUse(
    False,
    "compares risks that differ by e^{−R·margin}, below the spacing of a kernel's numbers; it uses the reference's",
)
FAR = KernelUse(
    False, "its cone reaches to norms at which a kernel's gradient is rounding noise; it uses the reference's"
)
SATURATED = KernelUse(False, "needs softmax weights of e^{−norm}, which underflow in a kernel; it uses the reference's")


@dataclass(frozen=True)
class OnKernel(Implementation):
    """An implementation whose softmax, risk and gradient are a kernel's.

    Attributes:
        kernel: the :class:`theorems.kernel.kernel.Kernel`.
    """

    kernel: Any = None


def out_of_reach(use: KernelUse | None, under_test: Implementation) -> str:
    """Why a statement says nothing about this kernel; empty if it does, or if it is no kernel."""
    return use.says if isinstance(under_test, OnKernel) and use is not None and not use.called else ""


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
