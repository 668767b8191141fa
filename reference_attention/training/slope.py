"""The function that a gradient flow descends: its gradient and Hessian, and how far one term dominates the gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reference_attention import risk
from reference_attention.problem import Problem
from reference_attention.span import Span
from reference_attention.training.derivatives import GradientField, NewtonField, Point, newton_field
from reference_attention.training.iteration import Gradient, single_field
from reference_attention.training.wall_distance import WallDistance

UNSEEN = 1e-13
"""Share of the largest curvature below which a curvature counts as a rounding error; Newton steps leave its direction
out."""


@dataclass(frozen=True, eq=False)
class Slope:
    """A function L of points p, in the form that the integration of its gradient flow needs.

    Attributes:
        field: the function p ↦ ∇L, as a log scale and a direction.
        newton: the function p ↦ ∇L, as a log scale and a direction, and the Hessian divided by the same scale; ``None``
            if there is no formula for the Hessian.
        arc: the function (p, unit vector) ↦ the distance from p along the unit vector to where another term dominates
            ∇L.
        scale: a number such that a step of length 1/scale from the origin changes a logit by about one.
        unit: a power of two near ``scale``; arc lengths are measured in units of its inverse.
        rank: the function p ↦ number of independent directions in which logit differences change at p.
    """

    field: GradientField
    newton: NewtonField | None
    arc: Callable[[Point, Point], float]
    scale: float
    unit: float
    rank: Callable[[Point], int]


def slope_of(problem: Problem, gradient: Gradient = risk.scaled_gradient, span: Span | None = None) -> Slope:
    """Return the risk of a problem as a :class:`Slope`, with the given gradient, in coordinates of a given ``span``."""
    rank = int(np.linalg.matrix_rank((problem.keys - problem.keys[:, :1]).reshape(-1, problem.d), rtol=UNSEEN))
    is_risk_gradient = gradient is risk.scaled_gradient
    return Slope(
        field=single_field(problem.keys, problem.scores, problem.loss, gradient, span),
        newton=newton_field(problem.keys, problem.scores, problem.loss, span) if is_risk_gradient else None,
        arc=WallDistance(problem, span).arc,
        scale=float(np.abs(problem.keys).max()) or 1.0,
        unit=problem.key_scale,
        rank=lambda p: rank,
    )
