"""What a statement calls of somebody's attention kernel, or why it calls none; and a record of the calls that proves
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from generators.attention_call import AttentionCall
from generators.case import Case
from generators.subject import Subject
from reference_attention.loss import Array
from reference_attention.outer_keys import OuterKeys
from theorems.core.implementation import Implementation

KERNEL_FUNCTIONS = ("weights", "risk", "scaled_gradient", "attend")
"""What of an :class:`Implementation` a kernel stands in for."""

KERNEL_UNTOUCHED = "on this case the statement does not call the attention kernel"


@dataclass(frozen=True)
class KernelUse:
    """What a statement has to do with somebody's attention kernel.

    Attributes:
        called: whether it calls the kernel; its rounding bounds then know of ``textbook_eps``.
        says: where it calls it, or why it does not.
        turn: the order in which a test that ends with the first failure tries statements, cheap ones first.
        capability: what a kernel has to declare for it to be asked; empty for statements of the papers.
        differentiates: whether it needs the kernel's backward pass.
    """

    called: bool
    says: str
    turn: int = 0
    capability: str = ""
    differentiates: bool = True


def calls(where: str, *, turn: int, differentiates: bool = True) -> KernelUse:
    """The statement calls the kernel: ``where``, for a reader of the report."""
    return KernelUse(True, where, turn, differentiates=differentiates)


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
class Answer:
    """What a kernel returned for a call, in float64.

    Attributes:
        output: shape (B, H, L, M).
        query_gradient, key_gradient, value_gradient: of the sum of upstream · output, shapes of query, key and value;
            None of a kernel without a backward pass, and of those that are not asked for.
        log_sum_exp: shape (B, H, L), where the kernel returns it and was asked to.
        weights: shape (B, H, L, T), where the kernel returns them.
        sink_gradient, bias_gradient: of sinks and bias, where the kernel differentiates them.
        changed: the names of the tensors that it wrote to, and of those beside which it wrote.
        failed: what it raised, where it returns something in another state.
        others: of a call that is made over and over, what came of it later in other bits, each with how often.
    """

    output: Array
    query_gradient: Array | None = None
    key_gradient: Array | None = None
    value_gradient: Array | None = None
    log_sum_exp: Array | None = None
    weights: Array | None = None
    sink_gradient: Array | None = None
    bias_gradient: Array | None = None
    changed: tuple[str, ...] = ()
    failed: str = ""
    others: tuple[tuple[Answer, int], ...] = ()


class Refused(Exception):
    """The kernel raised on a call that it may refuse: sizes or options that it says it does not support."""


class NotCompiled(Refused):
    """PyTorch cannot compile it."""


def no_kernel(call: AttentionCall) -> Answer:
    """Of an implementation that is no attention kernel."""
    raise Refused("nothing to call")


class Explanation(NamedTuple):
    """What a maintainer of a kernel is told of a failure.

    Attributes:
        line: where it is wrong, by how much, perhaps why.
        test: the source of a test function that fails for it.
        no_test: why there is none.
    """

    line: str = ""
    test: str = ""
    no_test: str = ""


def not_explained(*given: Any) -> Explanation:
    """Nothing is said of a failure but the failure."""
    return Explanation()


@dataclass(frozen=True)
class KernelDescription:
    """What is to be said of an attention kernel.

    Attributes:
        name, source, dtype: as of the :class:`attention_conformance.kernel.kernel.Kernel`.
        headline: what is called, how, in which numbers.
        json: the same for ``--json``.
    """

    name: str
    source: str
    dtype: str
    headline: str
    json: Mapping[str, object]


def no_description() -> KernelDescription:
    """Of an implementation of which nobody has said what it is."""
    return KernelDescription("", "", "", "", {})


@dataclass(frozen=True)
class OnKernel(Implementation):
    """An implementation whose softmax, risk and gradient are a kernel's.

    Attributes:
        kernel: the :class:`attention_conformance.kernel.kernel.Kernel`.
        attend: one call of it, forward and backward.
        explained: (statement, falsifying call, this) → what a maintainer is told.
        on_queries: (factors, keys vec(x zᵀ)) → its weights, risk and scaled gradient where it is given W z as queries.
        described: → what is to be said of it.
        hints: → what may be wrong with it, once it is falsified.
    """

    kernel: Any = None
    attend: Callable[[AttentionCall], Answer] = no_kernel
    explained: Callable[..., Explanation] = not_explained
    on_queries: Callable[[OuterKeys, Array], Any] | None = None
    described: Callable[[], KernelDescription] = no_description
    hints: Callable[[], Sequence[str]] = tuple


def bind_to_case(under_test: Implementation, case: Subject) -> Implementation:
    """What is under test on this case: a kernel is given the queries W z_i where W is trained."""
    if not isinstance(under_test, OnKernel) or not isinstance(case, Case) or case.queried is None:
        return under_test
    if under_test.on_queries is None:
        return under_test
    asked = under_test.on_queries(case.queried.keys, case.problem.keys)
    return replace(under_test, weights=asked.weights, risk=asked.risk, scaled_gradient=asked.scaled_gradient)


@runtime_checkable
class KernelByName(Protocol):
    """A kernel that is given by its name: whichever process calls it loads it."""

    @property
    def source(self) -> str:
        """The name that it is imported by."""

    def prepare(self) -> None:
        """Import what of ours it needs."""

    def find(self) -> None:
        """Import it.

        Raises:
            InvalidInput: it cannot be imported.
        """

    def load(self) -> OnKernel:
        """Import it and try it; once in a process.

        Raises:
            InvalidInput: it cannot be imported, or is no kernel.
        """


def out_of_reach(use: KernelUse | None, under_test: Implementation) -> str:
    """Why a statement says nothing about this kernel, or needs one; empty if neither is so."""
    if use is None:
        return ""
    if not isinstance(under_test, OnKernel):
        return "is about an attention kernel: give one with --attention" if use.capability else ""
    if not use.called:
        return use.says
    return str(under_test.kernel.lacks(use))


def record_calls(under_test: Implementation) -> tuple[Implementation, set[str]]:
    """The same implementation, and a set that fills with the functions of the kernel as they are called."""
    calls: set[str] = set()
    if not isinstance(under_test, OnKernel):
        return under_test, calls

    def recording(name: str) -> Callable[..., Any]:
        function = getattr(under_test, name)

        def call(*given: Any) -> Any:
            calls.add(name)
            return function(*given)

        return call

    return under_test.replace(under_test.name, **{name: recording(name) for name in KERNEL_FUNCTIONS}), calls
