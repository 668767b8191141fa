"""Bounded arrays from floats whose error bound is derived by hand, such as constants of a loss and iterates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.loss import Loss
from theorems.bounded import Bounded, exact
from theorems.rounding.attention_at import Numbers


def approximate(x: Float64[np.ndarray, "*b"], error: Float64[np.ndarray, "*b"]) -> Numbers:
    """Return a bounded array of the floats ``x`` with the error bounds ``error``, which were derived by hand."""
    number = exact(x)
    return number.widen(error) if isinstance(number, Bounded) else number


def bend(loss: Loss, top: Float64[np.ndarray, "n"], length: Float64[np.ndarray, "n"]) -> Numbers:
    """Return b = max_i κ_i Γ_i/2, κ_i being ``loss.steepening`` on the interval [top_i − Γ_i, top_i]; 0 for convex ℓ.

    If the output of input i falls by δ_i ≤ xΓ_i from top_i, x ≤ 1, its loss rises by at least |ℓ'(top_i)| δ_i e^{−bx}.

    Args:
        loss: the loss ℓ.
        top: the upper ends top_i of the intervals, (n,).
        length: the lengths Γ_i of the intervals, (n,).
    """
    bends = [loss.steepening(a - b, a) * b / 2 for a, b in zip(top.tolist(), length.tolist(), strict=True)]
    return approximate(np.array(max(bends)), np.array(8 * EPS * max(bends)))
