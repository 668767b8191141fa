"""Constants of the region where the logit of every optimal token leads by a margin, and bounds on the gradient there.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 1 and 2; derivations in
:mod:`.descent_from_a_margin`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Form, Undecided
from theorems.core.claim_name import sharper
from theorems.core.key_rows import key_rows
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.token_selection.global_paths.flow_offset import FlowOffset, fixed_point_bound

KEPT = sharper("margin-is-kept")
"""The claim that is undecided by default where no sufficient margin can be resolved (:attr:`MarginConstants.claim`)."""
LARGEST = 1e4
"""The largest margin of a start: with a larger margin, floats do not resolve both the weights and the steps."""


@dataclass(frozen=True, eq=False)
class MarginConstants:
    """Constants of a problem with unique, separable optimal tokens, and bounds that depend on p's margin m(p) and norm.

    Attributes:
        problem: keys, scores, loss.
        svm: the ATT-SVM solution p_mm.
        claim: the name of the claim that is undecided where no start of sufficient margin can be resolved.
    """

    problem: Problem
    svm: MaxMargin
    claim: ClassVar[str] = KEPT

    @cached_property
    def others(self) -> Bool[np.ndarray, "n T"]:
        """The mask of the tokens t ≠ opt_i."""
        return np.asarray(np.arange(self.problem.T) != self.problem.optimal[:, None])

    @cached_property
    def rows(self) -> Numbers:
        """The rows g_it = k_i,opt − k_it, t ≠ opt_i, (N, d)."""
        return key_rows(self.problem, self.problem.optimal)[self.others]

    @cached_property
    def p_mm(self) -> Numbers:
        """The max-margin solution p_mm, (d,)."""
        return with_rounding(self.svm.p)

    @cached_property
    def length(self) -> Numbers:
        """The norm ‖p_mm‖ = 1/Θ."""
        return norm(self.p_mm)

    @cached_property
    def widest(self) -> Numbers:
        """The largest margin A = max g_it·p_mm ≥ 1."""
        return np.maximum(np.max(self.rows @ self.p_mm), 1.0)

    @cached_property
    def reach(self) -> Numbers:
        """The largest row norm, max ‖g_it‖."""
        return np.max(norm(self.rows, axis=1))

    @cached_property
    def log_gaps(self) -> Numbers:
        """The logarithms of γ_i,opt − γ_it, (N,)."""
        best = exact(self.problem.scores.max(axis=1))[:, None]
        return np.log(np.where(self.others, best - self.problem.scores, 1.0))[self.others]

    @cached_property
    def log_slopes(self) -> Numbers:
        """The logarithms of c_max and c_min, the bounds of |ℓ'| on the range of scores; (2,)."""
        loss, (low, high) = self.problem.loss, self.problem.score_range
        bounds = np.array([loss.log_bound(low, high), loss.log_floor(low, high)])
        return approximate(bounds, 8 * EPS * (1 + np.abs(bounds)))

    @cached_property
    def spread(self) -> Numbers:
        """The constant K = log(N c_max Γ_max / (c_min Γ_min)), N = n(T − 1); κ = K + log 2."""
        count = np.log(exact(self.problem.n * (self.problem.T - 1)))
        slopes = self.log_slopes[0] - self.log_slopes[1]
        return count + slopes + (np.max(self.log_gaps) - np.min(self.log_gaps))

    @cached_property
    def kappa(self) -> Numbers:
        """The constant κ = log(2N c_max Γ_max / (c_min Γ_min)) of Theorem 1."""
        return self.spread + np.log(exact(2.0))

    @cached_property
    def edge(self) -> Numbers:
        """The margin log((T − 1)A) beyond which −⟨∇L, p_mm⟩ > 0."""
        return np.log(exact(self.problem.T - 1)) + np.log(self.widest)

    @cached_property
    def region(self) -> Numbers:
        """The margin log(2(T − 1)A) beyond which Aq ≤ ½, with q = (T − 1) e^{−m}."""
        return self.edge + np.log(exact(2.0))

    @cached_property
    def needed(self) -> Numbers:
        """The margin κ + log(2(T − 1)A) of a start from which gradient descent keeps Aq ≤ ½.

        Raises:
            Undecided: the margin is beyond what floats resolve.
        """
        margin = self.kappa + self.region
        if not (float(value_of(margin)) < LARGEST and float(np.max(margin.error)) < 1):
            why = f"the start needs a margin of {float(value_of(margin)):.3g}, where float64 resolves no step"
            raise Undecided(self.claim, why, Form.EFFECTIVE)
        return margin

    def margins(self, p: Any) -> Numbers:
        """Return m(p) = min g_it·p, (*b,) for points (*b, d)."""
        return np.min(p @ self.rows.T, axis=-1)

    def odds_bound(self, m: Any) -> Numbers:
        """Return q = (T − 1) e^{−m} ≥ Σ_{t≠opt} e^{−g_it·p}."""
        return (self.problem.T - 1) * np.exp(-m)

    def stretch(self, m: Any) -> Numbers:
        """Return 1 + q, the largest ratio of ‖∇L‖ to max‖g‖ Ω."""
        return 1 + self.odds_bound(m)

    def lag(self, m: Any) -> Numbers:
        """Return K + log(1 + q), the most by which −⟨∇L, p⟩/Ω may exceed the margin m(p)."""
        return self.spread + np.log1p(self.odds_bound(m))

    def share(self, m: Any) -> Numbers:
        """Return 1 − Aq, the lower bound of −⟨∇L, p_mm⟩/Ω."""
        return 1 - self.widest * self.odds_bound(m)

    def correlation(self, p: Any, m: Any) -> Numbers:
        """Return 1 + π(p) = (1 + (K + log(1 + q))/ρ)/(1 − Aq), ρ = ‖p‖/‖p_mm‖."""
        return (1 + self.lag(m) * self.length / norm(p, axis=-1)) / self.share(m)

    def climb(self, m: Any) -> Numbers:
        """Return Θ(1 − Aq)/(max‖g‖(1 + q)), the lower bound of ⟨Δ, p̄_mm⟩/‖Δ‖ for a step Δ along −∇L."""
        return self.share(m) / (self.length * self.reach * self.stretch(m))

    def log_growth(self, log_step: Any) -> Numbers:
        """Return log β for m(p(t)) ≥ log(e^{m(p(0)) − κ} + βt), β = (η/2)(c_minΓ_min/2n)(c_min/(2c_max‖p_mm‖))²."""
        top, floor = self.log_slopes
        log_beta = log_step + floor + np.min(self.log_gaps) + 2 * (floor - top - np.log(self.length))
        return log_beta + 4 * np.log(exact(0.5)) - np.log(exact(self.problem.n))

    def omega(self, at: AttentionAt) -> Numbers:
        """Return Ω e^{−log_scale}, Ω(p) = (1/n) Σ_i |ℓ'_i| Σ_t s_it (γ_i,opt − γ_it); (b,)."""
        slopes: Any = at.log_slopes
        logs = (at.log_weights + slopes[..., None])[:, self.others] + self.log_gaps
        return np.sum(np.exp(logs - at.log_scale[:, None]), axis=-1) / self.problem.n


def least_progress(constants: MarginConstants, p: Any, moved: Any, m: Any) -> Numbers:
    """Return the lower bound Σ_{s<t} (‖p(s+1)‖ − ‖p(s)‖ − ‖Δ_s‖²/(2‖p(s)‖))/(1 + π_s) of ⟨p(t) − p(0), p̄_mm⟩, (t, b).

    Args:
        constants: the constants of the problem.
        p: p(0) … p(t), (t + 1, b, d).
        moved: the steps Δ, (t, b, d).
        m: margins of p(0) … p(t−1), all above :attr:`MarginConstants.edge`, (t, b).
    """
    norms = norm(p, axis=-1)
    gains = norms[1:] - norms[:-1] - second_order(norms[:-1], norm(moved, axis=-1))
    return np.cumsum(gains / constants.correlation(p[:-1], m), axis=0)


def second_order(norms: Any, lengths: Any) -> Any:
    """Return ‖Δ‖²/(2‖p‖), the most by which ‖p + Δ‖ − ‖p‖ exceeds ⟨Δ, p̄⟩."""
    return lengths * lengths / (2 * norms)


def log_excess_rate(constants: MarginConstants, margins: Numbers, floor: Numbers) -> Float64[np.ndarray, "b"]:
    """Return a bound of ‖∇ log(L − L_opt)‖ where margins are at least ``floor``, (b,).

    The bound is 2(1 + q) max‖g‖ times the largest ratio of slopes |ℓ'| at two outputs of the same input.
    """
    problem = constants.problem
    lowest = np.maximum(margins.value.min(axis=0), floor.value - floor.error)
    q = np.minimum(value_of(constants.odds_bound(exact(lowest))), 1.0)
    ranges = list(zip(problem.scores.max(axis=1).tolist(), problem.gaps().max(axis=1).tolist(), strict=True))
    loss, log_ratios = problem.loss, []
    for x in q.tolist():
        ends = [(top - x * gap, top) for top, gap in ranges]
        log_ratios.append(max(loss.log_bound(*end) - loss.log_floor(*end) for end in ends))
    return np.asarray(2 * (1 + q) * float(value_of(constants.reach)) * np.exp(np.minimum(log_ratios, 700.0)))


def offset_bound(
    offsets: FlowOffset,
    p: Float64[np.ndarray, "r d"],
    rho: Float64[np.ndarray, "r"],
    changed: Float64[np.ndarray, "r"],
    q: Float64[np.ndarray, "d"],
    k: int,
) -> float:
    """Return a bound of |r| (:mod:`.flow_offset`) at the norm ρ_k: a fixed point, since log t depends on r itself."""
    begin, shift = float((p[0] - q) @ offsets.direction), float(q @ offsets.direction)
    first, residual = float(np.sum(offsets.across(p[0] - q) ** 2)), offsets.residual(q)
    growth_until = offsets.growth(q, begin)
    rates = 2 * changed[:k] * np.expm1(changed[:k])

    def squared_offset(bound: float) -> float:
        times = np.maximum(rho[1 : k + 1] - p[:k] @ offsets.direction + 2 * bound, 0.0)
        end = float(rho[k]) - shift + bound
        growth = math.exp(changed[0]) * growth_until(end) + 2 * bound * residual * max(end - begin, 0.0)
        return first + growth + float(rates @ times)

    return min(fixed_point_bound(squared_offset, first), float(rho[k]) + float(np.linalg.norm(offsets.across(q))))


def log_coefficient_change(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return E, a bound of the difference between the logarithm of a row's coefficient and log c_j − g_j·p, (r,).

    The bound holds where margins are at least ``later``; it is ∞ where a coefficient may be negative.
    """
    problem, loss = constants.problem, constants.problem.loss
    top, gaps = problem.scores.max(axis=1), problem.gaps()
    widest, least = gaps.max(axis=1), np.where(constants.others, gaps, np.inf).min(axis=1)
    q = odds_bounds_later(constants, later)
    changes = np.full(len(q), np.inf)
    for k, odds in enumerate(q.tolist()):
        each = []
        for a, wide, small in zip(top.tolist(), widest.tolist(), least.tolist(), strict=True):
            share, low = odds * wide / small, a - min(odds, 1.0) * wide
            slopes = loss.log_bound(low, a) - loss.log_floor(low, a)
            each.append(odds - math.log1p(-share) + slopes if share < 1 else math.inf)
        changes[k] = max(each)
    return changes * (1 + 16 * EPS)


def odds_bounds_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return q = (T − 1) e^{−m} for margins m = ``later``, as plain floats."""
    with np.errstate(over="ignore"):
        return np.asarray((constants.problem.T - 1) * np.exp(-later))


def lags_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return K + log(1 + q) for margins ``later``, as plain floats."""
    return np.asarray(float(value_of(constants.spread)) + np.log1p(odds_bounds_later(constants, later)))


def shares_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return 1 − Aq for margins ``later``, as plain floats."""
    return np.asarray(1 - float(value_of(constants.widest)) * odds_bounds_later(constants, later))
