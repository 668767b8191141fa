"""The effective claims of Theorem 1: every point of a sublevel set has its margin and its correlation.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; derivation in
:mod:`.theorem_1_regularization_path`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.rounding.forward_error import COSINE_ROUNDING
from theorems.token_selection.global_paths.path_constants import EXPONENT_ROUNDING, Constraints, log_excess
from theorems.token_selection.global_paths.path_offset import Reduced
from theorems.token_selection.global_paths.sublevel_hunt import hunt

SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""RΘ/κ of the sublevel sets."""
HUNT_BUDGET = 150_000
"""About how many floats one batch of hunted points may occupy."""


def sublevel_claims(
    case: Case,
    under_test: Implementation,
    constraints: Constraints,
    basis: Float64[np.ndarray, "d e"],
    unit: float,
    direction: Float64[np.ndarray, "d"],
    kappa: float,
) -> Iterator[Claim]:
    """Hunt for points of sublevel sets that violate the bounds on margin and correlation.

    Args:
        constraints, basis: rows of the SVM in units of ‖p_mm‖, and the complement of p̄_mm.
        unit, direction: ‖p_mm‖ and p̄_mm.
        kappa: κ.
    """
    problem = case.problem
    rhos = kappa * np.array(SUBLEVEL_RADII)
    ray = rhos[:, None] * direction
    edge = log_excess(under_test, problem, unit * ray)
    level = edge - constraints.exponent_rounding(ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        excess = log_excess(under_test, problem, unit * points)
        room = constraints.exponent_rounding(points)
        short = np.linalg.norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (excess <= level[:, None] - room))

    flat = np.zeros(problem.d - 1)
    centres = np.array([Reduced.at(constraints, basis, rho).newton(flat, 60)[0] for rho in rhos])
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * problem.keys.size), 6, 32))
    found = hunt(
        inside,
        direction,
        basis,
        constraints.rows,
        constraints.neighbours,
        rhos,
        centres,
        size=size,
        rounds=2,
        rng=case.rng(),
    )
    # R p̄_mm itself belongs to its sublevel set without a look at its rounding.
    found.append((ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_)))
    points = np.concatenate([batch[good] for batch, good in found])
    rho = np.concatenate([np.broadcast_to(rhos[:, None], good.shape)[good] for _, good in found])
    base = np.concatenate([np.broadcast_to(edge[:, None], good.shape)[good] for _, good in found])
    rounding = constraints.exponent_rounding(points)
    length = np.linalg.norm(points, axis=-1)
    along = points @ direction
    smallest = np.min(points @ constraints.rows.T, axis=-1, initial=np.inf)
    yield at_least(
        "sublevel-margin",
        Form.EFFECTIVE,
        smallest,
        rho - kappa,
        rounding=rounding,
        why=EXPONENT_ROUNDING,
        scale=rho,
        points="point of a sublevel set",
    )
    cos_rounding = (problem.d + 4) * EPS
    yield at_least(
        "sublevel-correlation",
        Form.EFFECTIVE,
        along / length,
        1 - kappa / rho,
        rounding=cos_rounding,
        why=COSINE_ROUNDING,
        points="point of a sublevel set",
    )
    bound = (
        constraints.dual_value
        + constraints.log_unit
        - np.log1p((problem.T - 1) * np.exp(np.minimum(kappa - rho, 0.0)))
        - (base + math.log(problem.n))
    )
    yield at_least(
        "sublevel-correlation-from-duals",
        Form.EFFECTIVE,
        along,
        bound,
        rounding=2 * rounding + constraints.dual_rounding + rho * cos_rounding,
        why=EXPONENT_ROUNDING,
        scale=rho,
        points="point of a sublevel set",
    )
