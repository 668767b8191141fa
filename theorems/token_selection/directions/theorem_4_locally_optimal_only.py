"""Theorem 4 (Theorem 7 of the appendix): local regularization paths reach no direction but locally optimal ones.

Main results: each of the three cases of the proof constructs a direction or a point that has lower risk than a whole
neighbourhood of q. The construction is checked exactly; the risks are compared at finite radii. The conclusion is
checked on local paths: their direction does not tend to q, or their norm stays bounded.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 4, Appendix B.5.2;
:mod:`.directional_risk`, :mod:`.excluded_neighbourhood`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis.strategies import SearchStrategy
from numpy.linalg import norm

from generators.case import Case
from generators.direction_cases import direction_cases, directions_for
from generators.numbers import MODERATE
from reference_attention.better_directions import best_token_direction, higher_neighbours_direction, tilted_direction
from reference_attention.directions import Direction, direction
from reference_attention.floats import EPS
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.direction_certificate import DEFINITION_3, as_defined
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT, tolerance
from theorems.rounding.sized_numbers import Sized, at_least_in_units
from theorems.token_selection.directions.directional_risk import Costs, along, resolved_radii, with_unit_rounding
from theorems.token_selection.directions.excluded_neighbourhood import (
    BeatenByDirection,
    BeatenByPoint,
    Cone,
    Region,
    cone_of,
    narrow_cone,
)
from theorems.token_selection.directions.local_path_points import LocalPathUnderTest

PATH_NORM = tolerance(
    "path-norm",
    "8 (d + 8) eps B (1 + 1/(μ + Bδ))",
    "risks have the rounding error of their exponents, (d + 8) eps R B; the norm at which two risks are equal has"
    " this error divided by the margin there",
)

LOWER, HIGHER = "all binding tokens score lower: cases (A1), (B)", "a binding token scores higher: case (A2)"
BEYOND_RQ = "all binding tokens score lower, and float64 resolves the risks beyond R_q"
AT_R_AND_BEYOND = "a binding token scores higher, and float64 resolves the risks at R* and beyond R_q"
WIDE, NARROW = (f"float64 can compare the risks at some radius in the {cone} cone" for cone in ("given", "narrow"))
BETTER_DIRECTION = sharper("better-direction")
RISK_ANYWHERE = sharper("neighbourhood-risk-anywhere", when=LOWER)
BETTER_RISK = sharper("better-direction-risk", when=LOWER)
IS_BEATEN = sharper("neighbourhood-is-beaten", when=BEYOND_RQ)
RISK = sharper("neighbourhood-risk", when=BEYOND_RQ)
BETTER_RISK_ANYWHERE = sharper("better-direction-risk-anywhere", when=HIGHER)
GAIN = sharper("neighbourhood-gain", when=HIGHER)
POINT_IS_BELOW = sharper("finite-point-is-below", when=AT_R_AND_BEYOND)
IS_OUTDONE = sharper("neighbourhood-is-outdone", when=AT_R_AND_BEYOND)
LEAVES = stated_claim("path-leaves-or-stays-bounded", when=WIDE)
NARROW_LEAVES = stated_claim("narrow-path-leaves-or-stays-bounded", when=NARROW)
IN_CONE = premise("path-is-in-the-cone", when=WIDE)
NARROW_IN_CONE = premise("narrow-path-is-in-the-cone", when=NARROW)
IS_LOWEST = premise("path-is-no-higher-than-its-seeds", when=WIDE)
NARROW_IS_LOWEST = premise("narrow-path-is-no-higher-than-its-seeds", when=NARROW)
NORM_GROWS = sharper(
    "narrow-path-norm-grows", when="float64 can compare the risks in the narrow cone, in case (A1) or (B)"
)
NORM_BOUNDED = sharper(
    "narrow-path-norm-bounded", when="float64 can compare the risks in the narrow cone, in case (A2)"
)

PATH_RADII = (1e1, 1e2, 1e3, 1e4)
"""The radii of the path in units of 1/θ*, where θ* is the margin of the better direction x*."""
BEYOND = (2.0,)
"""Additional radii of the path, in units of R_q, from which on no point of the path has a direction near q."""
FARTHEST = 1e9
"""The largest radius of the path, in units of 1/θ*, where θ* is the margin of the better direction x*."""

ASSUMPTIONS = (
    "well-behaved-loss",
    "distinct-scores",
    "general-position",
    "direction-given",
    "not-locally-optimal-direction",
)


def _cases() -> SearchStrategy[Case]:
    return direction_cases(large=MODERATE)


@statement(
    "theorem-4",
    "Local regularization paths reach nothing but locally optimal directions",
    source="Theorem 4; Appendix B.5.2, Theorem 7",
    claims=(
        DEFINITION_3,
        BETTER_DIRECTION,
        RISK_ANYWHERE,
        BETTER_RISK,
        IS_BEATEN,
        RISK,
        BETTER_RISK_ANYWHERE,
        GAIN,
        POINT_IS_BELOW,
        IS_OUTDONE,
        LEAVES,
        NARROW_LEAVES,
        IN_CONE,
        NARROW_IN_CONE,
        IS_LOWEST,
        NARROW_IS_LOWEST,
        NORM_GROWS,
        NORM_BOUNDED,
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=directions_for,
    aliases=("theorem-7",),
    kernel=BELOW_ROUNDING,
    needs={"direction-given": "the theorem is about a given direction q"},
)
def theorem_4(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let scores be distinct within each input, keys in general position, and q a unit vector.

    Let q not be the direction of p_mm(α) for any locally optimal α. For all ε, R0 > 0 the local path p̄(R) = argmin of L
    over C_{ε,R0}(q) ∩ {‖p‖ ≤ R} has bounded norm, or p̄(R)/‖p̄(R)‖ does not tend to q; either way p̄(R)/R does not tend
    to q.

    Notation: α_i is the selected token (the best of them where several tie); θ is the directional margin of q, a_it the
    margins along x; M⁺ is the pseudo-inverse of M, and 1 the all-ones vector; D_δ(q) = {x : ‖x‖ = 1, ‖x − q‖ ≤ δ}; B =
    max ‖k_iα_i − k_it‖, so that margins on D_δ(q) differ from those of q by at most Bδ; S_low, S_high, c_i and (*) as
    in :mod:`.directional_risk`; θ⁻ is the smallest margin of q over tokens that score above α_i. The *binding* tokens
    are those of smallest margin μ: the ties (μ = 0), or without ties the directional neighbours (μ = θ).

    **(A1) neighbour-optimal, (B) ties.** All binding tokens score lower, so θ⁻ > μ. Let x* select α with margin θ* > μ:
    in (A1) x* is q tilted towards p_mm(α), which exists because q separates α, and the margin of x* is larger because q
    is not max-margin; in (B) x* is q + τ M⁺1 with a small τ > 0, M the rows of the ties. With w = (number of binding
    tokens)·min c_i g_it, for δ = min(θ⁻ − μ, θ* − μ, 2θ)/(4B) and x ∈ D_δ(q):

        n (L(Rx) − L_α) ≥ w e^{−R(μ+Bδ)}/T − S_high e^{−R(θ⁻−Bδ)},    n (L(Rx*) − L_α) ≤ S_low e^{−Rθ*}.

    *Derivation.* Without ties all margins of x are ≥ θ − Bδ ≥ 0, so s_it ≥ e^{−R(θ+Bδ)}/T at a neighbour of q. With
    ties let A be the sum of e^{−Ra} over the m tied tokens of an input and C that over the others; C ≤ T−1−m, and
    A/(1+A+C) grows with A ≥ m e^{−RBδ}, hence is ≥ m e^{−RBδ}/T, whichever of the tied tokens x selects. A
    higher-scoring token has s_iu ≤ s_iu/s_iα ≤ e^{−R(θ⁻−Bδ)}. Then (*). So from

        R_q = max( log(2T S_high/w)/(θ⁻ − μ − 2Bδ), log(2T S_low/w)/(θ* − μ − Bδ) )

    on, L(Rx*) < L(Rx) for *every* x ∈ D_δ(q): p̄(R) has norm at most R_q or is δ away from q. (The paper's footnote,
    that Lemma 8 may be applied uniformly because its radius depends only on the margin difference, needs this repair:
    the radius depends on θ⁻ − μ as well, which for directions near q is bounded below only once δ is small.) This one
    argument proves both (A1) and (B), with μ = 0 in (B).

    If moreover the cone lies in D_{δ'}(q), δ' = min(θ⁻ − μ, 2θ)/(4B), and R0 ≥ log(2T S_high/w)/(θ⁻ − μ − 2Bδ'), the
    risk is above L_α on all of it, and comparing with R x*: ‖p̄(R)‖ ≥ (Rθ* − log(2T S_low/w))/(μ + Bδ') → ∞. In that
    cone the norm grows, so it is the direction that stays δ away from q.

    **(A2) not neighbour-optimal.** With M the rows of the neighbours and N⁺ the higher-scoring of them, q + τ
    M⁺(−1_{N⁺}) has only N⁺ as its tokens of smallest margin θ* (:mod:`reference_attention.better_directions`). Write x*
    for this direction, normalized, and w* for Σ c_i |g_it| over N⁺; Lemma 9 gives a finite R* with L(R* x*) ≤ L_α − E,
    E = w* e^{−R*θ*}/(2Tn). For δ = θ/(2B) and x ∈ D_δ(q), n (L(Rx) − L_α) ≥ −S_high e^{−R(θ−Bδ)}, which exceeds −nE for
    R > R_q = (log(2T S_high/w*) + R*θ*)/(θ − Bδ). So p̄(R), R ≥ R*, has norm at most R_q or is δ away from q; if the
    cone lies in D_δ(q) the norm stays bounded by R_q.

    **In float64.** The bounds on L(Rx) and L(Rx*) hold at every radius, without the factor 2: (A1), (B) as displayed,
    in (A2) n (L(Rx*) − L_α) ≤ S_low e^{−Rθ⁺} − w* e^{−Rθ*}/T with θ⁺ the least margin of x* over lower-scoring tokens.
    These bounds are tried from R = 1/θ on; the risks are compared beyond R_q, at the radii that float64 resolves
    (:func:`.directional_risk.resolved_radii`). Where q is so close to an LMM direction that float64 does not resolve
    the risks beyond R_q, only the exact construction, these bounds and the path are claimed.

    **The path** is searched in the given cone, where either branch may occur, and in a cone so narrow that the branch
    is certain.
    """
    problem, q = case.problem, case.arrays["q"]
    reported = under_test[direction](problem.keys, q)
    yield from premises(as_defined(reported, problem.keys, q))
    costs, cone = Costs.of(problem, reported.best(problem.scores)), cone_of(case, reported)
    binding = reported.neighbours if reported.unique else reported.selected & (costs.gaps != 0)
    if not binding.any() or (reported.unique and reported.least is None):
        yield Claim(BETTER_DIRECTION, Form.EXACT, -1.0, 0.0, EXACT, "no binding token was reported for q")
        return
    kind = BeatenByDirection if (costs.gaps[binding] > 0).all() else BeatenByPoint
    narrow = narrow_cone(cone, reported, costs, binding, lower=kind is BeatenByDirection)
    better, part = better_direction(reported, costs, kind, under_test, narrow.mu)
    good = better is not None and kind.is_better(better, reported, costs)
    claim = at_least(BETTER_DIRECTION, Form.EXACT, float(good), 1.0, rounding=0.0, why=EXACT, points="direction")
    yield replace(claim, branch=f"case {part} of the proof")
    if better is None or not good:
        return
    region = kind.of(reported, better, costs, binding, narrow)
    if isinstance(region, BeatenByDirection):
        yield from beaten_by_direction_claims(region, under_test, case.rng())
    elif isinstance(region, BeatenByPoint):
        yield from beaten_by_point_claims(region, under_test, case.rng())
    paths = ((cone, LEAVES, IN_CONE, IS_LOWEST), (region.narrow, NARROW_LEAVES, NARROW_IN_CONE, NARROW_IS_LOWEST))
    for within, leaves, in_cone, lowest in paths:
        path = local_path(region, within, under_test, case.seed, in_cone, lowest)
        if path is not None:
            yield from on_the_path(region, path, leaves)
            if within is region.narrow:
                yield in_the_narrow_cone(region, path)


def better_direction(
    q: Direction, costs: Costs, kind: type[Region], under_test: Implementation, mu: float
) -> tuple[Direction | None, str]:
    """Return x*, in the cone of width ``mu`` around q, and the case of the proof that constructs x*.

    p_mm is computed for the rounded keys, ``problem.keys``, with which margins are compared: the p_mm of unrounded keys
    would solve another problem, and could have a smaller margin than q.
    """
    keys, alpha = costs.problem.keys, costs.alpha
    if kind is BeatenByPoint:
        return higher_neighbours_direction(keys, q, costs.problem.scores, alpha, mu), "(A2)"
    if not q.unique:
        return best_token_direction(keys, q, alpha, mu), "(B)"
    solution = under_test[max_margin](keys, alpha)
    return tilted_direction(keys, q, solution.exact.p, mu) if isinstance(solution, MaxMargin) else None, "(A1)"


def beaten_by_direction_claims(
    region: BeatenByDirection, under_test: Implementation, rng: np.random.Generator
) -> Iterator[Claim]:
    """Yield the claims of cases (A1) and (B), in which the direction x* has a lower risk than the neighbourhood of q.

    The claims are L(Rx*) < L(Rx) for all x in the neighbourhood and R > R_q, and the bounds of L(Rx*) and L(Rx), also
    at radii below R_q. (Symbols: see :class:`.Region`.)
    """
    costs, w, unit_of_points = region.costs, region.log_weight, "point of the neighbourhood"
    nearer, beyond = region.nearer, region.beyond
    R = np.concatenate([nearer, beyond])
    near, far = np.s_[: nearer.size], np.s_[nearer.size :]
    points, drift = region.hunt_points(under_test, rng, R)
    excess = costs.excess(points, under_test, RISK_ANYWHERE)
    better_excess = costs.excess(along(region.better, R)[:, None], under_test, BETTER_RISK)

    # Both bounds at every R, as in theorem_4: n (L(Rx) − L_α) ≥ w e^{−R(μ+Bδ)}/T − S_high e^{−R(θ⁻−Bδ)} and n (L(Rx*) −
    # L_α) ≤ S_low e^{−Rθ*}.
    binding, higher = R[:, None] * region.margin + drift, R[:, None] * region.against - drift
    least = Sized.exp(w - costs.log_T - binding) - Sized.exp(costs.log_high - higher)
    most = Sized.exp(costs.log_low - R[:, None] * with_unit_rounding(region.better.margin))
    yield at_least_in_units(RISK_ANYWHERE, Form.EFFECTIVE, excess[near], least[near], unit_of_points)
    yield at_least_in_units(BETTER_RISK, Form.EFFECTIVE, most, better_excess, "radius")
    if beyond.size == 0:
        return

    # Beyond R_q, R x* has the lower risk, L(Rx) > L(Rx*), and n (L(Rx) − L_α) ≥ w e^{−R(μ+Bδ)}/(2T).
    half = Sized.exp(w - np.log(2 * exact(costs.problem.T)) - binding)
    yield at_least_in_units(IS_BEATEN, Form.EFFECTIVE, excess[far], better_excess[far], unit_of_points)
    yield at_least_in_units(RISK, Form.EFFECTIVE, excess[far], half[far], unit_of_points)


def beaten_by_point_claims(
    region: BeatenByPoint, under_test: Implementation, rng: np.random.Generator
) -> Iterator[Claim]:
    """Yield the claims of case (A2), in which the point R* x* has a lower risk than the neighbourhood of q.

    The claims are L(R* x*) < L_α, L(Rx) > L(R* x*) for all x in the neighbourhood and R > R_q, and the bounds of L(Rx*)
    and L(Rx), also at radii below R_q. (Symbols: see :class:`.Region`.)
    """
    costs, w, unit_of_points = region.costs, region.log_weight, "point of the neighbourhood"
    nearer, beyond, theta = region.nearer, region.beyond, with_unit_rounding(region.better.margin)

    # The bound along x* at every R, as in theorem_4: n (L(Rx*) − L_α) ≤ S_low e^{−Rθ⁺} − w* e^{−Rθ*}/T.
    excess_nearby = costs.excess(along(region.better, nearer), under_test, BETTER_RISK_ANYWHERE)
    most = Sized.exp(costs.log_low - nearer * region.against) - Sized.exp(w - costs.log_T - nearer * theta)
    yield at_least_in_units(BETTER_RISK_ANYWHERE, Form.EFFECTIVE, most, excess_nearby, "radius")

    # The bound in the neighbourhood at every R, as in theorem_4: n (L(Rx) − L_α) ≥ −S_high e^{−R(θ−Bδ)}.
    R = np.concatenate([nearer, beyond])
    points, drift = region.hunt_points(under_test, rng, R)
    excess = costs.excess(points, under_test, GAIN)
    least = -Sized.exp(costs.log_high - (R[:, None] * region.margin - drift))
    yield at_least_in_units(GAIN, Form.EFFECTIVE, excess, least, unit_of_points)
    R = np.array([region.first])
    if beyond.size == 0 or resolved_radii(costs, R).size == 0:
        return

    # The point R* x* lies below L_α, n (L(R*x*) − L_α) ≤ −w* e^{−R*θ*}/(2T), and below the risk in the neighbourhood
    # beyond R_q, L(Rx) ≥ L(R*x*).
    better_excess = costs.excess(along(region.better, R), under_test, POINT_IS_BELOW)
    gain = Sized.exp(w - np.log(2 * exact(costs.problem.T)) - R * theta)
    yield at_least_in_units(POINT_IS_BELOW, Form.EFFECTIVE, -gain, better_excess)
    excess = costs.excess(region.hunt_points(under_test, rng, beyond)[0], under_test, IS_OUTDONE)
    yield at_least_in_units(IS_OUTDONE, Form.EFFECTIVE, excess, better_excess, unit_of_points)


def on_the_path(region: Region, followed: LocalPathUnderTest, leaves: str) -> Iterator[Claim]:
    """Yield the path's premises, and the claim that a point's direction is δ away from q or its norm at most R_q."""
    path = followed.path
    size = norm(exact(path.points), axis=1)
    distance = norm(path.points / size[:, None] - with_unit_rounding(region.q.unit), axis=1)

    # The path is away from q, ‖p̄(R)/‖p̄(R)‖ − q‖ ≥ δ, or bounded, ‖p̄(R)‖ ≤ R_q.
    either = np.maximum(distance / region.delta, region.radius / size)
    claim = at_least(leaves, Form.LIMIT, either, 1.0, points="radius")
    branch = "the norm grows, the direction stays away" if followed.grows else "the norm stays bounded"
    size_and_distance = f"‖p̄(R)‖ = {path.sizes[-1]:.6g} and ‖p̄(R)/‖p̄(R)‖ − q‖ = {distance.value[-1]:.3g}"
    last = f"{size_and_distance} at R = {followed.norms[-1]:.6g}"
    yield replace(claim, detail=f"{branch}: {last}", branch=branch) if math.isfinite(claim.slack) else claim
    yield from premises(followed)


def in_the_narrow_cone(region: Region, followed: LocalPathUnderTest) -> Claim:
    """Claim what is certain in the narrow cone: the norm grows with R in cases (A1) and (B), and is bounded in (A2)."""
    path = followed.path
    if isinstance(region, BeatenByDirection):
        # The norm of the path grows: ‖p̄(R)‖ ≥ (Rθ* − log(2T S_low/w))/(μ + Bδ'), as in theorem_4.
        least, noise = region.norm_at_least(followed.norms), followed.noise * (1 + 1 / region.near)
        rounding = noise / followed.norms + 8 * EPS
        shares = path.sizes / followed.norms, least / followed.norms
        return at_least(NORM_GROWS, Form.LIMIT, *shares, rounding=rounding, why=PATH_NORM, points="radius")
    # The path is bounded, ‖p̄(R)‖ ≤ R_q.
    return at_least(NORM_BOUNDED, Form.LIMIT, region.radius, norm(exact(path.points), axis=1), points="radius")


def local_path(
    region: Region, cone: Cone, under_test: Implementation, seed: int, in_cone: str, lowest: str
) -> LocalPathUnderTest | None:
    """Return the local path in the cone, sought from multiples of x*; None if float64 compares risks at no radius."""
    costs, unit = region.costs, 1 / region.better.margin
    margin_radii = PATH_RADII if cone is region.narrow else PATH_RADII[1::2]
    radii = [*(unit * x for x in margin_radii), *(max(region.radius, cone.radius) * x for x in BEYOND)]
    inner = max(cone.radius, region.first)
    norms = np.array([R for R in radii if inner * 1.5 < R < FARTHEST * unit])
    norms = norms[region.decidable(norms)]
    if norms.size == 0:
        return None
    seeds = np.array([region.better.unit * size for size in (*norms, region.first) if size > 0])
    axis = region.q.unit
    return LocalPathUnderTest.of(
        costs.problem,
        costs.alpha,
        under_test,
        axis,
        cone.mu,
        cone.radius,
        np.unique(norms),
        seeds,
        costs.reach,
        seed,
        in_cone,
        lowest,
    )
