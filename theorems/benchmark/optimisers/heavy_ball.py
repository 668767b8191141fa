"""Heavy-ball momentum: u ← β u + ∇L(p), p ← p − η u, with β = 0.9 and u = 0 at first.

Limit: unknown for attention. On separable linear data, with an exponentially tailed loss, the limit is the ℓ2
max-margin direction. If steps were normalized, along u/‖u‖, the rule would be steepest descent in ℓ2 with momentum,
like ``muon`` on a prompt; for such steps ``steepest-one-input`` and ``steepest-from-a-margin`` bound the gap between
the margin and the largest one for attention.

References: Polyak, *Some methods of speeding up the convergence of iteration methods*, 1964; Wang, Meng, Zhang, Sun,
Chen, Ma, Liu, *Does Momentum Change the Implicit Regularization on Separable Data?*, NeurIPS 2022.
"""

from __future__ import annotations

import math

from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers import scaled_vectors
from theorems.benchmark.optimisers.optimiser import Against, Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector

MOMENTUM = 0.9
"""The momentum β."""


class HeavyBall(Optimiser):
    """Gradient descent with heavy-ball momentum: steps of η times a geometrically weighted sum of past gradients."""

    theory = Theory(source="linear data: ℓ2 (Wang et al. 2022)", against=Against.LOG)
    batched = True

    def __init__(self, step: float) -> None:
        """Take the step size η; its logarithm is stored."""
        self._log_step = math.log(step)

    def begin(self, setting: Setting) -> None:
        """Set the momentum u to 0."""
        self._u = scaled_vectors.of(ScaledGradient(0.0, 0 * setting.start))

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return p − η u with the updated momentum u."""
        self._u = scaled_vectors.total(MOMENTUM, self._u, 1.0, scaled_vectors.of(gradient))
        return p - scaled_vectors.times(self._log_step, self._u)
