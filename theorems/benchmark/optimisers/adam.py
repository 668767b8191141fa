"""Adam with ε = 0: m ← β₁ m + (1−β₁) g, s ← β₂ s + (1−β₂) g², p ← p − η (m/(1−β₁ᵗ))/√(s/(1−β₂ᵗ)), entry by entry.

β₁ = 0.9, β₂ = 0.999. ε would end Adam's own regime: it is larger than every gradient after a few steps, and what is
left is gradient descent with momentum. An entry whose gradient has been zero throughout does not move.

Limit: unknown for a constant step. With steps that decrease, ``adam-one-input`` and ``adam-from-a-margin`` bound the
gap to the largest ℓ∞ margin of attention; at these β1 and β2 their bounds say nothing of steps of usual lengths, so no
limit is named. On separable linear data, with ε = 0 and steps that decrease to
0, it has the largest ℓ∞ margin (Zhang et al.); with ε > 0 that does not vanish it is the ℓ2 direction (Wang et al.).

References: Kingma, Ba, *Adam*, ICLR 2015; Zhang, Zou, Cao, *The Implicit Bias of Adam on Separable Data*, NeurIPS 2024;
Wang et al., *Does Momentum Change the Implicit Regularization on Separable Data?*, NeurIPS 2022.
"""

from __future__ import annotations

import math

import numpy as np

from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers import scaled
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled import Vector

BETAS = 0.9, 0.999
"""β₁ and β₂."""


class Adam(Optimiser):
    """Adam with ε = 0: steps of about η in every coordinate."""

    theory = Theory(source="linear data, decreasing steps: ℓ∞ (Zhang et al. 2024)")
    batched = True

    def __init__(self, step: float) -> None:
        """Take the step size η, and count steps from 0."""
        self._step = step
        self._t = 0

    def begin(self, setting: Setting) -> None:
        """Set both moments to 0."""
        self._m = self._root = scaled.of(ScaledGradient(0.0, 0 * setting.start))

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Take a step, with the corrections for the zeros that the moments begin with."""
        self._t += 1
        g, (first, second) = scaled.of(gradient), BETAS
        self._m = scaled.total(first, self._m, 1 - first, g)
        self._root = _root_of_squares(math.sqrt(second), self._root, math.sqrt(1 - second), g)
        m, root = self._m, self._root
        moves = root.direction > 0
        ratio = np.where(moves, m.direction / np.where(moves, root.direction, 1.0), 0.0)
        corrected = math.sqrt(1 - second**self._t) / (1 - first**self._t)
        return np.asarray(p - self._step * corrected * np.exp(m.log_scale - root.log_scale)[..., None] * ratio)


def _root_of_squares(a: float, x: ScaledGradient, b: float, y: ScaledGradient) -> ScaledGradient:
    """Compute √((a x)² + (b y)²) entry by entry: squares would underflow where their roots do not."""
    top = np.maximum(x.log_scale, y.log_scale)
    left, right = (np.exp(np.maximum(gradient.log_scale - top, scaled.NOTHING))[..., None] for gradient in (x, y))
    return scaled.of(ScaledGradient(top, np.hypot(a * left * x.direction, b * right * y.direction)))
