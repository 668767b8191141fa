"""The distance along a flow's direction to the next wall, where another term begins to dominate the gradient.

The gradient is a sum with a term for each token that is not selected. Where one term is e^{1000} times another, the
smaller term changes no digit of the gradient until the *wall* where it becomes the larger one. A solver that steps over
the wall sees no error. As logits are linear in p, the distance to the wall can be computed.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
from reference_attention.span import Span
from reference_attention.training.derivatives import Differences, Point, Selected

ROOM = 5.0
"""Logarithm of the largest ratio of another term to the formerly largest term after a step: large enough for the solver
to notice an error and shorten its step."""


class WallDistance:
    """The distances to walls from points of one problem, which are given by coordinates in ``span`` if there is one."""

    def __init__(self, problem: Problem, span: Span | None = None) -> None:
        """Store the problem and the span."""
        self._selected = Selected(problem.keys, problem.scores, span)
        self._loss = problem.loss
        self._seen: Differences | None = None
        self._fixed: Float64[np.ndarray, "n others"]

    def arc(self, p: Point, velocity: Point) -> float:
        """Return the length from p along a unit vector until another term of ∇L is e^ROOM times the term largest at p.

        The length is infinite where no term gains on the largest one.
        """
        differences, logs = self.terms(p)
        rates = (differences.rows @ velocity).reshape(logs.shape)
        top = np.unravel_index(logs.argmax(), logs.shape)
        gains = rates - rates[top]
        if logs[top] == -math.inf or not (gains > 0).any():
            return math.inf
        with np.errstate(over="ignore"):
            return float(((logs[top] - logs + ROOM)[gains > 0] / gains[gains > 0]).min())

    def terms(self, p: Point) -> tuple[Differences, Float64[np.ndarray, "n others"]]:
        """Return the differences to the tokens selected at p, and approximate logarithms of the terms of ∇L(p)."""
        differences, relative = self._selected(p)
        if differences is not self._seen:
            self._seen, self._fixed = differences, self._log_factors(differences)
        return differences, np.asarray(relative + self._fixed)

    def _log_factors(self, differences: Differences) -> Float64[np.ndarray, "n others"]:
        """Return log(|ℓ'| |γ_t − γ_sel| ‖k_t − k_sel‖), sel the selected token: a term's logarithm minus its logit.

        The result is constant as long as the same tokens are selected.
        """
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(differences.gaps)) + differences.log_sizes + differences.silent
        return np.asarray(logs + self._loss.log_slope(differences.reference)[:, None])
