"""The effective claims of Theorem 8: every point of a sublevel set has its margin and is near a solution.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 8; derivation in
:mod:`.theorem_8_nonlinear_heads`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64

from generators.optimal_sets import LinearMixing
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin_sets import MaxMarginSets
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.token_selection.global_paths.path_constants import EXPONENT_ROUNDING, log_excess
from theorems.token_selection.global_paths.path_offset import Reduced, tangent_basis
from theorems.token_selection.global_paths.sublevel_hunt import hunt
from theorems.token_selection.nonlinear_heads.set_constants import (
    allowed_choices,
    constraints_of,
    dual_bound,
    excess_rounding,
    nearest,
    set_margins,
)

RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""RΘ/κ of the sublevel sets."""
HUNT_BUDGET = 20_000
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
        rng: drives the hunt.
    """
    unit = sets.norm
    rhos = kappa * np.array(RADII)
    ray = rhos[:, None] * sets.solutions[0].svm.direction
    edge = log_excess(seen, problem, unit * ray)
    level = edge - excess_rounding(problem, mixing, unit * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        excess = log_excess(seen, problem, unit * points)
        room = excess_rounding(problem, mixing, unit * points)
        short = np.linalg.norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (excess <= level[:, None] - room))

    # The first solution, and another one or the best of the other choices.
    origins = [*sets.solutions, *([sets.runner_up] if sets.runner_up else [])][:2]
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * problem.keys.size), 4, 16))
    found = [(ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_))]
    for rounds, choice in zip((1, 0), origins, strict=False):
        constraints = constraints_of(problem, mixing, choice, np.ones(problem.n))
        basis = tangent_basis(choice.svm.direction)
        flat = np.zeros(problem.d - 1)
        centres = np.array([Reduced.at(constraints, basis, rho).newton(flat, 30)[0] for rho in rhos])
        found += hunt(
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
    points = np.concatenate([batch[good] for batch, good in found])
    rho = np.concatenate([np.broadcast_to(rhos[:, None], good.shape)[good] for _, good in found])
    base = np.concatenate([np.broadcast_to(edge[:, None], good.shape)[good] for _, good in found])
    margins, rounding = set_margins(mixing, problem, unit * points)
    rounding = rounding + excess_rounding(problem, mixing, unit * points)
    yield at_least(
        "sublevel-margin",
        Form.EFFECTIVE,
        margins,
        rho - kappa,
        rounding=rounding,
        why=EXPONENT_ROUNDING,
        scale=rho,
        points="point of a sublevel set",
    )
    allowed = allowed_choices(sets, kappa, rho)
    near = nearest(sets, allowed, points)
    cos_rounding = rounding / rho + (problem.d + 4) * EPS
    yield at_least(
        "sublevel-distance",
        Form.EFFECTIVE,
        near / np.linalg.norm(points, axis=-1),
        1 - kappa / rho,
        rounding=cos_rounding,
        why=EXPONENT_ROUNDING,
        points="point of a sublevel set",
    )
    bound = dual_bound(problem, mixing, sets, allowed, rho - kappa) - (base + math.log(problem.n))
    useful = bound > 0
    yield at_least(
        "sublevel-distance-from-duals",
        Form.EFFECTIVE,
        near[useful],
        bound[useful],
        rounding=(2 * rounding + rho * (problem.d + 4) * EPS)[useful],
        why=EXPONENT_ROUNDING,
        scale=rho[useful],
        points="point of a sublevel set",
    )
