"""Functions that make two kinds of claims: results agree with the formula of attention; two results have equal bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.calls.answer import Answer, OnKernel
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.further_rows import FurtherRows
from theorems.bounded import Bounded, exact
from theorems.bounded.arithmetic import LARGEST
from theorems.bounded.formats import FORMATS, HALF
from theorems.core.claim import Claim, Form, at_least
from theorems.core.equality import equal
from theorems.core.tolerances import EXACT

OUTPUT = "output-is-attention"
SLIGHT = 2.0**-60
"""The allowed error of weights in calls without rounding.

With 2¹² keys of size up to 2¹², and scores u·v of up to 2⁷, weights with this error change gradients by less than half
of float16's smallest number.
"""
NOTHING: Mapping[str, Bool[np.ndarray, "..."]] = MappingProxyType({})
GRADIENTS = ("query-gradient", "key-gradient", "value-gradient")


def rows_of(call: AttentionCall, under_test: OnKernel) -> FurtherRows:
    """Return the correct results of a call, after rounding the call's tensors to the kernel's number format.

    For an exact call (``call.exact``) the bound is float32's rounding of the formula plus one rounding of the returned
    result, even in coarser formats: a correct kernel rounds nothing else in such a call, except a stored log-sum-exp
    from which it recomputes weights.
    """
    kernel = under_test.kernel
    rounded_call = kernel.in_own_numbers(call)
    rows = FurtherRows(rounded_call, kernel.numbers, kernel.alignment, skips=kernel.skips_below)
    if rounded_call.descales is not None:
        # Kernels add products of 8-bit numbers in float32, and store results in 16 bits.
        return replace(rows, numbers=FORMATS["float32"], stored=FORMATS["bfloat16"], coarse=True)
    if rounded_call.exact and kernel.numbers.name in HALF:
        in_float32 = replace(rows, numbers=FORMATS["float32"], stored=kernel.numbers)
        return in_float32 if _has_exact_weights(in_float32) else rows
    return rows


def _has_exact_weights(rows: FurtherRows) -> bool:
    """Return whether half precision represents the call's weights exactly.

    It does not if queries were scaled down to the range of half precision, so that logits became close and the second
    largest weight has to be rounded.
    """
    s = rows.weights.value
    return bool((np.abs(s - s.astype(np.float16)) <= SLIGHT + 2.0**-40 * s).all())  # float64 rounds less


def with_factors(call: AttentionCall) -> AttentionCall:
    """Return the call with query, key and value multiplied by their factors ``descales``, without rounding."""
    if call.descales is None:
        return call
    sizes = call.sizes
    by_group = call.descales[..., None, None]
    heads = np.repeat(by_group[0], sizes["H"] // sizes["G"], axis=1)
    tensors = {"query": call.query * heads, "key": call.key * by_group[1], "value": call.value * by_group[2]}
    return call.replace(**tensors, descales=None)


def same_gradients(
    rows: AttentionRows, answer: Answer, claimed: Mapping[str, Bool[np.ndarray, "..."]] = NOTHING
) -> Iterator[Claim]:
    """Yield the claims that dQ, dK and dV agree with the formula of attention; none if there is no backward pass.

    Args:
        rows: the correct results.
        answer: the kernel's results.
        claimed: masks of the entries to compare, by the gradient's attribute of :class:`.Answer`; gradients without a
            mask are compared entirely.
    """
    theirs = (answer.query_gradient, answer.key_gradient, answer.value_gradient)
    for name, gradient, quantity in zip(
        GRADIENTS, theirs, ("query_gradient", "key_gradient", "value_gradient"), strict=True
    ):
        if gradient is not None:
            number: Any = getattr(rows, quantity)
            # A gradient near or beyond the largest number of the returned format may be infinite.
            fits = np.abs(number.value) < (rows.stored or rows.numbers).largest / 2
            fits = fits & claimed.get(quantity, True)
            if fits.any():
                yield same(name, gradient, number, None if fits.all() else fits)


def same(
    name: str,
    theirs: Float64[np.ndarray, "..."],
    expected: Bounded,
    where: Bool[np.ndarray, "..."] | None = None,
) -> Claim:
    """Claim that the kernel's numbers equal the correct numbers within twice the error of the textbook formula.

    The factor two allows for kernels that use another formula, with other rounding errors.

    Args:
        name: the name of the claim.
        theirs: the kernel's numbers.
        expected: the correct numbers, with bounds of the textbook formula's error.
        where: the entries to compare; all by default.
    """
    if where is not None:
        theirs, expected = theirs[where], expected[where]
    if not np.isfinite(theirs).all():
        # NaN in place of a number counts as an infinite error.
        detail = f"{np.count_nonzero(~np.isfinite(theirs))} of {theirs.size} numbers are not finite"
        return Claim(name, Form.EFFECTIVE, -np.inf, 0.0, EXACT, detail=detail)
    widened: Any = expected.widen(np.where(np.isfinite(expected.error), expected.error, np.inf))
    return equal(name, exact(theirs), widened, points="entry")


def same_bits(
    name: str, theirs: Float64[np.ndarray, "..."], before: Float64[np.ndarray, "..."], unit: str = "entry"
) -> Claim:
    """Claim that two results of the kernel have equal bits, except for the sign of zero."""
    with np.errstate(invalid="ignore"):
        apart = np.where((theirs == before) | (np.isnan(theirs) & np.isnan(before)), 0.0, np.abs(theirs - before))
    apart = np.where(np.isfinite(apart), apart, LARGEST)
    return at_least(name, Form.EXACT, -apart, 0.0, rounding=0.0, why=EXACT, points=unit)
