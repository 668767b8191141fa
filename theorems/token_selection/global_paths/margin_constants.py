"""Constants for prompts with which every optimal token has a larger logit than the others, and bounds on ∇L there.

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
"""The claim that by default is undecided where no sufficient margin can be resolved (:attr:`MarginConstants.claim`)."""
LARGEST = 1e4
"""The largest margin of a start: with a larger margin, floats do not resolve both the weights and the steps."""


@dataclass(frozen=True, eq=False)
class MarginConstants:
    """Constants of a problem with unique, separable optimal tokens, and bounds that depend on p's margin m(p) and norm.

    Notation: g_it = k_i,opt − k_it are the N = n(T − 1) rows of all t ≠ opt_i, and m(p) = min g_it·p. A = max g_it·p_mm
    is the largest margin of p_mm, and q = (T − 1) e^{−m}. On the range of scores c_min ≤ |ℓ'| ≤ c_max, and Γ_min, Γ_max
    are the smallest and the largest gap γ_i,opt − γ_it. Ω(p) = (1/n) Σ_i |ℓ'_i| Σ_t s_it (γ_i,opt − γ_it) has the size
    of the gradient; ℓ'_i is the slope at the output of input i.

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
        """The largest margin A = max g_it·p_mm ≥ 1 of p_mm."""
        return np.maximum(np.max(self.rows @ self.p_mm), 1.0)

    @cached_property
    def reach(self) -> Numbers:
        """The largest norm of a row, max ‖g_it‖."""
        return np.max(norm(self.rows, axis=1))

    @cached_property
    def log_gaps(self) -> Numbers:
        """The logarithms of the score gaps γ_i,opt − γ_it, t ≠ opt_i, (N,)."""
        best = exact(self.problem.scores.max(axis=1))[:, None]
        return np.log(np.where(self.others, best - self.problem.scores, 1.0))[self.others]

    @cached_property
    def log_slopes(self) -> Numbers:
        """The logarithms of c_max and c_min, the largest and the smallest |ℓ'| on the range of scores; (2,)."""
        loss, (low, high) = self.problem.loss, self.problem.score_range
        bounds = np.array([loss.log_bound(low, high), loss.log_floor(low, high)])
        return approximate(bounds, 8 * EPS * (1 + np.abs(bounds)))

    @cached_property
    def spread(self) -> Numbers:
        """The constant K = log(N c_max Γ_max / (c_min Γ_min)), which is κ − log 2 (symbols: see the class)."""
        count = np.log(exact(self.problem.n * (self.problem.T - 1)))
        slopes = self.log_slopes[0] - self.log_slopes[1]
        return count + slopes + (np.max(self.log_gaps) - np.min(self.log_gaps))

    @cached_property
    def kappa(self) -> Numbers:
        """The constant κ = log(2N c_max Γ_max / (c_min Γ_min)) of Theorem 1 (symbols: see the class)."""
        return self.spread + np.log(exact(2.0))

    @cached_property
    def edge(self) -> Numbers:
        """The margin log((T − 1)A) of p beyond which −⟨∇L, p_mm⟩ > 0; A is the largest margin of p_mm."""
        return np.log(exact(self.problem.T - 1)) + np.log(self.widest)

    @cached_property
    def region(self) -> Numbers:
        """The margin log(2(T − 1)A) of p beyond which −⟨∇L, p_mm⟩ ≥ Ω/2 (symbols: see the class)."""
        return self.edge + np.log(exact(2.0))

    @cached_property
    def needed(self) -> Numbers:
        """The margin of a start, κ + log(2(T − 1)A), from which gradient descent stays in the region of :attr:`region`.

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
        """Return q = (T − 1) e^{−m} for margins m, which is at least Σ_{t≠opt} e^{−g_it·p} in each input."""
        return (self.problem.T - 1) * np.exp(-m)

    def stretch(self, m: Any) -> Numbers:
        """Return 1 + q, an upper bound of ‖∇L‖/(max‖g‖ Ω) at points of margin m (symbols: see the class)."""
        return 1 + self.odds_bound(m)

    def lag(self, m: Any) -> Numbers:
        """Return K + log(1 + q), an upper bound of −⟨∇L, p⟩/Ω − m at points p of margin m (symbols: see the class)."""
        return self.spread + np.log1p(self.odds_bound(m))

    def share(self, m: Any) -> Numbers:
        """Return 1 − Aq, a lower bound of −⟨∇L, p_mm⟩/Ω at points of margin m (symbols: see the class)."""
        return 1 - self.widest * self.odds_bound(m)

    def correlation(self, p: Any, m: Any) -> Numbers:
        """Return 1 + π(p), an upper bound of ⟨∇L, p̄⟩/⟨∇L, p̄_mm⟩ at points p of margin m.

        1 + π(p) = (1 + (K + log(1 + q))/ρ)/(1 − Aq), with ρ = ‖p‖/‖p_mm‖ and the symbols of the class.
        """
        return (1 + self.lag(m) * self.length / norm(p, axis=-1)) / self.share(m)

    def climb(self, m: Any) -> Numbers:
        """Return Θ(1 − Aq)/(max‖g‖(1 + q)) at margin m, a lower bound of ⟨Δ, p̄_mm⟩/‖Δ‖ for a step Δ along −∇L."""
        return self.share(m) / (self.length * self.reach * self.stretch(m))

    def log_growth(self, log_step: Any) -> Numbers:
        """Return log β from the logarithm of the step size η; e^m grows by at least β per step of gradient descent.

        β = (η/2)(c_minΓ_min/2n)(c_min/(2c_max‖p_mm‖))², and m(p(t)) ≥ log(e^{m(p(0)) − κ} + βt).
        """
        top, floor = self.log_slopes
        log_beta = log_step + floor + np.min(self.log_gaps) + 2 * (floor - top - np.log(self.length))
        return log_beta + 4 * np.log(exact(0.5)) - np.log(exact(self.problem.n))

    def omega(self, at: AttentionAt) -> Numbers:
        """Return Ω(p) e^{−log_scale} at the points of ``at``, that is, in units of the gradient, (b,)."""
        slopes: Any = at.log_slopes
        logs = (at.log_weights + slopes[..., None])[:, self.others] + self.log_gaps
        return np.sum(np.exp(logs - at.log_scale[:, None]), axis=-1) / self.problem.n


def least_progress(constants: MarginConstants, p: Any, moved: Any, m: Any) -> Numbers:
    """Return lower bounds of ⟨p(t) − p(0), p̄_mm⟩ for t = 1, 2, … from the growth of ‖p‖, (t, b).

    The bound is Σ_{s<t} (‖p(s+1)‖ − ‖p(s)‖ − ‖Δ_s‖²/(2‖p(s)‖))/(1 + π_s) with the steps Δ_s and π_s = π(p(s)) of
    :meth:`MarginConstants.correlation`.

    Args:
        constants: the constants of the problem.
        p: p(0) … p(t), (t + 1, b, d).
        moved: the steps Δ_s, (t, b, d).
        m: margins of p(0) … p(t−1), all above :attr:`MarginConstants.edge`, (t, b).
    """
    norms = norm(p, axis=-1)
    gains = norms[1:] - norms[:-1] - second_order(norms[:-1], norm(moved, axis=-1))
    return np.cumsum(gains / constants.correlation(p[:-1], m), axis=0)


def second_order(norms: Any, lengths: Any) -> Any:
    """Return ‖Δ‖²/(2‖p‖), the most by which ‖p + Δ‖ − ‖p‖ exceeds ⟨Δ, p̄⟩, from ‖p‖ and ‖Δ‖ = ``lengths``."""
    return lengths * lengths / (2 * norms)


def log_excess_rate(constants: MarginConstants, margins: Numbers, floor: Numbers) -> Float64[np.ndarray, "b"]:
    """Return a bound of ‖∇ log(L − L_opt)‖ where margins are at least ``floor``, (b,).

    L_opt is the risk of selecting the optimal tokens. The bound is 2(1 + q) max‖g‖ times the largest ratio of slopes
    |ℓ'| at two outputs of the same input (symbols: see :class:`MarginConstants`).
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
    """Return a bound of the offset |r| of :mod:`.flow_offset` at norm ``rho[k]``, for the flow from ``p[0]`` on.

    The bound is a fixed point, because log t depends on r itself.

    Args:
        offsets: the support and the predicted offset.
        p: the recorded points, in units of ‖p_mm‖, (r, d).
        rho: the norms of these points, (r,).
        changed: the bound E of :func:`log_coefficient_change` from each point on, (r,).
        q: the limit of the offset from the ray of p_mm, (d,).
        k: the index of the point at whose norm the offset is bounded.
    """
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
    """Return a bound E of how far the coefficients of −∇L are from exponentials, as a difference of logarithms, (r,).

    −∇L = Σ_j a_j g_j over the rows g_j, and |log a_j − (log c_j − g_j·p)| ≤ E where margins are at least ``later``,
    with c_j = |ℓ'(γ_i,opt)|(γ_i,opt − γ_it)/n. E is ∞ where a coefficient a_j may be negative.
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
    """Return :meth:`MarginConstants.odds_bound`, q = (T − 1) e^{−m}, for margins m = ``later``, as plain floats."""
    with np.errstate(over="ignore"):
        return np.asarray((constants.problem.T - 1) * np.exp(-later))


def lags_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return :meth:`MarginConstants.lag`, K + log(1 + q), for margins ``later``, as plain floats."""
    return np.asarray(float(value_of(constants.spread)) + np.log1p(odds_bounds_later(constants, later)))


def shares_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return :meth:`MarginConstants.share`, 1 − Aq, for margins ``later``, as plain floats."""
    return np.asarray(1 - float(value_of(constants.widest)) * odds_bounds_later(constants, later))
