"""What a flow follows down: a gradient, its derivative, and how far a solver sees from a point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reference_attention import risk
from reference_attention.problem import Problem
from reference_attention.span import Span
from reference_attention.training.ahead import Ahead
from reference_attention.training.derivatives import GradientField, NewtonField, Point, newton_field
from reference_attention.training.iteration import Gradient, single_field

UNSEEN = 1e-13
"""Curvatures this small beside the largest are rounding, and so is what Newton's method would make of them."""


@dataclass(frozen=True, eq=False)
class Slope:
    """A function of points, as a tracer of its gradient flow needs it.

    Attributes:
        field: p ↦ ∇L as a log scale and a direction.
        newton: the same with the Hessian; ``None`` where there is no formula of it.
        arc: (p, unit velocity) ↦ how far the straight piece goes before another term of ∇L takes over.
        scale: such that 1/scale moves a logit by about one, from the origin.
        unit: the power of two in whose inverse arcs are measured.
        rank: p ↦ how many directions of the curvature the logits see there.
    """

    field: GradientField
    newton: NewtonField | None
    arc: Callable[[Point, Point], float]
    scale: float
    unit: float
    rank: Callable[[Point], int]


def slope_of(problem: Problem, gradient: Gradient = risk.scaled_gradient, span: Span | None = None) -> Slope:
    """Return the slope of the risk of a problem, by a gradient of the same form; in coordinates of ``span``, if any."""
    rank = int(np.linalg.matrix_rank((problem.keys - problem.keys[:, :1]).reshape(-1, problem.d), rtol=UNSEEN))
    own = gradient is risk.scaled_gradient
    return Slope(
        field=single_field(problem.keys, problem.scores, problem.loss, gradient, span),
        newton=newton_field(problem.keys, problem.scores, problem.loss, span) if own else None,
        arc=Ahead(problem, span).arc,
        scale=float(np.abs(problem.keys).max()) or 1.0,
        unit=problem.key_scale,
        rank=lambda p: rank,
    )
