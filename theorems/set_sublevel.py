"""The effective claims of Theorem 8: every point of a sublevel set has its margin and is near a solution.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 8; derivation in
:mod:`theorems.theorem_8_nonlinear_heads`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64

from attention.implementation import Implementation
from attention.max_margin_sets import MaxMarginSets
from attention.problem import Problem
from generators.optimal_sets import LinearMixing
from theorems.path_constants import log_excess
from theorems.path_offset import Reduced, tangent_basis
from theorems.set_constants import constraints_of, dual_bound, excess_rounding, set_margins
from theorems.statement import Claim, Form, at_least
from theorems.sublevel_hunt import hunt
from theorems.tolerances import EPS

RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""RΘ/κ of the sublevel sets."""
FARTHEST = 1e8
"""RΘ/κ up to which the set is also looked at where only the best choices remain."""
HUNT_BUDGET = 40_000
"""About how many floats one batch of hunted points may occupy."""


def sublevel_claims(
    problem: Problem,
    mixing: LinearMixing,
    sets: MaxMarginSets,
    seen: Implementation,
    kappa: float,
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """Hunt around two solutions and the best of the other choices for points that violate the bounds.

    Args:
        seen: the implementation, with the head of the case.
        kappa: κ.
    """
    unit = sets.norm
    single = single_radius(sets, kappa)
    rhos = np.array(sorted({*(kappa * x for x in RADII), *([1.01 * single] if 0 < single < FARTHEST * kappa else [])}))
    ray = rhos[:, None] * sets.solutions[0].svm.direction
    edge = log_excess(seen, problem, unit * ray)
    level = edge - excess_rounding(problem, mixing, unit * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        excess = log_excess(seen, problem, unit * points)
        room = excess_rounding(problem, mixing, unit * points)
        short = np.linalg.norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (excess <= level[:, None] - room))

    runner_up = sets.runner_up
    origins = [*sets.solutions[:2], *([runner_up] if runner_up else [])]
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * len(origins) * problem.keys.size), 4, 24))
    found = [(ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_))]
    for choice in origins:
        constraints = constraints_of(problem, mixing, choice, np.ones(problem.n))
        basis = tangent_basis(choice.svm.direction)
        flat = np.zeros(problem.d - 1)
        centres = np.array([Reduced.at(constraints, basis, rho).newton(flat, 30)[0] for rho in rhos])
        found += hunt(
            inside, choice.svm.direction, basis, constraints.rows, constraints.neighbours, rhos, centres,
            size=size, rounds=1, rng=rng,
        )  # fmt: skip
    points = np.concatenate([batch[good] for batch, good in found])
    rho = np.concatenate([np.broadcast_to(rhos[:, None], good.shape)[good] for _, good in found])
    base = np.concatenate([np.broadcast_to(edge[:, None], good.shape)[good] for _, good in found])
    margins, rounding = set_margins(mixing, problem, unit * points)
    rounding = rounding + excess_rounding(problem, mixing, unit * points)
    yield at_least(
        "sublevel-margin", Form.EFFECTIVE, margins, rho - kappa,
        rounding=rounding, why="exponent-rounding", scale=rho, points="point of a sublevel set",
    )  # fmt: skip
    # ⟨p, p_α⟩/‖p_α‖² of the choices whose margin is large enough at that radius.
    along = np.stack([unit * (points @ c.svm.direction) / c.svm.norm for c in sets.choices], axis=-1)
    share = np.array([unit / c.svm.norm for c in sets.choices])
    allowed = rho[:, None] * share >= (rho - kappa)[:, None] - rounding[:, None]
    yield at_least(
        "sublevel-choice", Form.EFFECTIVE, np.max(np.where(allowed, along, -np.inf), axis=-1), rho - kappa,
        rounding=rounding, why="exponent-rounding", scale=rho, points="point of a sublevel set",
    )  # fmt: skip
    nearest = nearest_solution(sets, points)
    alone = rho > single
    yield at_least(
        "sublevel-distance", Form.EFFECTIVE, nearest[alone] / rho[alone], 1 - kappa / rho[alone],
        rounding=rounding[alone] / rho[alone] + (problem.d + 4) * EPS, why="exponent-rounding",
        points="point of a sublevel set",
    )  # fmt: skip
    bound = dual_bound(problem, mixing, sets, rho - kappa) - (base + math.log(problem.n))
    yield at_least(
        "sublevel-distance-from-duals", Form.EFFECTIVE, nearest[alone], bound[alone],
        rounding=2 * rounding[alone] + rho[alone] * (problem.d + 4) * EPS, why="exponent-rounding", scale=rho[alone],
        points="point of a sublevel set",
    )  # fmt: skip


def single_radius(sets: MaxMarginSets, kappa: float) -> float:
    """RΘ beyond which points of the sublevel set select an optimal choice: κ/(1 − Θ₂/Θ), Θ₂ of the runner-up."""
    runner_up = sets.runner_up
    if runner_up is None:
        return 0.0
    # 1 − ‖p‖/‖p₂‖ from exact squares, because the two may be close.
    best, second = sets.choices[0].norm_squared, runner_up.norm_squared
    share = float((second - best) / second)
    return kappa * (1 + math.sqrt(1 - share)) / share * (1 + 8 * EPS)


def nearest_solution(sets: MaxMarginSets, points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
    """The largest ⟨p, p̄_mm⟩ over G_mm, shape (m,)."""
    return np.max([points @ s.svm.direction for s in sets.solutions], axis=0)
