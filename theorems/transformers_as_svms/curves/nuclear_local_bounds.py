"""Constants of Theorem 6 for the nuclear norm: the cone around W_⋆ of chosen tokens α, and its inner radius R0.

Notation as in Lemma 7 of the first paper, but W_⋆, the solution of ATT-SVM⋆(α), which has least nuclear norm, is in the
place of p_mm: rows G_j = (x_iα − x_it) z_iᵀ, margins m_j = ⟨G_j, W_⋆⟩, score gaps D_j = γ_iα − γ_it, P = ‖W_⋆‖_F, r =
‖W‖_F/P. A token is good if D_j > 0 and harmful otherwise. As α is locally optimal, all tight constraints belong to good
tokens, so that harmful tokens have m_j > 1. In cone_μ = {cos(W, W_⋆) ≥ 1 − μ} the margin of W is r times a number
within w_j = P‖G_j‖√(2μ) of m_j. The width is μ = ½ min_j (ε_j/(P‖G_j‖))² with ε_j = min(½, (m_j − 1)/2)/2 for harmful
tokens and ε_j = min(¼, min_harmful (m − 1)/4) for good tokens. So good tokens have margins of at least ¾r, and harmful
tokens j have larger margins than tight constraints k: m_j − w_j > 1 + w_k.

References: *Transformers as Support Vector Machines*, Theorem 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import NotANumber
from theorems.core.implementation import Implementation
from theorems.curves.bisection import smallest
from theorems.curves.cone_points import INSIDE, LEAST_BITS
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import excess_of
from theorems.transformers_as_svms.curves.nuclear_bounds import NuclearBounds


@dataclass(frozen=True, eq=False)
class NuclearLocalBounds:
    """The cone, the constant κ_α and the radius R0 of one solution that is proven to be unique (symbols: the module).

    Attributes:
        bounds: the solution with its face, gap and rows.
        under_test: the implementation under test, which computes the excess risk.
    """

    bounds: NuclearBounds
    under_test: Implementation

    @property
    def problem(self) -> Problem:
        """The keys, scores and loss."""
        return self.bounds.problem

    @cached_property
    def gaps(self) -> Numbers:
        """The score gaps D_j = γ_iα − γ_it, (N,)."""
        rows = self.bounds.svm.rows
        chosen_scores = self.problem.scores[rows.inputs, self.bounds.svm.alpha[rows.inputs]]
        return exact(chosen_scores) - self.problem.scores[rows.inputs, rows.tokens]

    @cached_property
    def good(self) -> Bool[np.ndarray, "N"]:
        """The mask of good tokens, D_j > 0."""
        return np.asarray(value_of(self.gaps) > 0)

    @cached_property
    def tight(self) -> Bool[np.ndarray, "N"]:
        """The mask of tight constraints, m_j = 1."""
        mask = np.zeros(len(self.good), dtype=bool)
        mask[self._exact.support] = True
        return mask

    @property
    def _exact(self) -> Any:
        return self.bounds.svm.exact

    @property
    def is_locally_optimal(self) -> bool:
        """True if all tight constraints belong to tokens that score less than α."""
        return bool(self.good[self.tight].all())

    @cached_property
    def beyond(self) -> Float64[np.ndarray, "N"]:
        """The excess margins m_j − 1, (N,), each rounded once from its enclosure."""
        return np.array([float((m - 1).mid()) for m in self._exact.margins])

    @cached_property
    def reach(self) -> Numbers:
        """The products P‖G_j‖, (N,), with P = ‖W_⋆‖_F."""
        return norm(with_rounding(self.bounds.svm.W.ravel())) * norm(self.bounds.rows, axis=1)

    @cached_property
    def mu(self) -> float:
        """The width μ of the cone, rounded down a little."""
        least = float(np.min(self.beyond[~self.good], initial=np.inf))
        allowed = np.where(self.good, min(0.25, least / 4), np.minimum(0.5, self.beyond / 2) / 2)
        return 0.5 * float(np.min(allowed / value_of(self.reach))) ** 2 * (1 - 1e-9)

    @cached_property
    def tilt(self) -> Numbers:
        """The bounds w_j = P‖G_j‖√(2μ) of the change of a margin within the cone, in units of r, (N,)."""
        return self.reach * np.sqrt(exact(2 * self.mu))

    @cached_property
    def _log_slopes(self) -> Numbers:
        """The logarithms of c_max and c_min, the bounds of |ℓ'| on the range of all scores."""
        problem = self.problem
        slopes = np.array([bound(*problem.score_range) for bound in (problem.loss.log_bound, problem.loss.log_floor)])
        return approximate(slopes, 8 * EPS * (1 + np.abs(slopes)))

    @cached_property
    def kappa(self) -> Numbers:
        """The constant κ_α = log(2 T N c_max Γ⁺/(c_min Γ⁻)).

        N is the number of good tokens, Γ⁺ their largest and Γ⁻ their least score gap D_j; c_max and c_min bound |ℓ'|.
        """
        log_gaps: Any = np.log(self.gaps[self.good])
        count = np.log(exact(2 * self.problem.T * int(self.good.sum())))
        return count + self._log_slopes[0] - self._log_slopes[1] + np.max(log_gaps) - np.min(log_gaps)

    @cached_property
    def first(self) -> float:
        """The radius R0/P: the least r with c_max Σ_harmful |D_j| e^{−r(m_j − w_j)} ≤ c_min Γ⁻ e^{−r(1 + w)}/(2T).

        w is the smallest w_j of the tight constraints.
        """
        harmful = ~self.good
        if not harmful.any():
            return 1e-3
        with np.errstate(divide="ignore"):
            deficits = np.log(np.abs(value_of(self.gaps)[harmful]))
        tilt, slopes = value_of(self.tilt), value_of(self._log_slopes)
        room = self.beyond[harmful] - tilt[harmful] - tilt[self.tight].min()
        least = float(slopes[1] + np.log(value_of(self.gaps)[self.good].min()) - np.log(2 * self.problem.T) - slopes[0])
        return smallest(lambda r: bool(np.logaddexp.reduce(deficits - r * room) <= least - 1e-9), 1e-3)

    @property
    def last(self) -> float:
        """The largest r at which float64 determines softmax weights to six bits."""
        return LEAST_BITS / (4 * (self.problem.d + 3) * EPS * float(value_of(self.reach).max()))

    @property
    def is_resolvable(self) -> bool:
        """True if rounding W changes 1 − cos(W, W_⋆) by little compared to μ, and R0/P and κ_α are below ``last``/2."""
        steady = self.problem.d == 1 or 8 * EPS * self.problem.d <= INSIDE * np.sqrt(2 * self.mu)
        return bool(steady) and 2 * max(float(value_of(self.kappa)), self.first) < self.last

    def log_excess(self, W: Float64[np.ndarray, "m d e"], claim: str) -> Numbers:
        """Return log n(L(W) − L_α), (m,), of the implementation under test, for W in the cone with ‖W‖_F ≥ R0.

        L_α is the risk when every input selects α.

        Raises:
            NotANumber: the difference is not positive by more than its rounding error.
        """
        points = exact(W.reshape(len(W), W.shape[1] * W.shape[2]))
        excess = excess_of(self.under_test, self.problem, points, self.bounds.svm.alpha, claim)
        if (excess.x.value + excess.x.error <= 0).any():
            raise NotANumber(claim, "L(W) ≤ L_α under test in the cone beyond R0, where L(W) > L_α is proven")
        return excess.log + np.log(exact(self.problem.n))

    def sizes(self, W: Float64[np.ndarray, "m d e"]) -> tuple[Numbers, Numbers]:
        """Compute r = ‖W‖_F/P, (m,), and 1 − cos(W, W_⋆), (m,), without cancellation."""
        points, axis = exact(W.reshape(len(W), W.shape[1] * W.shape[2])), with_rounding(self.bounds.svm.W.ravel())
        size, P = norm(points, axis=1), norm(axis)
        apart = points / size[:, None] - axis / P
        return size / P, np.vecdot(apart, apart) / 2

    def points(
        self, rng: np.random.Generator, rhos: Float64[np.ndarray, "m"], begin: float
    ) -> Float64[np.ndarray, "m d e"]:
        """Draw one W of the cone for each ρ, with R0 ≤ ‖W‖_F and ‖W‖_⋆ ≤ ρC_⋆.

        The ray of W is tilted from W_⋆ along a row ±G_j or in a random direction; ``begin``/ρ sets the usual tilt.
        """
        W, rows, m = self.bounds.svm.W, value_of(self.bounds.rows), len(rhos)
        axis = W.ravel() / np.linalg.norm(W)
        raw = rng.standard_normal((m, axis.size))
        signed_rows = rows[rng.integers(len(rows), size=m)] * rng.choice([-1.0, 1.0], (m, 1))
        raw = np.where(rng.random((m, 1)) < 0.6, signed_rows / np.linalg.norm(signed_rows, axis=1, keepdims=True), raw)
        raw -= (raw @ axis)[:, None] * axis
        size = np.linalg.norm(raw, axis=1, keepdims=True)
        side = raw / np.where(size > 0, size, 1.0)
        # Most tilts are of the order of begin/ρ; the others reach up to the boundary of the cone.
        near = (begin / rhos) ** 2 / (2 * self.mu)
        share = np.minimum(1.0, 10 ** rng.uniform(-4, 1, m) * np.where(rng.random(m) < 0.7, near, 1.0))
        nu = (1 - INSIDE) * self.mu * share
        units = (1 - nu)[:, None] * axis + np.sqrt(nu * (2 - nu))[:, None] * side
        shaped = units.reshape(m, *W.shape)
        most = rhos * self.bounds.most / np.linalg.svd(shaped, compute_uv=False).sum(axis=1) * (1 - 1e-12)
        least = np.minimum(self.first * np.linalg.norm(W) * (1 + 1e-12), most)
        length = most * (least / most) ** (rng.random(m) ** 8)
        return np.asarray(shaped * length[:, None, None])
