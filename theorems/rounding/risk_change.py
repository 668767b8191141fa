"""The change L(p + h) − L(p) of the risk, computed on bounded arrays without cancellation."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import Bounded, exact
from theorems.rounding.attention_at import AttentionAt, Numbers


def risk_change(at: AttentionAt, steps: Numbers) -> Bounded:
    """Return (L(p + h) − L(p)) e^{−log_scale}, (b,), for the points p of ``at`` and ``steps`` h, (b, d).

    Let r be the token of the largest logit at p, Δ_t = (k_t − k_r)·h and f = γᵀs the output. The weights at p + h are
    s_t e^{Δ_t}/Z with Z = Σ_t s_t e^{Δ_t}. Hence the output decreases by δ = f(p) − f(p + h) = −Σ_t s_t (γ_t − f)
    expm1(Δ_t)/Z, and the risk rises by ℓ(f − δ) − ℓ(f). The rise is bounded in two ways, and the narrower bounds are
    used: by the loss's formula for ℓ(f − δ) − ℓ(f), which needs the sign of δ, and by |ℓ'(ξ)| δ with ξ between f − δ
    and f, which is narrow for small δ. The error bound is infinite where a logit difference changes so much that its
    exponential has no correct digits.
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
