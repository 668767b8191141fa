"""Neighbourhoods D_δ(q) = {x : ‖x‖ = 1, ‖x − q̄‖ ≤ δ} of a direction q that Theorem 4 excludes, with their constants.

A point or direction *beats* another if its risk is lower. :class:`BeatenByDirection` is for cases (A1) and (B) of the
proof: another direction x* beats the whole neighbourhood at every radius beyond a computed radius R_q.
:class:`BeatenByPoint` is for case (A2): one finite point R* x* beats the neighbourhood at all radii beyond R_q. The
function ``theorem_4`` of :mod:`.theorem_4_locally_optimal_only` derives both.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from reference_attention.directions import Direction, unit_difference
from reference_attention.floats import EPS
from theorems.bounded import exact, value_of
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.directions.directional_risk import (
    FACTORS,
    LOG2,
    NEARER,
    Costs,
    NearestTokens,
    along,
    crossing,
    resolved_radii,
    with_unit_rounding,
)
from theorems.token_selection.directions.local_path_points import signed_excess
from theorems.token_selection.directions.neighbourhood_hunt import lowest_in_neighbourhood

DEFAULT_MU = 0.125
"""The width ε of the cone around q, a bound of 1 − cos, if the case has no array ``cone_mu``."""


@dataclass(frozen=True)
class Cone:
    """The cone C_{ε,R0}(q) = {p : 1 − cos(p, q) ≤ ε, ‖p‖ ≥ R0}, given by ε = ``mu`` and R0 = ``radius``."""

    mu: float
    radius: float

    def within(self, delta: float) -> Cone:
        """Return the cone narrowed to unit vectors x with ‖x − q̄‖ ≤ ``delta``, by ‖x − q̄‖² = 2(1 − cos(x, q)) ≤ 2μ."""
        return replace(self, mu=min(self.mu, delta * delta / 2 * (1 - 2.0**-20)))

    def beyond(self, radius: float) -> Cone:
        """Return the cone with its inner radius increased to ``radius`` if it is smaller."""
        return replace(self, radius=max(self.radius, radius))


def cone_of(case: Case, q: Direction) -> Cone:
    """Return the cone around q with width ``cone_mu`` and inner radius ``cone_radius``, which are arrays of the case.

    Without these arrays the width is 1/8 and the inner radius 1/(margin of q).
    """
    unit = 1 / q.margin if math.isfinite(q.margin) else 1.0
    mu = float(case.arrays.get("cone_mu", np.array(DEFAULT_MU)))
    return Cone(min(max(mu, 2.0**-40), 0.875), max(float(case.arrays.get("cone_radius", np.array(unit))), 1e-3 * unit))


def narrow_cone(cone: Cone, q: Direction, costs: Costs, binding: Bool[np.ndarray, "n T"], *, lower: bool) -> Cone:
    """Return a cone so narrow that it is certain whether the norm of a path in it grows or stays bounded.

    The unit vectors of the cone lie in D_{δ'}(q) with δ' = min(θ⁻ − μ, 2θ)/(4B) in cases (A1) and (B), in which the
    binding tokens score lower than α (``lower``); in case (A2) with δ' = θ/(2B). (Symbols: see :class:`Region`.)
    """
    return cone.within(_safe_delta(q, costs, binding, lower=lower))


def _safe_delta(q: Direction, costs: Costs, binding: Bool[np.ndarray, "n T"], *, lower: bool) -> float:
    """Return the radius δ' of the neighbourhood in which the narrow cone lies, see :func:`narrow_cone`."""
    room = 0.5 * q.margin
    if lower:
        least = min(q.exact[i][t] for i, t in np.argwhere(binding))
        room = min(room, unit_difference(NearestTokens.among(q, costs, costs.higher).least, q, least, q) / 4)
    return min(room / costs.reach, 0.5)


@dataclass(frozen=True, eq=False)
class Region:
    """A neighbourhood D_δ(q) and the radius R_q beyond which the neighbourhood contains no point of a local path.

    The *binding* tokens are those of smallest margin μ along q: the tokens that tie with α (μ = 0) or, without ties,
    the directional neighbours, for which μ is q's directional margin θ. The slopes c_i, the gaps g_it and S_low, S_high
    are those of :mod:`.directional_risk`; B is :attr:`.Costs.reach`.

    Attributes:
        q, better: the direction q, and a direction x* of lower risk, which has the margin θ*.
        costs: the costs of tokens other than α.
        narrow: the cone of :func:`narrow_cone`.
        delta: the radius δ of the neighbourhood.
        radius: the radius R_q.
        margin: the smallest margin of q over binding tokens: μ in (A1), (B), θ in (A2).
        near: the bound on the margin of a binding token in the neighbourhood: at most μ + Bδ in (A1), (B), at least θ −
            Bδ in (A2).
        log_weight: in (A1), (B) the logarithm of w, the number of binding tokens times their least c_i g_it; in (A2)
            that of w* = Σ c_i |g_it| over the tokens of smallest margin along x*, which score higher than α.
        against: in (A1), (B) the smallest margin θ⁻ of q over tokens that score higher than α; in (A2) the smallest
            margin of x* over tokens that score lower.
        first: the smallest radius at which the better direction is used: 0 in (A1), (B), R* in (A2).
    """

    q: Direction
    better: Direction
    costs: Costs
    narrow: Cone
    delta: float
    radius: float
    margin: Numbers
    near: float
    log_weight: Numbers
    against: Numbers
    first: float

    @property
    def beyond(self) -> Float64[np.ndarray, "r"]:
        """The radii, from just beyond R_q to 10⁶ R_q, at which risks are compared and which float64 resolves."""
        return resolved_radii(self.costs, np.array(FACTORS) * max(self.radius, self.narrow.radius))

    @property
    def nearer(self) -> Float64[np.ndarray, "r"]:
        """The radii, multiples of 1/(margin of q), at which inequalities that hold at every radius are tried."""
        unit = 1 / self.q.margin if math.isfinite(self.q.margin) else 1 / self.costs.reach
        return np.array(NEARER) * unit

    def decidable(self, norms: Float64[np.ndarray, "r"]) -> Bool[np.ndarray, "r"]:
        """Return the mask of the radii ``norms`` at which float64 can compare risks: where :meth:`noise` is below 1."""
        return np.asarray(self.noise(norms) < 1.0)

    def noise(self, norms: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
        """Return 8 (d + 8) eps R B, eight times the rounding error of R·margin, at radii R = ``norms``."""
        return 8 * (self.costs.problem.d + 8) * EPS * norms * self.costs.reach

    def hunt_points(
        self, under_test: Implementation, rng: np.random.Generator, radii: Float64[np.ndarray, "r"]
    ) -> tuple[Numbers, Numbers]:
        """Return points p of low risk with p/R in D_δ(q), and bounds of |margin at p − margin at R q̄|, at the radii R.

        The points p have shape (r, m, d). The bounds, the smaller of B‖p − R q̄‖ and B R δ, have shape (r, m).
        """
        costs = self.costs
        excess = signed_excess(costs.problem, costs.alpha, under_test)
        hints = np.concatenate([costs.rows[costs.gaps != 0], self.better.unit[None]])
        points = with_unit_rounding(lowest_in_neighbourhood(excess, self.q.unit, self.delta, radii, hints, rng), 4)
        distance = np.linalg.norm(points - along(self.q, radii)[:, None], axis=-1)
        # Rounding may move the points out of the neighbourhood by a relative (d + 8) eps. The bound ``farthest``
        # depends on δ only, not on the direction under test.
        farthest = radii[:, None] * (self.delta * (1 + (costs.problem.d + 8) * EPS))
        return points, costs.reach * np.minimum(distance, farthest)


class BeatenByDirection(Region):
    """Cases (A1) and (B): the point R x* has a lower risk than R x for every x ∈ D_δ(q) and R > R_q."""

    @staticmethod
    def is_better(better: Direction, q: Direction, costs: Costs) -> bool:
        """Decide exactly whether ``better`` selects only α, with a larger margin than q has for its binding tokens."""
        if not better.unique or not np.array_equal(better.best(costs.problem.scores), costs.alpha):
            return False
        return not q.unique or unit_difference(better.least, better, q.least, q) > 0

    @classmethod
    def of(
        cls, q: Direction, better: Direction, costs: Costs, binding: Bool[np.ndarray, "n T"], cone: Cone
    ) -> BeatenByDirection:
        """Return the neighbourhood of q in which R x has a higher risk than R x*, x* = ``better``, at every R > R_q."""
        bound = NearestTokens.among(q, costs, binding)
        higher = NearestTokens.among(q, costs, costs.higher)
        log_weight = np.log(exact(np.count_nonzero(binding))) + np.min(costs.log_smallest[binding])
        to_higher = unit_difference(higher.least, q, bound.least, q)
        gain = unit_difference(better.least, better, bound.least, q)
        delta = min(_safe_delta(q, costs, binding, lower=True), gain / (4 * costs.reach))
        drift = costs.reach * delta
        constant = LOG2 + costs.log_T - log_weight
        radius = max(
            crossing(constant + costs.log_high, to_higher - 2 * drift), crossing(constant + costs.log_low, gain - drift)
        )
        wide = _safe_delta(q, costs, binding, lower=True)
        safe = crossing(constant + costs.log_high, to_higher - 2 * costs.reach * wide)
        near = float(bound.margin.value) + drift
        return cls(
            q, better, costs, cone.beyond(safe), delta, radius, bound.margin, near, log_weight, higher.margin, 0.0
        )

    def norm_at_least(self, norms: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
        """Return the lower bound (Rθ* − log(2T S_low/w))/(μ + Bδ') of ‖p̄(R)‖ for a path in the narrow cone.

        The radii R are ``norms``. The other symbols are those of :class:`Region`; δ' bounds ‖x − q̄‖ in the narrow cone.
        """
        wide = math.sqrt(2 * self.narrow.mu)
        slope = self.near + self.costs.reach * max(wide - self.delta, 0.0)
        return (norms * self.better.margin - self._constant) / slope

    @property
    def _constant(self) -> float:
        """The constant log(2T S_low/w) of the bounds, with the symbols of :class:`Region`."""
        return float(value_of(LOG2 + self.costs.log_T + self.costs.log_low - self.log_weight))

    def log_lead(self, norms: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
        """Return lower bounds of log((L(Rx) − L_α)/(L(Rx*) − L_α)) for x in the neighbourhood and R = ``norms``."""
        return norms * (self.better.margin - self.near) - self._constant

    def decidable(self, norms: Float64[np.ndarray, "r"]) -> Bool[np.ndarray, "r"]:
        """Return the mask of the radii ``norms`` that are at most R_q, or at which float64 can compare the risks."""
        return np.asarray((norms <= self.radius) | (self.noise(norms) < self.log_lead(norms)))


class BeatenByPoint(Region):
    """Case (A2): L(R* x*) < L_α, and L(Rx) > L(R* x*) for all x ∈ D_δ(q) and R > R_q."""

    @staticmethod
    def is_better(better: Direction, q: Direction, costs: Costs) -> bool:
        """Decide exactly whether ``better`` selects only α, and its tokens of smallest margin score higher than α."""
        if not better.unique or not np.array_equal(better.best(costs.problem.scores), costs.alpha):
            return False
        high, low = (NearestTokens.among(better, costs, mask).least for mask in (costs.higher, costs.lower))
        return high is not None and (low is None or high < low)

    @classmethod
    def of(
        cls, q: Direction, better: Direction, costs: Costs, binding: Bool[np.ndarray, "n T"], cone: Cone
    ) -> BeatenByPoint:
        """Return the neighbourhood of q in which R x has a higher risk than R* x*, x* = ``better``, if R > R_q."""
        high, low = (NearestTokens.among(better, costs, mask) for mask in (costs.higher, costs.lower))
        constant = LOG2 + costs.log_T - high.log_weight
        gap = unit_difference(low.least, better, high.least, better)
        first = max(cone.radius * (1 + 2.0**-20), crossing(constant + costs.log_low, gap) * (1 + 2.0**-20))
        delta = _safe_delta(q, costs, binding, lower=False)
        near = q.margin - costs.reach * delta
        # Rounded up generously.
        radius = float(value_of(constant + costs.log_high + first * better.margin)) / near * (1 + 2.0**-20)
        margin = with_unit_rounding(q.margin)
        return cls(q, better, costs, cone, delta, max(radius, first), margin, near, high.log_weight, low.margin, first)
