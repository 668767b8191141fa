"""The cone and the radii of Lemma 7, computed from the data.

Notation. α locally optimal, P = ‖p_mm(α)‖, g_it = k_iα_i − k_it, D_it = γ_iα_i − γ_it, margins m_it = g_it·p_mm ≥ 1. A
prompt is p = ρp̃ with ‖p̃‖ = P, so ‖p‖ = ρP; ν = 1 − cos(p, p_mm); x_it = g_it·p̃; s_it = s_iα_i e^{−ρx_it}. A token t
≠ α_i is *good* if D_it > 0 and *harmful* otherwise. SVM-neighbours are good (Definition 2), so harmful tokens have
margins m_it > 1. (The paper's δ runs over all non-neighbours; those that score below α_i push in the right direction,
so only harmful tokens need a bound. This makes the cone wider and the radius smaller.)

**The cone.** δ = ½ (min over harmful tokens of m_it − 1), ∞ without any; ε = min(½, δ)/2; A = P max‖g_it‖/2, which
is ≤ P max‖k_it‖. As ‖p̃ − p_mm‖ = P√(2ν), |x_it − m_it| ≤ w_it := P‖g_it‖√(2μ) in cone_μ, which is ≤ ε for the paper's
μ = (ε/A)²/8. Here μ is taken token by token, μ = ½ min_it (ε_it/(P‖g_it‖))² with ε_it = min(½, (m_it − 1)/2)/2 for
harmful and ¼ for good tokens: never smaller than the paper's μ, and equal to it when one token attains both extremes.
In the cone
  good tokens have x_it ≥ m_it − w_it ≥ ¾,    harmful ones x_it − 1 ≥ m_it − 1 − w_it ≥ ¾(m_it − 1).

**The gradient.** Let D̄_i = Σ_t s_it D_it, c_i = |ℓ'(γ_iα_i − D̄_i)|. The covariance of scores and keys, written in
differences to α_i, gives for every q
  −n⟨∇L(p), q⟩ = Σ_it ω_it e^{−ρx_it} (g_it·q),    ω_it = c_i s_iα_i (D_it − D̄_i).                       (*)
There is no quadratic term: the cross term of Lemma 3 is contained in D̄_i. Let u_i = Σ_t e^{−ρ(m_it − w_it)} ≥ 1 −
s_iα_i and Γ_i = max_t |D_it|. Then |D̄_i| ≤ Γ_i u_i; with c⁻_i, c⁺_i the extremes of |ℓ'| on γ_iα_i ± Γ_i u_i,
  ω⁻_it = c⁻_i (D_it − Γ_i u_i)/(1 + u_i) ≤ ω_it (good tokens),    |ω_it| ≤ ω⁺_it = c⁺_i (|D_it| + Γ_i u_i).

**Support.** KKT: p_mm = Σ λ_it g_it, λ ≥ 0 on neighbours only, Σ λ_it = P². Hence with λ̂ = λ/P²
  Σ λ̂_it x_it = 1 − ν exactly, and some support token has x ≤ 1 − ν.                                     (**)
This covers inputs without neighbours: their terms may have the wrong sign, but they are of size e^{−ρ(1+δ)}, compared
with e^{−ρ(1−ν)}.

**Base radius ρ_0**: the smallest ρ with the following conditions, which larger ρ satisfy, too:
  (a) Γ_i u_i ≤ ½ D_it for every good token,    (c) ρ(m_it − 1 − w_it) ≥ 1 for every harmful token,
  (b) H(ρ) := Σ_harmful ω⁺ e^{−ρ(m−1−w)} (m + w) ≤ ½ b ω_S,
where b = min_good (m − w) ≥ ¾ and ω_S is the smallest ω⁻ on the support. φ = 1 − H/(b ω_S) ∈ [½, 1].

**L1.** For q in the cone, by (*), (**), (b): −⟨∇L(p), q̄⟩ ≥ φ b ω_S e^{−ρ(1−ν)}/(nP) > 0; with b = 1 for q = p_mm.

**L2.** 1 − s_iα_i ≤ (1 + β) Σ_good s_iα_i e^{−ρx} for β = (1 + max u) max_i Σ_{harmful t} e^{−ρ(m_it−1−w_it)}, so
  −⟨∇L(p), q̄⟩ ≥ C⁻ max_i(1 − s_iα_i),    C⁻ = φ b min_good c⁻_i(D_it − Γ_i u_i)/(nP(1 + β)),
  ‖∇L(p)‖ ≤ C⁺ max_i(1 − s_iα_i),    C⁺ = (1/n) Σ_i c⁺_i max_t ‖g_it‖(|D_it| + Γ_i u_i),    1 − s_iα_i ≤ u_i.

**L3.** −⟨∇L, p̄⟩ ≤ (1 + π)(−⟨∇L, p̄_mm⟩) with π = κ/ρ − ν, so that R_π is where κ(ρ)/ρ falls below π. Multiplied by
nPρ e^{ρ(1−ν)}, with (*) and y = ρ(x − (1−ν)), the difference of both sides is the sum over tokens of
ω e^{−y} ρ((1+π)m − x).
* Neighbours have m = 1 and contribute ω e^{−y}(κ − y), because ρ(1 + π − x) = κ − y.
* Other good tokens contribute, whatever x is, at least −ω⁺ e^{−κ−1} e^{−ρ(1−μ)(m−1)}; so do neighbours without
  a dual (m = 1). Ω is the sum of ω⁺ e^{−ρ(1−μ)(m−1)} over all good tokens outside the support.
* Harmful tokens have x ≥ m − w and |(1+π)m − x| ≤ max(μ, κ/ρ)m + w. These tokens subtract at most B(κ) = Σ ω⁺
  e^{−ρ(m−1−w)} (max(ρμ, κ)m + ρw).
So L3 follows from Σ_S ω e^{−y}(κ − y) ≥ Ω e^{−κ−1} + B(κ) for all y with Σ λ̂y = 0, which is (**), and
:mod:`.correlation_constant` finds the least such κ. ω⁺, Ω and B decrease in ρ and ω⁻ increases, so κ
decreases. For weights proportional to the duals κ = 0, so κ measures the deviation from such weights. For d = 1 both
sides are equal, κ = 0. (The paper has π in place of κ/ρ − ν, and for ω⁺ and ω⁻ the extreme values c_max Γ and c_min
g_min.)

How GD stays in a cone (Theorem 3) is derived in :mod:`.invariant_cone`.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 2, Lemma 7, Appendix B.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.margin_excess import NEAR_ONE, margins_beyond_one
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import Bounded, exact, with_rounding
from theorems.core.key_rows import key_rows
from theorems.curves.bisection import smallest
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.local_paths.correlation_constant import HarmfulTokens, correlation_constant


@dataclass(frozen=True, eq=False)
class Apex:
    """The tip a = w + height·p_mm of a translated cone; 0 for the cone of Lemma 7.

    Attributes:
        offset: the offset w, orthogonal to p_mm, (d,).
        sizes: the products g_it·w of the rows g_it = k_iα_i − k_it with w, (n, T).
        height: the height of the tip, in units of p_mm.
    """

    offset: Float64[np.ndarray, "d"]
    sizes: Float64[np.ndarray, "n T"]
    height: float


@dataclass(frozen=True)
class Bounds:
    """Bounds of the terms of (*) for all p in the cone with ‖p‖ ≥ ρP, as logarithms, in the notation of the module.

    Attributes:
        log_u: the logarithms of the bounds u_i ≥ 1 − s_iα_i, (n,).
        log_low: the logarithms of the lower bounds ω⁻_it of ω_it, (n, T); −inf except at good tokens.
        log_high: the logarithms of the upper bounds ω⁺_it of |ω_it|, (n, T); −inf at α.
        share: the numbers Γ_i u_i / min_good D_it that condition (a) bounds by ½, (n,); 0 for inputs without good
            tokens.
    """

    log_u: Numbers
    log_low: Numbers
    log_high: Numbers
    share: Numbers


@dataclass(frozen=True, eq=False)
class LocalConstants:
    """The constants of Lemma 7 for one problem and one locally optimal α, in the notation of the module's docstring.

    Attributes:
        problem: keys, scores, loss.
        solution: the solution p_mm of ATT-SVM(α).
        mu: the opening μ of the cone, a bound of 1 − cos(p, p_mm).
        harmful: the mask of the harmful tokens t ≠ α_i, which do not score below α_i, (n, T).
        carried: whether computed numbers carry their rounding error, as claims require but choices of radii do not.
    """

    problem: Problem
    solution: MaxMargin
    mu: float
    harmful: Bool[np.ndarray, "n T"]
    carried: bool = False

    @cached_property
    def carrying(self) -> LocalConstants:
        """Return these constants with their rounding errors in float64, for the sides of claims."""
        return replace(self, carried=True)

    @cached_property
    def norm(self) -> Numbers:
        """The norm P = ‖p_mm‖, the unit of ρ = ‖p‖/P."""
        return norm(with_rounding(self.solution.p)) if self.carried else self.solution.norm

    @cached_property
    def rows(self) -> Numbers:
        """The rows g_it = k_iα_i − k_it, zero at α, (n, T, d)."""
        if self.carried:
            return key_rows(self.problem, self.solution.alpha)
        return self._to_chosen(self.problem.keys)

    @cached_property
    def gaps(self) -> Numbers:
        """The score gaps D_it = γ_iα_i − γ_it, (n, T)."""
        return self._to_chosen(self.problem.scores[..., None])[..., 0]

    def _to_chosen(self, x: Float64[np.ndarray, "n T k"]) -> Numbers:
        """Return the entry of the chosen token minus that of every token, in each input: k_iα − k_it for keys."""
        chosen = np.take_along_axis(x, self.solution.alpha[:, None, None], axis=1)
        return (exact(chosen) if self.carried else chosen) - x

    @cached_property
    def others(self) -> Bool[np.ndarray, "n T"]:
        """The mask of tokens t ≠ α_i."""
        return np.asarray(np.arange(self.problem.T) != self.solution.alpha[:, None])

    @cached_property
    def good(self) -> Bool[np.ndarray, "n T"]:
        """The mask of the good tokens: t ≠ α_i that score below α_i, (n, T)."""
        return np.asarray(self.others & ~self.harmful)

    @cached_property
    def support(self) -> Bool[np.ndarray, "n T"]:
        """The mask of the tokens whose constraint in ATT-SVM has a positive dual, (n, T)."""
        return np.asarray(self.solution.duals > 0)

    @cached_property
    def reach(self) -> Numbers:
        """The products P‖g_it‖ of the norms of p_mm and of rows, (n, T)."""
        return self.norm * norm(self.rows, axis=-1)

    @cached_property
    def tilt(self) -> Numbers:
        """The largest change w_it = P‖g_it‖√(2μ) of a margin within the cone, at constant norm of p, (n, T)."""
        return self.reach * np.sqrt(self._as_given(2 * self.mu))

    @cached_property
    def beyond(self) -> Numbers:
        """The numbers m_it − 1 for the margins m_it of p_mm, (n, T), +inf at α; where near 0, from exact margins."""
        beyond = margins_beyond_one(self.solution)
        if not self.carried:
            return beyond
        excess = np.vecdot(self.rows, with_rounding(self.solution.p)) - 1
        return np.where(beyond < NEAR_ONE, with_rounding(beyond), np.where(self.others, excess, np.inf))

    @cached_property
    def margins(self) -> Numbers:
        """The margins m_it = g_it·p_mm of p_mm, 1 at neighbours, +inf at α; (n, T)."""
        return 1 + self.beyond if self.carried else self.solution.margins

    @cached_property
    def room(self) -> Numbers:
        """The lower bounds m_it − w_it − 1 of x_it − 1 in the cone, with x_it = g_it·p̃ for p̃ = pP/‖p‖, (n, T)."""
        return self.beyond - self.tilt

    @cached_property
    def lowest(self) -> Numbers:
        """The lower bounds m_it − w_it of x_it = g_it·p̃ in the cone, p̃ = pP/‖p‖; +inf at α, (n, T)."""
        return self.margins - self.tilt

    def _as_given(self, x: Any) -> Numbers:
        """Return a float as an exact bounded array if rounding is carried, and unchanged otherwise."""
        return exact(x) if self.carried else np.asarray(x)

    @property
    def A(self) -> float:
        """The constant A = P max‖k_iα_i − k_it‖/2, P = ‖p_mm‖."""
        return float(self.reach.max()) / 2

    @cached_property
    def delta(self) -> float:
        """The constant δ, half the smallest m_it − 1 of a harmful token, m_it its margin; ∞ without harmful tokens."""
        return float(np.min(self.beyond[self.harmful], initial=np.inf)) / 2

    @property
    def epsilon(self) -> float:
        """The constant ε = min(½, δ)/2, by which margins of p_mm may change in the paper's cone; δ is :attr:`delta`."""
        return min(0.5, self.delta) / 2

    @cached_property
    def base(self) -> Numbers:
        """The lower bound b of margins of good tokens (which score below α_i) in the cone: the least m_it − w_it."""
        return np.min(self.lowest[self.good])

    def bounds(self, rho: float) -> Bounds:
        """Return bounds of the terms of (*), the sum for the gradient, for ‖p‖ ≥ ρP in the cone."""
        if rho not in self._bounds_by_rho:
            self._bounds_by_rho[rho] = self._bounds(rho)
        return self._bounds_by_rho[rho]

    @cached_property
    def _bounds_by_rho(self) -> dict[float, Bounds]:
        """Return the cache of :meth:`bounds`, which maps ρ to its result."""
        return {}

    def _bounds(self, rho: float) -> Bounds:
        """Compute the result of :meth:`bounds` for a new ρ."""
        scores, loss, gaps = self.problem.scores, self.problem.loss, self.gaps
        log_u = np.logaddexp.reduce(np.where(self.others, -rho * self.lowest, -np.inf), axis=1)
        largest = np.max(np.abs(gaps), axis=1)
        mixing = np.exp(np.minimum(log_u, 300.0)) * largest
        least = np.min(np.where(self.good, gaps, np.inf), axis=1)
        chosen = scores[np.arange(self.problem.n), self.solution.alpha]
        ends = np.maximum(scores.min(axis=1), chosen - mixing), np.minimum(scores.max(axis=1), chosen + mixing)
        slope_low, slope_high = (self._slopes(log_of, *ends) for log_of in (loss.log_floor, loss.log_bound))
        with np.errstate(divide="ignore"):
            log_gaps = np.log(np.where(self.good, np.maximum(gaps - mixing[:, None], 0.0), 0.0))
            # The logarithm of ``mixing`` is computed from those of its factors, since ``mixing`` may underflow.
            sizes = np.log(np.abs(gaps)), (np.minimum(log_u, 300.0) + np.log(largest))[:, None]
        most = np.where(self.others, np.logaddexp(*sizes), -np.inf)
        log_low = slope_low[:, None] + log_gaps - np.logaddexp(0.0, log_u)[:, None]
        return Bounds(log_u, log_low, slope_high[:, None] + most, mixing / least)

    def _slopes(self, log_of: Callable[[float, float], float], low: Numbers, high: Numbers) -> Numbers:
        """Return the logarithm of the largest or smallest |ℓ'| between ``low`` and ``high`` in each input, (n,).

        ``log_of`` computes the logarithm for the ends of an interval. If rounding is carried, the interval is widened
        by its error, and the error of the logarithm is 8 eps (1 + |log|).
        """
        if not self.carried:
            return np.array([log_of(float(a), float(b)) for a, b in zip(low, high, strict=True)])
        ends = zip(low.value - 2 * low.error, high.value + 2 * high.error, strict=True)
        slopes = np.array([log_of(float(a), float(b)) for a, b in ends])
        return Bounded(slopes, 8 * EPS * (1 + np.abs(slopes)))

    def _log_support(self, bounds: Bounds) -> Numbers:
        """Return log ω_S, where ω_S is the smallest lower bound ω⁻ of a token with a positive dual."""
        return np.min(bounds.log_low[self.support])

    def is_base(self, rho: float) -> bool:
        """Return whether the conditions (a), (b), (c) of the base radius hold at ρ = ``rho``."""
        bounds = self.bounds(rho)
        if (bounds.share > 0.5).any():
            return False
        return bool(self._harm_ratio(rho, bounds) <= 0.5 and (rho * self.room[self.harmful] >= 1).all())

    def _harm_ratio(self, rho: float, bounds: Bounds) -> Numbers:
        """Return H/(b ω_S), the share of L1's bound that the harmful tokens take away (symbols: see the module)."""
        harmful = self.harmful
        if not harmful.any():
            return self._as_given(0.0)
        size = bounds.log_high[harmful] - rho * self.room[harmful]
        total = np.logaddexp.reduce(size + np.log(self.margins[harmful] + self.tilt[harmful]))
        return np.exp(np.minimum(700.0, total - np.log(self.base) - self._log_support(bounds)))

    @cached_property
    def base_rho(self) -> float:
        """The base radius ρ_0, in units of P = ‖p_mm‖; ∞ if no float64 is large enough."""
        return smallest(self.is_base, 1e-3)

    def kappa(self, rho: float, apex: Apex | None = None) -> float:
        """Return κ(ρ) of L3, a decreasing function of ρ, for ρ ≥ ρ_0.

        If an apex is given, the result is the κ of the cone with this tip a, for ⟨p, p_mm⟩ ≥ ρP²: in L3, p' = p − a
        takes the place of p, and ω e^{−g·a} that of ω.
        """
        if self.problem.d == 1:
            return 0.0
        bounds, beyond = self.bounds(rho), self.beyond
        height = 0.0 if apex is None else apex.height
        length = rho - height
        with np.errstate(invalid="ignore"):
            exponents = np.where(self.others, -height * beyond, 0.0) - (0.0 if apex is None else apex.sizes)
        log_low, log_high = bounds.log_low + exponents, bounds.log_high + exponents
        duals = self.solution.duals[self.support]
        without_dual = self.good & ~self.support
        harmful = HarmfulTokens(
            log_high[self.harmful] - length * self.room[self.harmful],
            self.solution.margins[self.harmful],
            length * self.tilt[self.harmful],
            length * self.mu,
        )
        if (length * self.room[self.harmful] < 1).any():
            return math.inf
        idle = log_high[without_dual] - length * (1 - self.mu) * beyond[without_dual]
        return correlation_constant(duals / duals.sum(), log_low[self.support], log_high[self.support], idle, harmful)

    def pi(self, radius: float) -> float:
        """Return the smallest π for which L3 is proven on all of C_{μ,radius}; it falls as ``radius`` grows."""
        rho = radius / self.norm * (1 + 1e-12)
        return math.inf if rho < self.base_rho else self.kappa(rho) / rho

    def radius(self, pi: float) -> float:
        """Return the radius R_π of L3 in Lemma 7: the smallest ‖p‖ from which on :meth:`pi` is at most ``pi``."""
        return self.norm * smallest(lambda rho: self.kappa(rho) <= pi * rho, self.base_rho)

    @property
    def base_radius(self) -> float:
        """The radius R = ρ_0 P from which L1 and L2 hold."""
        return self.norm * self.base_rho

    def log_lower(self, rho: float) -> Numbers:
        """Return log C⁻ of L2, −⟨∇L(p), q̄⟩ ≥ C⁻ max_i(1 − s_iα_i) for ‖p‖ ≥ ρP ≥ base radius and q in the cone."""
        bounds = self.bounds(rho)
        worst = np.min((bounds.log_low + np.logaddexp(0.0, bounds.log_u)[:, None])[self.good])
        stray = np.logaddexp.reduce(np.where(self.harmful, -rho * self.room, -np.inf), axis=1)
        beta = np.exp(np.logaddexp(0.0, np.max(bounds.log_u)) + np.max(stray))
        log_share = np.log1p(-self._harm_ratio(rho, bounds))
        return np.log(self.base / (self.problem.n * self.norm)) + worst + log_share - np.log1p(beta)

    def log_upper(self, rho: float) -> Numbers:
        """Return log C⁺ of L2, ‖∇L(p)‖ ≤ C⁺ max_i(1 − s_iα_i), for ‖p‖ ≥ ρP."""
        bounds = self.bounds(rho)
        with np.errstate(divide="ignore"):
            size = np.where(self.others, bounds.log_high + np.log(norm(self.rows, axis=-1)), -np.inf)
        return np.logaddexp.reduce(np.max(size, axis=1)) - np.log(self._as_given(self.problem.n))

    def log_descent(self, rho: float, *, axis: bool = False) -> Numbers:
        """Return log(φ b ω_S/(nP)), L1's bound without e^{−ρ(1−ν)}; ``axis`` selects q = p_mm, for which b = 1."""
        b, bounds = 1.0 if axis else self.base, self.bounds(rho)
        log_share = np.log1p(-self._harm_ratio(rho, bounds))
        return np.log(b / (self.problem.n * self.norm)) + self._log_support(bounds) + log_share


def local_constants(problem: Problem, solution: MaxMargin) -> LocalConstants | None:
    """Return the constants of Lemma 7 at α = ``solution.alpha``; None when α is not locally optimal."""
    others = np.arange(problem.T) != solution.alpha[:, None]
    harmful = np.asarray(others & (problem.gaps(solution.alpha) <= 0))
    if (harmful & solution.neighbours).any() or not (solution.duals > 0).any():
        return None
    unopened = LocalConstants(problem, solution, 0.0, harmful)
    with np.errstate(invalid="ignore"):
        room = np.where(harmful, np.minimum(0.5, unopened.beyond / 2), 0.5) / 2
    mu = float(np.min(room[others] / unopened.reach[others])) ** 2 / 2
    return LocalConstants(problem, solution, mu, harmful)


def resolution_failure(constants: LocalConstants | None) -> str:
    """Return why no claim can be decided: α is not locally optimal, or float64 does not resolve logits in the cone."""
    if constants is None:
        return "α is not locally optimal for the solution under test"
    return (
        f"δ = {constants.delta:.3g}, μ = {constants.mu:.3g}: the cone begins at ‖p‖ = {constants.base_radius:.3g}"
        " or later, where float64 no longer resolves its logits"
    )
