"""Constants of Theorem 6 for W in a cone around W^mm_α and outside a radius R0.

The notation and the cone are as in :mod:`theorems.token_selection.local_paths.local_constants`; the bounds are derived
in :mod:`.local_path`.

References: *Transformers as Support Vector Machines*, Theorem 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import NotANumber
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.curves.bisection import smallest
from theorems.curves.cone_points import resolvable_rho
from theorems.rounding.approximations import approximate, bend
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import excess_of
from theorems.token_selection.local_paths.local_constants import LocalConstants

Points = Float64[np.ndarray, "m d"]


@dataclass(frozen=True, eq=False)
class LocalPathBounds:
    """The constants κ_α, R0 and others of the claims, in units of P = ‖W^mm_α‖ (symbols: :mod:`.local_path`).

    Attributes:
        constants: the constants of Lemma 7, on the keys vec(x zᵀ).
        under_test: the implementation under test, which computes the excess risk.
    """

    constants: LocalConstants
    under_test: Implementation

    @cached_property
    def _log_slopes(self) -> Numbers:
        """The logarithms of c_max and c_min, the largest and the least |ℓ'| on the range of all scores."""
        problem = self.constants.problem
        slopes = np.array([bound(*problem.score_range) for bound in (problem.loss.log_bound, problem.loss.log_floor)])
        return approximate(slopes, 8 * EPS * (1 + np.abs(slopes)))

    @cached_property
    def kappa(self) -> Numbers:
        """The constant κ_α = log(2 T N c_max Γ⁺/(c_min Γ⁻)).

        N is the number of good tokens, Γ⁺ their largest and Γ⁻ their least score gap; c_max and c_min bound |ℓ'|.
        """
        constants = self.constants.carrying
        log_gaps: Any = np.log(constants.gaps[constants.good])
        count = np.log(exact(2 * constants.problem.T * int(constants.good.sum())))
        return count + self._log_slopes[0] - self._log_slopes[1] + np.max(log_gaps) - np.min(log_gaps)

    def log_harm(self, rho: Numbers) -> Numbers:
        """Return log H for H = Σ_harmful |D_it| e^{−ρ(m_it − w_it)}, −∞ if no token is harmful.

        c_max H bounds the amount by which harmful tokens lower the excess risk.
        """
        constants = self.constants.carrying
        if not constants.harmful.any():
            return exact(np.full(value_of(rho).shape, -np.inf))
        with np.errstate(divide="ignore"):
            deficits = np.log(np.abs(constants.gaps[constants.harmful]))
        return np.logaddexp.reduce(deficits - rho[..., None] * constants.lowest[constants.harmful], axis=-1)

    @cached_property
    def first(self) -> float:
        """The radius R0/P, beyond which harmful tokens lower the excess risk by at most half the good tokens' bound."""
        constants = self.constants
        if not constants.harmful.any():
            return 1e-3
        log_least = float(np.log(constants.gaps[constants.good].min() / (2 * constants.problem.T)))
        slopes = value_of(self._log_slopes)

        def small(rho: float) -> bool:
            harm = float(value_of(self.log_harm(exact(np.array([rho]))))[0])
            return bool(slopes[0] + harm + rho <= slopes[1] + log_least - 1e-9)

        return smallest(small, 1e-3)

    @property
    def last(self) -> float:
        """The largest ρ at which float64 resolves a softmax weight."""
        return resolvable_rho(self.constants)

    def log_excess(self, points: Numbers, claim: str) -> Numbers:
        """Return log n(L(W) − L_α) of the implementation under test, (b,), for points (b, d) of the cone beyond R0.

        L_α is the risk when every input selects α.

        Raises:
            NotANumber: the difference is negative by more than its rounding error.
        """
        problem = self.constants.problem
        excess = excess_of(self.under_test, problem, points, self.constants.solution.alpha, claim)
        if (excess.x.value + excess.x.error <= 0).any():
            raise NotANumber(claim, "L(W) ≤ L_α under test in the cone beyond R0, where L(W) > L_α is proven")
        return excess.log + np.log(exact(problem.n))

    @cached_property
    def others(self) -> Numbers:
        """The rows k_iα − k_it, t ≠ α_i, (N, d)."""
        return key_rows(self.constants.problem, self.constants.solution.alpha)[self.constants.others]

    def margin(self, points: Points) -> Numbers:
        """Return the least margins m(W), (b,)."""
        return np.min(exact(points) @ self.others.T, axis=1)

    @cached_property
    def p_mm(self) -> Numbers:
        """The solution as a vector, vec(W^mm_α), (d,)."""
        return with_rounding(self.constants.solution.p)

    def sizes(self, points: Points) -> tuple[Numbers, Numbers, Numbers]:
        """Return ‖W‖/P, ⟨W, W^mm_α⟩/P², and 1 − cos(W, W^mm_α) without cancellation; (b,) each."""
        P = norm(self.p_mm)
        size = norm(exact(points), axis=1)
        apart = points / size[:, None] - self.p_mm / P
        return size / P, exact(points) @ self.p_mm / (P * P), np.vecdot(apart, apart) / 2

    @cached_property
    def log_costs(self) -> Numbers:
        """The logarithms of c_j = |ℓ'(γ_iα)|(γ_iα − γ_it) at the tokens with positive duals."""
        constants = self.constants.carrying
        problem, support = constants.problem, constants.support
        chosen_scores = problem.scores[np.arange(problem.n), constants.solution.alpha]
        slopes = np.broadcast_to(value_of(problem.loss.log_slope(chosen_scores[:, None])), support.shape)[support]
        return approximate(slopes, 8 * EPS * (1 + np.abs(slopes))) + np.log(constants.gaps[support])

    @cached_property
    def weights(self) -> Numbers:
        """The weights w_j = λ_j/Σλ of the tokens with positive duals λ_j."""
        duals: Any = with_rounding(self.constants.solution.duals[self.constants.support])
        return duals / np.sum(duals)

    def least_excess(self, margin: Numbers) -> Numbers:
        """Return the lower bound D − log1p(x) − b min(x, 1) of log(n(L − L_α) + c_max H) + ⟨W, W^mm_α⟩/P².

        The bound holds where m(W) ≥ ``margin``. The symbols are those of :mod:`.local_path`, with x = (T−1)e^{−margin}.
        """
        constants, problem = self.constants, self.constants.problem
        dual = np.sum(self.weights * (self.log_costs - np.log(self.weights)))
        x = (problem.T - 1) * np.exp(-np.maximum(margin, 0.0))
        top = problem.scores[np.arange(problem.n), constants.solution.alpha]
        length = np.max(np.where(constants.good, constants.gaps, 0.0), axis=1)
        return dual - np.log1p(x) - bend(problem.loss, top, length) * np.minimum(x, 1.0)

    def with_harm(self, log_excess: Numbers, rho: Numbers) -> Numbers:
        """Return log(n(L − L_α) + c_max H) at ‖W‖ = ρP, given log n(L − L_α); see :meth:`log_harm` for H."""
        return np.logaddexp(log_excess, self._log_slopes[0] + self.log_harm(rho))

    @cached_property
    def offset(self) -> Float64[np.ndarray, "d"]:
        """The offset o of the path from the ray, with g_j·o = log(c_j/w_j) − D where duals are > 0, and o ⊥ W^mm_α.

        The offset only defines a point to compare with: the claims hold for any offset.
        """
        rows = self.constants.rows[self.constants.support]
        levels = value_of(self.log_costs - np.log(self.weights))
        axis = self.constants.solution.direction
        across = rows - (rows @ axis)[:, None] * axis
        o = np.linalg.lstsq(across, levels - value_of(self.weights) @ levels, rcond=None)[0]
        return np.asarray(o - (o @ axis) * axis)

    def beside(self, rho: float) -> Float64[np.ndarray, "2 d"]:
        """Return the point ρ W^mm_α and the point W_o of the same norm with the offset o from the ray."""
        solution = self.constants.solution
        length = rho * solution.norm
        squared = float(self.offset @ self.offset)
        height = np.sqrt(max(length**2 - squared, 0.0))
        return np.stack([length * solution.direction, height * solution.direction + self.offset])
