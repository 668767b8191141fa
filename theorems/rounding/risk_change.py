"""The change of the risk, L(p + h) − L(p), without cancellation, as a formula on bounded arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import Bounded, exact
from theorems.rounding.attention_at import AttentionAt, Numbers


def risk_change(at: AttentionAt, steps: Numbers) -> Bounded:
    """Compute (L(p + h) − L(p)) e^{−log_scale}, (b,), from the points p of ``at`` by ``steps`` h, (b, d).

    With r the selected token at p and Δ_t = (k_t − k_r)·h, the weights at p + h are s_t e^{Δ_t}/Z. Hence the output
    loses δ = f(p) − f(p + h) = −Σ_t s_t (γ_t − f) expm1(Δ_t)/Z, and the risk rises by ℓ(f − δ) − ℓ(f); this rise is
    enclosed by the excess of the loss where the sign of δ is certain, and by |ℓ'(ξ)| δ with ξ between f − δ and f where
    δ is small, which is narrower there. The result is unknown for steps that move a logit difference so far that its
    exponential has no digits left.
    """
    loss = at.problem.loss
    grown: Any = np.expm1(at.products(steps))
    total = 1 + np.sum(at.weights * grown, axis=-1)
    largest, spreads = at._spreads
    log_sizes: Any = np.where(at.distinct_keys, at.log_weights + largest, -np.inf)
    unit = np.max(log_sizes.value, axis=-1)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    lost = -np.sum(np.exp(log_sizes - unit[..., None]) * spreads * grown, axis=-1) / total

    scale = at.log_scale[:, None]
    sign, log_excess = loss.log_excess(at.outputs, np.sign(lost), np.log(np.abs(lost)) + unit)
    gained: Any = sign * np.exp(log_excess - scale)
    length = np.exp(exact(unit)) * np.abs(lost)
    between = at.outputs.widen(length.value + length.error)
    linear = np.exp(loss.log_slope(between) + unit - scale) * lost
    return np.mean(np.where(linear.error < gained.error, linear, gained), axis=-1)
