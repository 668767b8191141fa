"""The claims that numbers are those of the formula, and that two results are the same, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from generators.attention_call import AttentionCall
from theorems.bounded import Bounded, exact
from theorems.bounded.arithmetic import LARGEST
from theorems.bounded.formats import FORMATS, HALF
from theorems.core.claim import Claim, Form, at_least
from theorems.core.equality import equal
from theorems.core.on_kernel import Answer, OnKernel
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_rows import AttentionRows

OUTPUT = "output-is-attention"
GRADIENTS = ("query-gradient", "key-gradient", "value-gradient")


def rows_of(call: AttentionCall, under_test: OnKernel) -> AttentionRows:
    """The formula on a call, in the kernel's numbers.

    An exact call is held to float32's rounding of the formula and one rounding of what is returned, also in coarser
    formats: there nothing else is rounded but a stored log-sum-exp, from which weights are taken again.
    """
    kernel = under_test.kernel
    own = kernel.in_own_numbers(call)
    if own.exact and kernel.numbers.name in HALF:
        return AttentionRows(own, FORMATS["float32"], kernel.alignment, kernel.numbers, skips=kernel.skips_below)
    return AttentionRows(own, kernel.numbers, kernel.alignment, skips=kernel.skips_below)


def same_gradients(rows: AttentionRows, answer: Answer) -> Iterator[Claim]:
    """dQ, dK and dV are; nothing is claimed of a kernel without a backward pass."""
    theirs = (answer.query_gradient, answer.key_gradient, answer.value_gradient)
    for name, found, due in zip(GRADIENTS, theirs, ("query_gradient", "key_gradient", "value_gradient"), strict=True):
        if found is not None:
            number: Any = getattr(rows, due)
            # A gradient beyond the range of what is returned is infinite.
            fits = np.abs(number.value) < (rows.stored or rows.numbers).largest / 2
            yield same(name, found, number, None if fits.all() else fits)


def same(
    name: str,
    theirs: Float64[np.ndarray, "..."],
    due: Bounded,
    where: Bool[np.ndarray, "..."] | None = None,
) -> Claim:
    """What the kernel returned is what is due, up to twice what the textbook formula loses: it may use another one.

    Args:
        where: the entries to look at; all by default.
    """
    if where is not None:
        theirs, due = theirs[where], due[where]
    if not np.isfinite(theirs).all():
        # Infinitely far from the numbers that are due.
        said = f"{np.count_nonzero(~np.isfinite(theirs))} of {theirs.size} numbers are not finite"
        return Claim(name, Form.EFFECTIVE, -np.inf, 0.0, EXACT, detail=said)
    widened: Any = due.widen(np.where(np.isfinite(due.error), due.error, np.inf))
    return equal(name, exact(theirs), widened, points="entry")


def same_bits(
    name: str, theirs: Float64[np.ndarray, "..."], before: Float64[np.ndarray, "..."], what: str = "entry"
) -> Claim:
    """Two results of the kernel are the same numbers, bit for bit but for the sign of zero."""
    with np.errstate(invalid="ignore"):
        apart = np.where((theirs == before) | (np.isnan(theirs) & np.isnan(before)), 0.0, np.abs(theirs - before))
    apart = np.where(np.isfinite(apart), apart, LARGEST)
    return at_least(name, Form.EXACT, -apart, 0.0, rounding=0.0, why=EXACT, points=what)
