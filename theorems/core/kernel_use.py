"""Declarations of how a statement uses the attention kernel under test, or why it does not."""

from __future__ import annotations

from dataclasses import dataclass

KERNEL_UNTOUCHED = "on this case the statement does not call the attention kernel"


@dataclass(frozen=True)
class KernelUse:
    """The use that a statement makes of an attention kernel under test.

    Attributes:
        called: whether the statement calls the kernel; if so, the statement's rounding bounds include ``textbook_eps``.
        says: the step at which the statement calls the kernel, or why it does not call the kernel.
        turn: the position of the statement in a run that stops at the first failure, where cheap statements come first.
        capability: the option (such as causal masks) that the statement is about, which a kernel must declare for the
            statement to apply; empty for statements of papers.
        differentiates: whether the statement needs the kernel's backward pass.
    """

    called: bool
    says: str
    turn: int = 0
    capability: str = ""
    differentiates: bool = True


def calls(where: str, *, turn: int, differentiates: bool = True) -> KernelUse:
    """Return the declaration of a statement that calls the kernel at the step ``where``."""
    return KernelUse(True, where, turn, differentiates=differentiates)


SVM_ONLY = KernelUse(False, "speaks of keys and hard-margin SVM alone; it calls no attention kernel")
BELOW_ROUNDING = KernelUse(
    False,
    "compares risks that differ by e^{−R·margin}, below the spacing of a kernel's numbers; it uses the reference",
)
FAR = KernelUse(
    False, "its cone reaches to norms at which a kernel's gradient is rounding noise; it uses the reference"
)
SATURATED = KernelUse(False, "needs softmax weights of e^{−norm}, which underflow in a kernel; it uses the reference")
