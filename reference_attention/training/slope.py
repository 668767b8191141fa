"""The function that a flow descends: gradient, Hessian, and the arc over which one term dominates the gradient."""

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
"""Ratio to the largest curvature below which a curvature is a rounding error; Newton steps ignore its direction."""


@dataclass(frozen=True, eq=False)
class Slope:
    """A function of points, in the form that a tracer of its gradient flow needs.

    Attributes:
        field: p ↦ ∇L as a log scale and a direction.
        newton: p ↦ ∇L as a log scale and a direction, and the Hessian; ``None`` if there is no formula for the Hessian.
        arc: (p, unit velocity) ↦ the length of the straight piece from p up to where another term of ∇L dominates.
        scale: a number such that a step of 1/scale from the origin changes a logit by about one.
        unit: a power of two; arc lengths are measured in units of its inverse.
        rank: p ↦ the number of independent directions in which logits change at p.
    """

    field: GradientField
    newton: NewtonField | None
    arc: Callable[[Point, Point], float]
    scale: float
    unit: float
    rank: Callable[[Point], int]


def slope_of(problem: Problem, gradient: Gradient = risk.scaled_gradient, span: Span | None = None) -> Slope:
    """Return the slope of a problem's risk, computed with ``gradient``, in coordinates of ``span`` if one is given."""
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
