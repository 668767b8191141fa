"""Points at which Theorem 8 is checked (in sublevel sets, minimisers on spheres, the path), and constants for them.

The constants are C0 and C1 of Lemma 14, the costs of weight on single tokens, and the rounding error of log(L − L_*),
where L_* is the risk without weight on non-optimal tokens. Lengths are in units of ‖p_mm‖
(:mod:`theorems.curves.constraints`). For a linear head and one optimal token per input, everything agrees with Theorem
1.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, Lemma 14, Theorem 8.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import minimize

from generators.optimal_sets import LinearMixing
from reference_attention.floats import EPS
from reference_attention.loss import Loss
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.span import differences_to_first, tangential
from reference_attention.svm.max_margin_sets import ChoiceSolution, MaxMarginSets, exact_logits
from theorems.bounded import exact
from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.curves.constraints import Constraints, log_excess, rank_of_neighbours
from theorems.curves.followed_path import Followed, FollowedPath
from theorems.curves.reduced_program import Reduced, tangent_basis
from theorems.curves.sphere import Sphere
from theorems.curves.sublevel_hunt import hunt
from theorems.rounding.attention_at import Numbers

HUNT_BUDGET = 20_000
"""Approximate largest number of floats in one batch of the search for points."""
MOST_FOLLOWED = 3
"""The largest number of solutions of ATT-SVM' from whose rays the path is followed."""
SHARP_RADII = (1e2, 1e3, 1e4, 1e5, 1e6)
"""The radii of the spheres on which the offset of the path from the ray of a solution is predicted, as values of RΘ."""
LARGEST_ROUNDING = 1e-3
"""The largest error of an exponent at which the path still has correct digits."""


def log_slope_bounds(mixing: LinearMixing, loss: Loss) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    """Return log C0_i and log C1_i with C0_i q_i ≤ ℓ(Y_i ψ) − ℓ(ν_i) ≤ C1_i q_i, q_i the weight on non-optimal tokens.

    In the notation of Lemma 14, C0_i and C1_i are c0_i and c1_i times the least and the largest |ℓ'| on [ν_i − c1_i,
    ν_i]. Inputs without a non-optimal token lose nothing; for them the result is +inf and −inf.
    """
    low, high = np.full(len(mixing.nu), np.inf), np.full(len(mixing.nu), -np.inf)
    for i in np.flatnonzero(mixing.mixed).tolist():
        interval = float(mixing.nu[i] - mixing.c1[i]), float(mixing.nu[i])
        low[i] = math.log(mixing.c0[i]) + loss.log_floor(*interval)
        high[i] = math.log(mixing.c1[i]) + loss.log_bound(*interval)
    return low, high


@lru_cache(maxsize=1)
def log_rounding(mixing: LinearMixing, loss: Loss) -> float:
    """Return the rounding error of logarithms of slopes, gaps, weights and their sums.

    κ of Theorem 8, the costs of tokens and log(L − L_*) have this error.
    """
    size = max(float(np.abs(x[mixing.mixed]).max()) for x in log_slope_bounds(mixing, loss))
    return 4 * EPS * (sum(mixing.gaps.shape) + 8) * (1 + size)


def excess_rounding(
    problem: Problem, mixing: LinearMixing, p: Float64[np.ndarray, "*b d"]
) -> Float64[np.ndarray, "*b"]:
    """Return the rounding error that log(L − L_*) of an implementation may have at the points p.

    The error is 2 (d + 4) eps max Σ_j |δk_j p_j|, with the ranges δk_j of the keys' coordinates, for a logit, plus
    :func:`log_rounding`.
    """
    reach = np.max(problem.keys, axis=1) - np.min(problem.keys, axis=1)
    logits = 2 * (problem.d + 4) * EPS * np.max(np.abs(p) @ reach.T, axis=-1)
    return np.asarray(logits + log_rounding(mixing, problem.loss))


def excess_of(
    headed: Implementation,
    problem: Problem,
    mixing: LinearMixing,
    p: Float64[np.ndarray, "m d"],
    claim: str,
    form: Form,
) -> Numbers:
    """Return log(L − L_*) under test with its allowed error, (m,); if the logarithm is NaN, ``claim`` is falsified."""
    excess = log_excess(headed, problem, p)
    if np.isnan(excess).any():
        raise NotANumber(claim, "the excess risk under test is negative or NaN", form)
    return exact(excess).widen(np.where(np.isinf(excess), 0.0, excess_rounding(problem, mixing, p)))


def log_token_costs(mixing: LinearMixing, loss: Loss, *, secants: bool = False) -> Float64[np.ndarray, "n T"]:
    """Return the logarithm of the cost of a small weight on token t, per unit of weight; −inf at optimal tokens.

    The cost is |ℓ'(ν_i)| Σ_j |b_j| φ'_j g_itj, with the weights b_j and activations φ_j of the head's units, and the
    gaps g_itj ≥ 0 between features of optimal tokens and of t.

    Args:
        mixing: the head with its constants.
        loss: the loss ℓ.
        secants: whether to replace φ'_j by the least secant slope of φ_j, for the least cost of any weight on t.
    """
    head = mixing.head
    reach = mixing.gaps.max(axis=1)
    slopes = (
        head.units("lowest_secant", mixing.best, head.signs, reach)
        if secants
        else head.units("slope", mixing.best, head.signs)
    )
    rate = np.sum(mixing.gaps * (np.abs(head.weights) * slopes)[:, None], axis=2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(rate) + loss.log_slope(mixing.nu)[:, None])


def separation(problem: Problem, sets: MaxMarginSets, choice: ChoiceSolution) -> tuple[float, Float64[np.ndarray, "n"]]:
    """Return how far the tokens α lead other optimal tokens at p_mm, and how many optimal tokens have α's key.

    The lead is the least margin over the optimal tokens whose keys differ from α's: 0 for an exact tie, +inf if there
    are none. The number of optimal tokens is given for each input, (n,). Both results are decided over the rationals.
    """
    least, multiplicity = math.inf, np.ones(problem.n)
    for i in np.flatnonzero(~sets.optimal.all(axis=1)).tolist():
        keys, chosen = problem.keys[i], int(choice.alpha[i])
        logits = exact_logits(keys, choice.svm)
        rivals = sets.optimal[i] & (keys != keys[chosen]).any(axis=1)
        multiplicity[i] = sets.optimal[i].sum() - rivals.sum()
        for t in np.flatnonzero(rivals).tolist():
            least = min(least, max(float(logits[chosen] - logits[t]), 0.0))
    return least, multiplicity


def constraints_of(
    problem: Problem, mixing: LinearMixing, choice: ChoiceSolution, multiplicity: Float64[np.ndarray, "n"]
) -> Constraints:
    """Return the SVM constraints of one choice α, with the costs of tokens; ``multiplicity`` tokens share α's key."""
    others = ~mixing.optimal
    best = problem.keys[np.arange(problem.n), choice.alpha]
    log_costs = (log_token_costs(mixing, problem.loss) - np.log(multiplicity)[:, None])[others]
    duals = choice.duals[others]
    return Constraints(
        rows=choice.svm.norm * (best[:, None] - problem.keys)[others],
        margins=choice.margins[others],
        neighbours=choice.neighbours[others],
        log_costs=log_costs - log_costs.max(),
        log_unit=float(log_costs.max()),
        weights=duals / duals.sum(),
        rank=rank_of_neighbours(choice.svm),
        others=others,
    )


def sublevel_points(
    problem: Problem,
    mixing: LinearMixing,
    sets: MaxMarginSets,
    headed: Implementation,
    rhos: Float64[np.ndarray, "r"],
    rng: np.random.Generator,
) -> tuple[Float64[np.ndarray, "m d"], Int64[np.ndarray, "m"]]:
    """Return points with ‖p‖ ≤ R, L(p) ≤ L(R p̄_mm) for several R = ρ‖p_mm‖, and the index of each point's R.

    The search starts at up to two solutions, or at the only solution and at the best other choice of optimal tokens. R
    p̄_mm is the first point of each set.

    Args:
        problem: keys, scores, loss.
        mixing: the head with its constants.
        sets: the solutions of ATT-SVM'.
        headed: the implementation under test, with the head of the case in place of the linear one.
        rhos: the radii ρ, (r,).
        rng: the generator of the search.
    """
    unit = sets.norm
    ray = rhos[:, None] * sets.solutions[0].svm.direction
    edge = log_excess(headed, problem, unit * ray)
    level = edge - excess_rounding(problem, mixing, unit * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        excess = log_excess(headed, problem, unit * points)
        room = excess_rounding(problem, mixing, unit * points)
        short = np.linalg.norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (excess <= level[:, None] - room))

    # The search starts at the first solution and at the second one or, if there is only one, at the best choice that is
    # no solution.
    origins = [*sets.solutions, *([sets.runner_up] if sets.runner_up else [])][:2]
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * problem.keys.size), 4, 16))
    batches = [(ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_))]
    for rounds, choice in zip((1, 0), origins, strict=False):
        constraints = constraints_of(problem, mixing, choice, np.ones(problem.n))
        basis = tangent_basis(choice.svm.direction, differences_to_first(problem.keys))
        flat = np.zeros(basis.shape[1])
        centres = np.array([Reduced.at(constraints, basis, rho).newton(flat, 30)[0] for rho in rhos])
        batches += hunt(
            inside,
            choice.svm.direction,
            basis,
            constraints.rows,
            constraints.neighbours,
            rhos,
            centres,
            size=size,
            rounds=rounds,
            rng=rng,
        )
    points = unit * np.concatenate([batch[good] for batch, good in batches])
    return points, np.concatenate([np.nonzero(good)[0] for _, good in batches])


def minimisers(
    problem: Problem, sets: MaxMarginSets, headed: Implementation, rhos: Float64[np.ndarray, "r"]
) -> tuple[Float64[np.ndarray, "m d"], Float64[np.ndarray, "m d"]]:
    """Return the minimisers on spheres that descent from the ray of each solution reaches, and the points of the rays.

    ``rhos`` are the radii in units of ‖p_mm‖. The rows are ordered by solution, and for each solution by radius.
    """
    rays, points = [], []
    for solution in sets.solutions[:MOST_FOLLOWED]:
        basis = tangent_basis(solution.svm.direction, differences_to_first(problem.keys))
        y = np.zeros(basis.shape[1])
        for rho in rhos.tolist():
            y, point = descend(problem, headed, sets.norm, solution, basis, rho, y)
            rays.append(sets.norm * (rho * solution.svm.direction))
            points.append(point)
    return np.array(points), np.array(rays)


def descend(
    problem: Problem,
    headed: Implementation,
    unit: float,
    solution: ChoiceSolution,
    basis: Float64[np.ndarray, "d e"],
    rho: float,
    start: Float64[np.ndarray, "e"],
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "d"]]:
    """Return the tangential coordinates of a minimiser of log(L − L_*) on a sphere, and the minimiser itself.

    The radius is ρ = ``rho`` in units of ‖p_mm‖ = ``unit``; descent begins at the tangential coordinates ``start``.
    The risk of the minimiser is never above that of the start, or of the point on the solution's ray.
    """
    axis = solution.svm.direction

    def point(y: Float64[np.ndarray, "e"]) -> tuple[Float64[np.ndarray, "d"], float]:
        size = float(np.linalg.norm(y))
        height = math.sqrt(max((rho - size) * (rho + size), 0.0))
        return unit * (height * axis + basis @ y), height

    def objective(y: Float64[np.ndarray, "e"]) -> tuple[float, Float64[np.ndarray, "e"]]:
        if not np.linalg.norm(y) < 0.9 * rho:
            return 1e300, np.zeros_like(y)
        p, height = point(y)
        value = float(log_excess(headed, problem, p))
        gradient = headed[scaled_gradient](problem.keys, problem.scores, problem.loss, p)
        slope = unit * math.exp(min(float(gradient.log_scale) - value, 600.0)) * np.asarray(gradient.direction)
        return value + rho, tangential(slope, axis, basis) - (slope @ axis) * y / height

    tries = [np.zeros_like(start), start]
    if start.size:
        tries.append(np.asarray(minimize(objective, start, jac=True, method="BFGS", options={"maxiter": 30}).x))
    values = log_excess(headed, problem, np.array([point(y)[0] for y in tries]))
    best = int(np.nanargmin(values)) if np.isfinite(values).any() else 0
    return tries[best], point(tries[best])[0]


def path_to_the_lowest(
    problem: Problem,
    mixing: LinearMixing,
    sets: MaxMarginSets,
    headed: Implementation,
    kappa: float,
    rng: np.random.Generator,
    claim: str,
) -> FollowedPath | None:
    """Return the path near the solution whose limit risk is lowest; None where other optimal tokens compete with α.

    α are the tokens that the solution selects. Optimal tokens compete with α if their weight on the path is not below
    rounding. Without competing tokens L − L_* is, up to rounding, Σ_j c_j e^{−margin_j} over the non-optimal tokens j,
    with the costs c_j of :func:`log_token_costs` divided by the number of optimal tokens with the key of α.
    """
    lowest, best = math.inf, None
    for solution in sets.solutions[:MOST_FOLLOWED]:
        basis = tangent_basis(solution.svm.direction, differences_to_first(problem.keys))
        ahead, multiplicity = separation(problem, sets, solution)
        constraints = constraints_of(problem, mixing, solution, multiplicity)
        radii = [
            rho for rho in SHARP_RADII if constraints.exponent_rounding(rho * solution.svm.direction) < LARGEST_ROUNDING
        ]
        spheres = []
        for rho in radii:
            reduced = Reduced.at(constraints, basis, rho)
            y, _ = reduced.newton(np.zeros(basis.shape[1]))
            if first_order_is_exact(problem, mixing, solution, kappa, rho, ahead, float(np.linalg.norm(y))):
                spheres.append(Sphere(problem, solution.svm, basis, reduced, headed))
        if not spheres:
            return None
        far = spheres[-1].reduced
        value = far.value(far.newton(np.zeros(basis.shape[1]))[0]) + constraints.log_unit
        if value < lowest:
            lowest, best = value, (constraints, basis, solution, spheres)
    if best is None:
        return None
    constraints, basis, solution, spheres = best
    at = [Followed.at(sphere, constraints) for sphere in spheres]
    return FollowedPath(at, constraints, basis, solution.svm, rng, claim)


def first_order_is_exact(
    problem: Problem,
    mixing: LinearMixing,
    solution: ChoiceSolution,
    kappa: float,
    rho: float,
    ahead: float,
    offset: float,
) -> bool:
    """Return whether L − L_* is Σ_j c_j e^{−margin_j} up to rounding on the path at radius ρ = ``rho``.

    The sum leaves out the normaliser of the softmax, the curvature of loss and head, and optimal tokens other than α.
    On the path all margins are at least ρ − κ, so the weight on non-optimal tokens is q ≤ T e^{−(ρ−κ)}. If α's margin
    over another optimal token α' is ``ahead`` at p_mm, it is at least ahead·ρ − ‖k_α − k_α'‖·‖p_mm‖·offset on the path,
    ``offset`` its distance from the ray.
    """
    head = mixing.head
    stiff = head.units("log_stiffness", mixing.best, head.signs)
    reach = np.log(np.maximum(mixing.gaps.max(axis=1), 2.0**-1000))
    curvature = np.logaddexp.reduce([0.0, math.log(float(mixing.c1.max())), float(np.max(stiff + reach))])
    small = math.log(problem.T) + float(curvature) - (rho - kappa)
    best = problem.keys[np.arange(problem.n), solution.alpha]
    key_distance = float(np.linalg.norm(problem.keys - best[:, None], axis=2).max()) * solution.svm.norm
    rivals = math.log(problem.T) - (ahead * rho - key_distance * offset) if ahead < math.inf else -math.inf
    return max(small, rivals) < math.log(EPS) - 3
