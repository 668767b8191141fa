"""Normalized gradient descent on the key-query weights W with a ReLU head, which is piecewise linear.

Let z_itj and u_ij be the inputs of hidden unit j at token t and at the attended token X_iᵀs_i, and b_j the output
weight of the unit. As relu(u) = 1[u > 0] u, the output at every W is Y_i h(X_iᵀs_i) = γ_iᵀs_i with the scores γ_it =
Y_i Σ_j b_j 1[u_ij > 0] z_itj. So the gradient is that of a linear head with the scores γ, which change where a unit
turns on or off.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.heads import Head
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient, softmax_weights


@dataclass(frozen=True, eq=False)
class ReluRun:
    """The iterates W(k) of a normalized gradient descent with a ReLU head.

    Attributes:
        problem: the keys and the loss; the scores are not used.
        head: a head of ReLU units.
        points: the iterates vec(W(0)), vec(W(1)), …, (steps + 1, d).
        step: the length η of a step.
    """

    problem: Problem
    head: Head
    points: Float64[np.ndarray, "k d"]
    step: float

    @classmethod
    def of(
        cls, problem: Problem, head: Head, step: float, steps: int, gradient: Callable[..., Any] = scaled_gradient
    ) -> ReluRun:
        """Run W(k+1) = W(k) − η∇L/‖∇L‖ from W(0) = 0; where ∇L = 0, W does not move.

        Args:
            problem: the keys and the loss.
            head: a head of ReLU units.
            step: the length η of a step.
            steps: number of steps.
            gradient: the function (keys, scores, loss, p) → ∇L of a linear head, as a log scale and a direction.
        """
        points = np.zeros((steps + 1, problem.d))
        for k in range(steps):
            scores = active_scores(problem, head, points[k])
            slope = np.asarray(gradient(problem.keys, scores, problem.loss, points[k]).direction)
            size = float(np.linalg.norm(slope))
            points[k + 1] = points[k] - (step / size * slope if size > 0 else 0.0)
        return cls(problem, head, points, step)

    def at(self, k: int) -> Problem:
        """Return the problem with the linear head that agrees with the ReLU head at the iterate W(k)."""
        scores = active_scores(self.problem, self.head, self.points[k])
        return Problem(self.problem.keys, scores, self.problem.loss)

    def weights(self, k: int) -> Float64[np.ndarray, "n T"]:
        """Return the softmax weights at the iterate W(k), (n, T)."""
        return np.asarray(softmax_weights(self.problem.keys, self.points[k]))

    def mean_scores(self, k: int, width: int) -> Float64[np.ndarray, "n T"]:
        """Return the scores of :func:`active_scores`, averaged over the ``width`` + 1 iterates up to W(k), (n, T)."""
        scores = [active_scores(self.problem, self.head, p) for p in self.points[k - width : k + 1]]
        return np.asarray(np.mean(scores, axis=0))

    def mean(self, k: int, width: int) -> Float64[np.ndarray, "d"]:
        """Return the mean of vec(W) over the ``width`` + 1 iterates up to W(k).

        Steps go back and forth across the kinks of the head; the mean removes this oscillation.
        """
        return np.asarray(self.points[k - width : k + 1].mean(axis=0))


def active_scores(problem: Problem, head: Head, p: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "n T"]:
    """Return the scores of the linear head that agrees with the ReLU head at vec(W) = p, shape (n, T)."""
    weights = softmax_weights(problem.keys, p)
    on = np.einsum("nt,ntm->nm", weights, head.features) > 0
    return np.asarray(head.labels[:, None] * np.einsum("m,nm,ntm->nt", head.weights, on, head.features))
