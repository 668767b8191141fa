"""The cone that gradient descent cannot leave, with the μ and R of Theorem 3.

The notation is that of :mod:`.local_constants` (P = ‖p_mm‖, rows g, weights ω, bounds u, C⁻, C⁺, κ); p = ζ p_mm + z
with z ⊥ p_mm, and τ is the tangent of the half-angle of cone_μ.

**A cone with another tip.** Gradient descent converges to a ray w + ζ p_mm whose offset w makes ω e^{−g·w}
proportional to the duals λ. A cone around that ray is invariant much earlier than one around p_mm. Let
  K = {p : cos(p − a, p_mm) ≥ 1 − μ},    a = w + ζ_w p_mm,    ζ_w = |w|/(τP),
that is |z − w| ≤ τPζ − |w|. So K ⊂ cone_μ, and all bounds of Lemma 7 in cone_μ hold in K. In L3 only ω changes, because
g·p = g·a + g·(p − a): with p' = p − a, ρ' = ‖p'‖/P, ν' = 1 − cos(p', p_mm) and weights ω e^{−g·a}
  −⟨∇L(p), p'/‖p'‖⟩ ≤ (1 + κ/ρ' − ν')(−⟨∇L(p), p̄_mm⟩),                                                  (L3')
where κ is exponentially small at the offset. w = 0 gives Lemma 7's own cone. The bounds hold for every w; the w that
gives the smallest radius is chosen among the minimisers of log Σ_good ω e^{−ρ(m−1) − g·w} + s|w|²/2 for several s and
ρ.

**Invariance.** h(p) = ⟨p', p̄_mm⟩ − (1−μ)‖p'‖ = ‖p'‖(μ − ν') is ≥ 0 exactly on K. Since
‖p' + Δ‖ ≤ ‖p'‖ + ⟨Δ, p̄'⟩ + ‖Δ‖²/(2‖p'‖), a descent step Δ has by (L3')
  h(p + Δ) ≥ h(p) + [1 − (1−μ)(1 + κ/ρ' − ν')] ⟨Δ, p̄_mm⟩ − (1−μ)‖Δ‖²/(2‖p'‖).                         (***)
Let κ/ρ' ≤ (15/8)μ. If ν' ≥ (15/16)μ the bracket in (***) is ≥ μ/16, and the step stays in K when ‖Δ‖²/‖p'‖ ≤ (μ/8)⟨Δ,
p̄_mm⟩; if ν' < (15/16)μ it does when 2‖Δ‖ ≤ (μ/16)‖p'‖. For Δ = −η∇L both follow from L2:
  η (C⁺)² max u ≤ (μ/8) ρ'P C⁻    and    32 η C⁺ max u ≤ μ ρ'P.
ζ increases (L1), and ρ' ≥ ζ − ζ_w: conditions at the start are enough. (The paper requires π = κ/ρ ≤ μ/2 at w = 0,
because its proof does not use that the support margins average to 1 − μ at the boundary of the cone.)

**Start.** C_{μ/4,R} ⊂ K ∩ {ζ ≥ ζ_0} when R = ζ_0 P/(1 − μ/4) and ζ_0 ≥ 2|w|/((τ − τ_0)P), τ_0 the tangent for μ/4.
So GD from C_{μ/4,R} never leaves cone_μ; there is no stationary point in it (L1), and:

**Norm.** Z = ⟨p, p̄_mm⟩ grows by at least η C e^{−Z/P} each step (L1 for q = p_mm, C = φω_S/(nP)). As
e^{x+y} ≥ e^x(1 + y), after t steps ‖p(t)‖ ≥ Z(t) ≥ P log(e^{Z(0)/P} + ηCt/P) → ∞.

**Direction.** (L3') at every step: ⟨Δ, p̄_mm⟩ ≥ ⟨Δ, p̄'⟩/(1 + π'), π' = κ/ρ' − ν', and
⟨Δ, p̄'⟩ ≥ ‖p' + Δ‖ − ‖p'‖ − ‖Δ‖²/(2‖p'‖). Summed, this bounds ⟨p'(t), p̄_mm⟩/‖p'(t)‖ from below by something that
tends to one, since π' → 0 and Σ‖Δ‖² < ∞.

**Flow.** dν'/d log ρ' = (1 − ν') − ⟨ṗ, p̄_mm⟩/⟨ṗ, p̄'⟩ ≤ κ/ρ' − 2ν' by (L3') and 1/(1+x) ≥ 1 − x, hence
  ν'ρ'² ≤ ν'_0 ρ'_0² + κ(ρ' − ρ'_0)    and    |z| ≤ |w| + P√(2ν'ρ'²):
1 − cos(p, p_mm) falls like 1/‖p‖ at least, and like 1/‖p‖² as long as κ(ρ' − ρ'_0) stays small.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 3, Appendix B.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.curves.bisection import smallest
from theorems.curves.cone_points import is_followable, is_resolvable
from theorems.token_selection.local_paths.local_constants import Apex, LocalConstants, local_constants
from theorems.token_selection.local_paths.log_sum_exp_minimiser import log_sum_exp_minimiser

SLACK = 1 / 16
"""The 1/16 in the proof of invariance: the share of μ that its conditions keep in reserve near the cone's boundary."""

SAFETY = 0.99
"""The share of the longest allowed step that is taken, so that rounding cannot move an iterate out of the cone."""

PENALTIES = (1e-1, 1e-2, 1e-4, 1e-7, 1e-11)
"""The penalties s of |w|² for which offsets w of the tip are computed, in units of (length of the longest row)²."""

LEVELS = (1.0, 64.0)
"""The values of ρ, in units of the base radius ρ_0, for which offsets w of the tip are computed: as ρ grows, the
weights of tokens with margins slightly above 1 vanish.
"""


@dataclass(frozen=True, eq=False)
class InvariantCone:
    """The set K ∩ {ζ ≥ ζ_0} that gradient descent with one step size cannot leave, in the notation of the module.

    Attributes:
        constants: the constants of Lemma 7; ``constants.mu`` is the opening μ of K and of the cone around p_mm that
            contains K.
        apex: the tip a of the cone K.
        height: the least height ζ_0 of points of the set, where the height of p is ζ = ⟨p, p_mm⟩/‖p_mm‖².
        kappa: the constant κ of (L3') on the set.
    """

    constants: LocalConstants
    apex: Apex
    height: float
    kappa: float

    def contains(self, p: Float64[np.ndarray, "d"]) -> bool:
        """Return whether p certainly lies in the set K ∩ {ζ ≥ ζ_0}, despite rounding."""
        constants, from_tip = self.constants, p - self.tip
        if float(p @ constants.solution.direction) < self.height * constants.norm:
            return False
        difference = from_tip / np.linalg.norm(from_tip) - constants.solution.direction
        return constants.problem.d == 1 or float(difference @ difference) / 2 <= constants.mu * (1 - 1e-4)

    @property
    def start_mu(self) -> float:
        """The opening μ/4 of the cone around p_mm in which starts lie."""
        return self.constants.mu / 4

    @property
    def radius(self) -> float:
        """The radius R such that all points of cone_{μ/4} with ‖p‖ ≥ R lie in the set."""
        return self.constants.norm * self.height / (1 - self.start_mu) * (1 + 1e-9)

    @property
    def tip(self) -> Float64[np.ndarray, "d"]:
        """The tip a of the cone K, (d,)."""
        return self.apex.offset + self.apex.height * self.constants.solution.p

    def longest_step(self, p: Float64[np.ndarray, "b d"], unit: Float64[np.ndarray, "b d"]) -> Float64[np.ndarray, "b"]:
        """Return the longest step Δ from p along ``unit`` that the proof of invariance allows, in units of ‖p'‖, (b,).

        p' = p − a is the vector from the tip. With A = ⟨unit, p̄_mm⟩, η = ‖Δ‖/‖p'‖ and c = [1 − (1−μ)(1 + κ/ρ' − ν')] A,
        p + Δ is in the cone by (***) if (L3') holds at p and μ − ν' + η c − (1−μ)η²/2 ≥ 0. The result is the larger
        root η of this polynomial.
        """
        constants, axis, mu = self.constants, self.constants.solution.direction, self.constants.mu
        from_tip = p - self.tip
        length = np.sqrt(np.sum(from_tip * from_tip, axis=1))
        difference = from_tip / length[:, None] - axis
        nu = np.sum(difference * difference, axis=1) / 2
        drift = (1 - (1 - mu) * (1 + self.kappa * constants.norm / length - nu)) * (unit @ axis)
        root = (drift + np.sqrt(drift * drift + 2 * (1 - mu) * np.maximum(mu - nu, 0.0))) / (1 - mu)
        return np.asarray(SAFETY * np.maximum(root, 0.0))

    def lateral_squared(self, start: Float64[np.ndarray, "d"], lengths: float) -> float:
        """Return the proven bound ν'_0ρ'_0² + κ(ρ' − ρ'_0) of ν'ρ'² on the flow from ``start``, at ρ' = ``lengths``.

        ρ' = ‖p − a‖/‖p_mm‖ and ν' = 1 − cos(p − a, p_mm) with the tip a; ρ'_0 and ν'_0 are the values at the start.
        """
        from_tip, norm = start - self.tip, self.constants.norm
        size = float(np.linalg.norm(from_tip))
        difference = from_tip / size - self.constants.solution.direction
        begin = size / norm
        squared = float(difference @ difference) / 2 * begin**2 if from_tip.size > 1 else 0.0
        return squared + self.kappa * max(lengths - begin, 0.0)

    def flow_angle(self, start: Float64[np.ndarray, "d"], goal: float) -> float:
        """Return a proven bound of the angle between p_mm and the flow from ``start`` at ‖p‖ = ``goal``."""
        norm, across = self.constants.norm, float(np.linalg.norm(self.apex.offset))
        lengths = (goal + float(np.linalg.norm(self.tip))) / norm
        lateral = across + norm * math.sqrt(2 * self.lateral_squared(start, lengths))
        return math.asin(min(1.0, lateral / goal))


def tangent(mu: float) -> float:
    """Return the tangent of the angle whose cosine is 1 − μ."""
    return math.sqrt(mu * (2 - mu)) / (1 - mu)


def invariant_cone(constants: LocalConstants, log_step: float) -> InvariantCone | None:
    """Return the invariant cone of smallest radius for step sizes up to e^{log_step}, among cones with several tips.

    The result is None if all radii are beyond the range of float64.
    """
    best: InvariantCone | None = None
    for apex in _apexes(constants):
        best = _better(constants, apex, log_step, best)
    return best


def log_step_of(case: Case) -> float:
    """Return log η, where the step size η is the array ``eta`` of the case, or 1/L_p if there is no such array."""
    if "eta" in case.arrays:
        return math.log(float(case.arrays["eta"]))
    return -case.problem.log_smoothness


def with_cone(case: Case) -> Case:
    """Return the case with μ and R of its cone of starts, if they exist, as arrays ``cone_mu`` and ``cone_radius``."""
    normal = case.normalise()
    constants = _constants_of(normal, max_margin(normal.problem.exact_keys, normal.chosen_tokens))
    cone = None if constants is None else invariant_cone(constants, log_step_of(normal))
    if cone is None:
        return case
    arrays = {"cone_mu": np.array(cone.start_mu), "cone_radius": np.array(cone.radius / case.problem.key_scale)}
    return case.replace(arrays=MappingProxyType({**case.arrays, **arrays}))


def flow_is_resolved(case: Case) -> bool:
    """Return whether float64 can follow the gradient flow in the invariant cone for the step size η = 1/L_p."""
    normal = case.normalise()
    constants = _constants_of(normal, max_margin(normal.problem.exact_keys, normal.chosen_tokens))
    if constants is None or not is_resolvable(constants, constants.base_rho):
        return False
    cone = invariant_cone(constants, -normal.problem.log_smoothness)
    return cone is not None and is_followable(constants, cone.height)


def _constants_of(case: Case, solution: MaxMargin | Infeasible) -> LocalConstants | None:
    """Return the constants of Lemma 7 for a solution; None if ATT-SVM is infeasible."""
    return None if isinstance(solution, Infeasible) else local_constants(case.problem, solution)


def cone_for_flow(constants: LocalConstants, start: Float64[np.ndarray, "d"], goal: float) -> InvariantCone | None:
    """Return the cone that contains ``start`` and proves the smallest angle of the flow to p_mm at norm ``goal``.

    The result is None if no cone contains the start. Steps of a flow have no second-order term, so the flow stays in a
    cone with κ/ρ' ≤ 2μ.
    """
    height = float(start @ constants.solution.direction) / constants.norm
    best, closest = math.inf, None
    for apex in _apexes(constants):
        if not height > max(constants.base_rho, 1.001 * apex.height):
            continue
        cone = InvariantCone(constants, apex, height * (1 - 1e-12), constants.kappa(height * (1 - 1e-12), apex))
        if not cone.kappa <= 2 * (1 - SLACK) * constants.mu * (height - apex.height) or not cone.contains(start):
            continue
        angle = cone.flow_angle(start, goal)
        if angle < best:
            best, closest = angle, cone
    return closest


def _better(constants: LocalConstants, apex: Apex, log_step: float, best: InvariantCone | None) -> InvariantCone | None:
    """Return the cone with this tip if its least height is below 0.9 times that of ``best``, otherwise ``best``."""
    mu, norm = constants.mu, constants.norm
    across = float(np.linalg.norm(apex.offset))
    room = tangent(mu) - tangent(mu / 4)
    lowest = max(constants.base_rho, 2 * across / (room * norm) * 1.01, 1.01 * apex.height)

    def invariant(rho: float) -> bool:
        length = rho - apex.height
        log_length = math.log(length * norm)
        upper, top = constants.log_upper(rho), float(constants.bounds(rho).log_u.max())
        if log_step + 2 * upper + top - constants.log_lower(rho) > math.log(2 * SLACK * mu) + log_length:
            return False
        if log_step + upper + top > math.log(SLACK * mu / 2) + log_length:
            return False
        return constants.kappa(rho, apex) <= 2 * (1 - SLACK) * mu * length

    if best is None:
        height = smallest(invariant, lowest)
        if not height < 1e250:
            return None
    else:
        limit = 0.9 * best.height
        if not lowest < limit or not invariant(limit):
            return best
        height = smallest(invariant, lowest, limit)
    return InvariantCone(constants, apex, height, constants.kappa(height, apex))


def _apexes(constants: LocalConstants) -> list[Apex]:
    """Return the candidate tips: 0, and those with the offsets for several penalties and values of ρ."""
    rows, good, d = constants.rows, constants.good, constants.problem.d
    axis = constants.solution.direction
    apexes = [Apex(np.zeros(d), np.zeros(good.shape), 0.0)]
    if d == 1:
        return apexes
    selected = rows[good] - (rows[good] @ axis)[:, None] * axis
    size = float(np.linalg.norm(selected, axis=1).max())
    if size == 0:
        return apexes
    high = constants.bounds(max(constants.base_rho, 50.0)).log_high[good]
    beyond = constants.solution.margins[good] - 1
    for level in LEVELS:
        log_weights = high - level * constants.base_rho * beyond
        offset = np.zeros(d)
        for penalty in PENALTIES:
            offset = log_sum_exp_minimiser(selected / size, log_weights, penalty, offset)
            w = offset / size - (offset @ axis) / size * axis
            height = float(np.linalg.norm(w)) / (tangent(constants.mu) * constants.norm)
            apexes.append(Apex(w, rows @ w, height))
    return apexes
