"""Polyak's steps: p ← p − (L(p) − L*)/‖∇L(p)‖² ∇L(p), where L* is the risk of selecting the optimal tokens.

L* is the infimum of L if the optimal tokens can be separated. Once these tokens are selected, L − L* and ‖∇L‖ fall at
the same rate, and steps have about the constant length ‖p_mm‖, as in normalized gradient descent. Near a local
max-margin direction L stays above L* while ∇L vanishes: the steps grow, until the run leaves that direction or a step
exceeds the range of float64.

Limit: steps go along −∇L, so ``descent-from-a-margin`` applies: while every optimal logit exceeds the others by at
least log(2(T−1)A), A = max (k_iα − k_it)·p_mm, a bound on 1 − cos follows from the steps taken; the bound goes to 0 if
the lengths of steps stay bounded.

References: Polyak, *Introduction to Optimization*, 1987, section 5.3; for a rate with steps (L − L*)/‖∇L‖² on convex
risks Hazan, Kakade, *Revisiting the Polyak step size*, 2019.
"""

from __future__ import annotations

import numpy as np

from reference_attention.risk import ScaledGradient, log_excess_risk
from theorems.benchmark.optimisers import scaled_vectors
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector


class Polyak(Optimiser):
    """Gradient descent with Polyak's step length, (L − L*)/‖∇L‖."""

    theory = Theory(2.0, "along −∇L: descent-from-a-margin", exponent=1.0, along_gradient=True)
    batched = True

    def begin(self, setting: Setting) -> None:
        """Store the data that the risk is computed from."""
        self._keys = np.stack([problem.keys for problem in setting.problems])
        self._scores = np.stack([problem.scores for problem in setting.problems])
        self._optimal = np.stack([problem.optimal for problem in setting.problems])
        self._loss, self._log_excess = setting.problem.loss, setting.under_test[log_excess_risk]

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return p − (L − L*)/‖∇L‖² ∇L, or p itself where L = L*."""
        g = scaled_vectors.of(gradient)
        sign, log_excess = self._log_excess(self._keys, self._scores, self._loss, p, self._optimal)
        log_step = np.where(sign > 0, log_excess, scaled_vectors.NOTHING) - 2 * (
            g.log_scale + np.log(scaled_vectors.size_of(g))
        )
        # Where the gradient is zero, log_step is meaningless (a difference of scales that stand for log 0), and 0 is
        # used.
        moves = (np.asarray(gradient.direction) != 0).any(axis=-1)
        return p - scaled_vectors.times(np.where(moves, log_step, 0.0), g)
