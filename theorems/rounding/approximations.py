"""Bounded numbers whose error bound is derived by hand, such as constants of a loss and iterates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.loss import Loss
from theorems.bounded import Bounded, exact
from theorems.rounding.attention_at import Numbers


def approximate(x: Float64[np.ndarray, "*b"], error: Float64[np.ndarray, "*b"]) -> Numbers:
    """Return the floats ``x`` with ``error``, an error bound derived by hand, such as that of a scalar formula."""
    number = exact(x)
    return number.widen(error) if isinstance(number, Bounded) else number


def bend(loss: Loss, top: Float64[np.ndarray, "n"], length: Float64[np.ndarray, "n"]) -> Numbers:
    """Return b = max_i κ_i Γ_i/2 with κ_i = ``loss.steepening`` on the interval [top_i − Γ_i, top_i]; 0 for convex ℓ.

    If the output of input i falls by δ_i ≤ xΓ_i with x ≤ 1, its loss rises by at least |ℓ'| δ_i e^{−bx}.

    Args:
        loss: the loss ℓ.
        top: the upper ends of the intervals, (n,).
        length: Γ_i, the lengths of the intervals, (n,).
    """
    bends = [loss.steepening(a - b, a) * b / 2 for a, b in zip(top.tolist(), length.tolist(), strict=True)]
    return approximate(np.array(max(bends)), np.array(8 * EPS * max(bends)))
