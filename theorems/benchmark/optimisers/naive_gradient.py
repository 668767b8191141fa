"""Normalized gradient descent with the gradient g as it is usually computed, p ← p − η g/‖g‖ in plain float64.

s = softmax(Kp), and ∇L = (1/n) Σ ℓ'(γᵀs) Kᵀ(diag(s) − s sᵀ) γ. Once a weight is nearly 1, γ − γᵀs is a difference of
nearly equal numbers and consists of rounding errors alone; after normalization these errors have the length of a step.
All other rules of ``theorems bench`` take the gradient without cancellation
(:func:`reference_attention.risk.scaled_gradient`), so ``naive-normalized-ETA`` and ``normalized-ETA`` differ only in
arithmetic.

Limit: none is proven; float64 gives no direction once weights are within 2⁻⁵³ of 0 and 1.
"""

from __future__ import annotations

import numpy as np

from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector


class NaiveNormalized(Optimiser):
    """Normalized gradient descent with a float64 gradient that suffers cancellation; p rests where it is zero."""

    theory = Theory(2.0, "like normalized-ETA until its gradient is only rounding error")

    def __init__(self, step: float) -> None:
        """Take the step size η."""
        self._step = step

    def begin(self, setting: Setting) -> None:
        """Store keys, scores and loss."""
        problem = setting.problem
        self._keys, self._scores, self._loss = problem.keys, problem.scores, problem.loss

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return p − η g/‖g‖ with the gradient g computed in float64; the argument ``gradient`` is ignored."""
        logits = self._keys @ p
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        means = (weights * self._scores).sum(axis=1, keepdims=True)
        slopes = np.asarray(self._loss.derivative(means))
        g = np.einsum("ntd,nt->d", self._keys, slopes * weights * (self._scores - means))
        length = float(np.linalg.norm(g))
        return p - self._step * g / length if length > 0 else p
