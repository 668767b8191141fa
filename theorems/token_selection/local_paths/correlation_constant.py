"""The constant κ of L3 in Lemma 7: the smaller of two upper bounds of the least κ that satisfies an inequality.

Given weights ω⁻ ≤ ω ≤ ω⁺ and duals λ̂ > 0, Σ λ̂ = 1, on a support S, a number Ω ≥ 0 and a sum B(κ) ≥ 0 over harmful
tokens with margins m and constants ρ, μ, w (as in :mod:`.local_constants`), κ has to satisfy
  Σ_S ω e^{−y}(κ − y) ≥ Ω e^{−κ−1} + B(κ)    for all y with Σ λ̂y = 0,    B(κ) = Σ ω⁺ (max(ρμ, κ)m + ρw).

1. *One constraint with y ≤ 0.* Some s in S has y_s ≤ 0, so its term is at least ω⁻_s κ; the terms of the other
constraints are at least −ω⁺ e^{−κ−1}. It is enough that for every s
     ω⁻_s κ ≥ (Σ_{S∖s} ω⁺ + Ω) e^{−κ−1} + B(κ).
2. *Duality.* For every τ > 0 the left side is at least Σ_S min_y [ω e^{−y}(κ − y) + τλ̂y]. The minimum is at
   (κ+1−y)e^{−y} = τλ̂/ω, that is y = κ + 1 − W with Lambert's function W = W_Lambert(τλ̂e^{κ+1}/ω), and is τλ̂(κ + 2 − W −
   1/W). This minimum is concave in ω, hence smallest at ω⁻ or ω⁺. With τ = e^{z−κ−1}, W = ω_Wright(z + log(λ̂/ω)), where
   Wright's function is ω_Wright(x) = W_Lambert(e^x), it is enough that
     κ ≥ Σ λ̂ max_{ω⁻,ω⁺}(W + 1/W) − 2 + e^{−z}(Ω + e^{κ+1} B(κ))    for some z.
   For weights proportional to the duals this gives κ = 0.

κ is the smaller of the bounds of 1 and 2, the latter minimised over z; any z proves a bound. κ is used in L3 of Lemma
7, where these sums arise (:mod:`.local_constants`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64
from scipy.special import wrightomega

_MOST = 1e6
"""The largest κ that is reported; a larger one is reported as ∞, since no radius in use would satisfy κ/ρ ≤ μ."""

LARGEST = 700.0
"""The largest exponent in use; larger exponents are replaced by 700, since e^700 exceeds any κ that is reported."""


@dataclass(frozen=True)
class HarmfulTokens:
    """The terms ω⁺ (max(ρμ, κ)m + ρw) of B(κ), one for each harmful token (a token that scores no lower than α_i).

    Attributes:
        log_size: the logarithms of the factors ω⁺; in Lemma 7 these are ω⁺ e^{−ρ(m − 1 − w)} in the notation of
            :mod:`.local_constants`.
        margins: the margins m.
        tilt: the numbers ρw.
        opening: the number ρμ.
    """

    log_size: Float64[np.ndarray, "h"]
    margins: Float64[np.ndarray, "h"]
    tilt: Float64[np.ndarray, "h"]
    opening: float

    def log_total(self, kappa: float) -> float:
        """Return log B(κ), −∞ if there are no harmful tokens; B(κ) itself may underflow where e^κ B(κ) matters."""
        largest = max(self.opening, kappa)
        return float(np.logaddexp.reduce(self.log_size + np.log(largest * self.margins + self.tilt), initial=-np.inf))


def correlation_constant(
    duals: Float64[np.ndarray, "s"],
    log_low: Float64[np.ndarray, "s"],
    log_high: Float64[np.ndarray, "s"],
    log_idle: Float64[np.ndarray, "r"],
    harmful: HarmfulTokens,
) -> float:
    """Return κ, the smaller of the two bounds of the module's docstring, or ∞ if it is above 10⁶.

    A common factor of all weights ω, Ω and B does not change κ.

    Args:
        duals: the duals λ̂ > 0 on the support, with sum 1, (s,).
        log_low: the logarithms of the lower bounds ω⁻ on the support, (s,).
        log_high: the logarithms of the upper bounds ω⁺ on the support, (s,).
        log_idle: the logarithms of the terms of the sum Ω, (r,).
        harmful: the terms of B(κ).
    """
    unit = float(log_low.min())
    if not math.isfinite(unit):
        return math.inf
    low, high = log_low - unit, log_high - unit
    log_idle = np.append(log_idle, -np.inf) - unit
    harmful = replace(harmful, log_size=harmful.log_size - unit)
    return min(
        _one_constraint(low, high, log_idle, harmful.log_total),
        _by_duality(duals, low, high, log_idle, harmful.log_total),
    )


def _one_constraint(
    low: Float64[np.ndarray, "s"],
    high: Float64[np.ndarray, "s"],
    log_idle: Float64[np.ndarray, "r"],
    log_stray: Callable[[float], float],
) -> float:
    """Find by bisection the smallest κ that satisfies the condition of proof 1, whose sides are monotone in κ."""
    # Logarithms are used because weights on the support differ by factors of e^{10⁸} if scores are of size 10⁸.
    others = np.where(np.eye(low.size, dtype=bool), -np.inf, high)
    sums = np.logaddexp(np.logaddexp.reduce(others, axis=1), np.logaddexp.reduce(log_idle))
    log_ratio = float((np.maximum(sums, -690.0) - low).max())

    def enough(kappa: float) -> bool:
        # All weights are in units of the smallest ω⁻.
        return kappa >= math.exp(min(log_ratio - kappa - 1, LARGEST)) + math.exp(min(log_stray(kappa), LARGEST))

    return _least(enough)


def _by_duality(
    duals: Float64[np.ndarray, "s"],
    low: Float64[np.ndarray, "s"],
    high: Float64[np.ndarray, "s"],
    log_idle: Float64[np.ndarray, "r"],
    log_stray: Callable[[float], float],
) -> float:
    """Find the smallest κ of the second proof, for z on a grid that is refined twice; ∞ where Ω > e^{600}."""
    if float(np.logaddexp.reduce(log_idle)) > 600.0:
        return math.inf
    idle = float(np.exp(np.logaddexp.reduce(log_idle)))
    ratios = np.log(duals) - np.stack([high, low])

    def spread(z: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
        logs = z[:, None, None] + ratios
        w = wrightomega(np.maximum(logs, -LARGEST))
        return np.asarray(np.where(logs < -LARGEST, np.inf, w + 1 / w).max(axis=1) @ duals - 2)

    start, stop = float(-ratios.max()) - 2.0, float(-ratios.min()) + 4.0 + math.log1p(idle)
    for _ in range(3):
        z = np.linspace(start, stop, 65)
        values = np.maximum(spread(z), 0.0) + np.exp(-z) * idle
        best = int(np.argmin(values))
        start, stop = z[max(best - 1, 0)], z[min(best + 1, z.size - 1)]
    base, log_weight = float(values[best]), -float(z[best])
    if base > 1e260:
        return math.inf

    def enough(kappa: float) -> bool:
        return kappa >= base + math.exp(min(log_weight + kappa + 1 + log_stray(kappa), LARGEST))

    return base if enough(base) else _least(enough, base)


def _least(enough: Callable[[float], bool], start: float = 0.0) -> float:
    """Find the smallest κ ≥ ``start`` that satisfies a condition, rounded up by at most 1e-4 κ; ∞ beyond _MOST."""
    if enough(start):
        return start
    high = max(2 * start, 1e-6)
    while not enough(high):
        high *= 2
        if not high <= _MOST:
            return math.inf
    low = max(start, high / 2)
    if high <= 1e-6:
        low = start
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
