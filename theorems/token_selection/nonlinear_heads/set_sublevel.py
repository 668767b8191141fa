"""The effective claims of Theorem 8: every point of a sublevel set has its margin and is near a solution.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 8; derivation in
:mod:`.theorem_8_nonlinear_heads`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64

from generators.optimal_sets import LinearMixing
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin_sets import MaxMarginSets
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.curves.constraints import EXPONENT_ROUNDING, log_excess
from theorems.curves.reduced import Reduced, tangent_basis
from theorems.curves.sublevel_hunt import hunt
from theorems.rounding.bounded import exact
from theorems.token_selection.nonlinear_heads.set_constants import (
    allowed_choices,
    constraints_of,
    dual_bound,
    excess_of,
    excess_rounding,
    least_margin,
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
    p = exact(unit * np.concatenate([batch[good] for batch, good in found]))
    radius = np.concatenate([np.nonzero(good)[0] for _, good in found])
    least, what = least_margin(mixing, problem, kappa, rhos, unit * ray)[radius], {"points": "point of a sublevel set"}
    yield at_least("sublevel-margin", Form.EFFECTIVE, set_margins(mixing, problem, p), least, **what)
    allowed = allowed_choices(sets, least, p)
    near = nearest(sets, allowed, p)
    yield at_least("sublevel-distance", Form.EFFECTIVE, near / rhos[radius], least / rhos[radius], **what)
    name = "sublevel-distance-from-duals"
    base = excess_of(seen, problem, mixing, unit * ray, name, Form.EFFECTIVE) + np.log(exact(problem.n))
    bound = dual_bound(problem, mixing, sets, allowed, least) - base[radius]
    useful = bound > 0
    yield at_least(name, Form.EFFECTIVE, near[useful], bound[useful], why=EXPONENT_ROUNDING, **what)
