"""Consequences of L(θ) − L_⋆ ≤ E: bounds of ‖P_F θ − θ_⋆‖, of the margins and of the angle between θ and θ_mm.

The bounds (F), (M) and (C) are derived in `ntp-path`, and other symbols are those of :mod:`.limits`; ``excess`` is E.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from theorems.bounded import exact, value_of
from theorems.next_token.limits import Limits
from theorems.rounding.attention_at import Numbers


def turn(s: Any) -> Numbers:
    """Return τ(s) = s/2 + √(s²/4 + 2s), the largest t with t²/(2 + t) ≤ s."""
    return s / 2 + np.sqrt(s * s / 4 + 2 * s)


def finite_bound(limits: Limits, excess: Any) -> Numbers:
    """Return the right-hand side of (F) in `ntp-path`, D_F‖P_F θ − θ_⋆‖ ≤ τ(E D_F²/λ_H), (*b,)."""
    return turn(excess * (limits.span**2 / limits.curvature))


def shift_bound(limits: Limits, excess: Any) -> Numbers:
    """Return (D_c/D_F) τ, a bound of log w⋆_jv − log w_jv(P_F θ), (*b,); 0 where F = 0."""
    if limits.split.dimension == 0:
        return excess * 0.0
    return finite_bound(limits, excess) * (limits.reach / limits.span)


def margin_bound(limits: Limits, excess: Any) -> Numbers:
    """Return the right-hand side of (M) in `ntp-path`, (*b, m, K); −∞ on Ŝ_j.

    (M) is g_jv·θ_⊥ ≥ log w⋆_jv − (D_c/D_F)τ − log(e^{E/π_j} − 1).
    """
    ratio = excess[..., None] / limits.weights
    bound = (-shift_bound(limits, excess)[..., None] - log_of_expm1(ratio))[..., None] + limits.log_outer
    return np.where(limits.others, bound, -np.inf)


def least_margin_bound(limits: Limits, excess: Any) -> Numbers:
    """Return the smallest of the bounds (M) in `ntp-path` over the alternatives off Ŝ, (*b,)."""
    bound = np.where(limits.others, margin_bound(limits, excess), np.inf)
    return np.min(bound, axis=(-2, -1))


def log_of_expm1(x: Any) -> Numbers:
    """Return log(e^x − 1) for x > 0."""
    large = value_of(x) > 1
    near: Any = np.where(large, 1.0, x)
    far: Any = np.where(large, x, 1.0)
    return np.where(large, far + np.log1p(-np.exp(-far)), np.log(np.expm1(near)))


def kappa(limits: Limits, excess: Any) -> Numbers:
    """Return κ = log((e − 1)ω/(π_min w⋆_min)) + (D_c/D_F)τ: margins are ≥ r − κ where L − L_⋆ ≤ E(r) ≤ π_min."""
    least = np.min(np.where(limits.others, limits.log_outer, np.inf))
    scale = np.log(np.expm1(exact(1.0)) / np.min(limits.weights)) + limits.log_total
    return scale - least + shift_bound(limits, excess)


def probe_points(
    limits: Limits, rng: np.random.Generator, count: int
) -> tuple[Float64[np.ndarray, "b r"], Float64[np.ndarray, "b s"]]:
    """Return the coordinates of u = P_Fθ − θ_⋆ and of θ_⊥ for points θ of many scales.

    ‖u‖ is about 1e-9 to 10 in units of 1/D_F; θ_⊥ is a positive or negative multiple of θ_mm, near such a multiple, or
    far from one.
    """
    r, s = limits.split.dimension, limits.problem.dimension - limits.split.dimension
    u = rng.normal(size=(count, r)) * np.exp(rng.uniform(np.log(1e-9), np.log(10), (count, 1)))
    u /= max(float(value_of(limits.span)), 1e-300) * np.sqrt(max(r, 1))
    long = np.exp(rng.uniform(np.log(0.1), np.log(200), (count, 1))) * rng.choice([1.0, 1.0, 1.0, -0.1], (count, 1))
    size = max(float(np.linalg.norm(limits.split.outside, axis=2).max()), 1e-300)
    off = rng.normal(size=(count, s)) / size * rng.choice([0.0, 0.3, 3.0], (count, 1))
    return u, long * value_of(limits.ray) + off
