"""Gradient descent on the next-token loss, with the parts of θ in F and in F^⊥ stored separately.

The subspace F is that of :mod:`.subspace_split`; θ_⋆ ∈ F is the limit of θ's part in F (:mod:`.finite_minimum`). Steps
have a constant size, or the gradient is normalized.

Reference: arXiv 2402.18551, Theorem 2 and Figure 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from flint import arb, arb_mat, fmpq
from jaxtyping import Float64

from reference_attention.exact import to_float
from reference_attention.next_token.finite_minimum import FiniteMinimum
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.split_loss import SplitLoss
from reference_attention.svm.ball_matrices import balls, below, least_eigenvalue, multiply, precision


@dataclass(frozen=True, eq=False)
class SplitRun:
    """Iterates θ_k = θ_⋆ + u_k + v_k with u_k ∈ F and v_k ∈ F^⊥, in coordinates of a :class:`.subspace_split.Split`.

    Attributes:
        x: the coordinates of u_0, …, u_k, for b runs, (k + 1, b, r).
        y: the coordinates of v_0, …, v_k, for b runs, (k + 1, b, s).
        lost: for points of a path: the reasons why the search for a point failed, by the index of the point.
    """

    x: Float64[np.ndarray, "t b r"]
    y: Float64[np.ndarray, "t b s"]
    lost: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


def next_token_descent(
    minimum: FiniteMinimum,
    x: Float64[np.ndarray, "b r"],
    y: Float64[np.ndarray, "b s"],
    *,
    step: float,
    steps: int,
    normalized: bool = False,
) -> SplitRun:
    """Run θ_{k+1} = θ_k − η∇L(θ_k), or the same with ∇L/‖∇L‖, from b starts at once; return every iterate.

    Args:
        minimum: the problem, and θ_⋆, the origin of the coordinates.
        x: the part u_0 of each start in F, (b, r).
        y: the part v_0 of each start in F^⊥, (b, s).
        step: the step size η.
        steps: number of steps.
        normalized: whether the gradient is divided by its norm.
    """
    loss, at = SplitLoss(minimum), (np.array(x), np.array(y))
    points = [at]
    for _ in range(steps):
        gradient_in_f, gradient_across = loss.gradient(*at)
        length: float | Float64[np.ndarray, "b 1"] = step
        if normalized:
            # Dividing by the largest entry first keeps squares of tiny entries from underflowing; a gradient of 0 moves
            # nothing.
            gradient = np.concatenate([gradient_in_f, gradient_across], axis=1)
            unit = np.abs(gradient).max(axis=1, keepdims=True)
            unit = np.where(unit > 0, unit, 1.0)
            gradient_in_f, gradient_across = gradient_in_f / unit, gradient_across / unit
            size = np.linalg.norm(gradient / unit, axis=1, keepdims=True)
            length = step / np.where(size > 0, size, 1.0)
        at = at[0] - length * gradient_in_f, at[1] - length * gradient_across
        points.append(at)
    return SplitRun(np.array([p[0] for p in points]), np.array([p[1] for p in points]))


def smoothness(problem: MasterProblem) -> float:
    """Return an upper bound of the Lipschitz constant of ∇L, where L is the loss.

    In the notation of :mod:`.master_problem`, ∇²L is the mean, with weights π_j, of the covariances of the vectors a_jv
    under the softmax s over v. No covariance has an eigenvalue above diam(a_j)²/4, where diam(a_j) = max ‖a_jv − a_jz‖;
    so Σ π_j diam(a_j)²/4 is a bound. With a_jv = vec(e_v h_jᵀ) the covariance is (diag s − ssᵀ) ⊗ h_j h_jᵀ, whose first
    factor has no eigenvalue above 1/2; so λ_max(Σ π_j h_j h_jᵀ)/2 is a bound, too. The smaller one is returned.
    """
    total = fmpq(0)
    for j, pi in enumerate(problem.weights):
        rows = [row for (i, _), row in problem.differences.items() if i == j]
        ends = [[fmpq(0)] * problem.dimension, *rows]
        squared_distances = [
            sum(((a - b) ** 2 for a, b in zip(p, q, strict=True)), fmpq(0)) for p in ends for q in ends
        ]
        total += pi * max(squared_distances) / 4
    bound = float(np.nextafter(to_float(total), np.inf))
    if problem.embeddings is None or not problem.embeddings.any():
        return bound
    with precision():
        h, shares = balls(problem.embeddings), [arb(x) for x in problem.weights]
        d = h.ncols()
        moments = [
            [sum((p * row[i] * row[k] for p, row in zip(shares, h.tolist(), strict=True)), arb(0)) for k in range(d)]
            for i in range(d)
        ]
        return min(bound, -below(least_eigenvalue(multiply(arb_mat(moments), arb(-1)))) / 2)
