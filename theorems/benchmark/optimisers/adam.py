"""Adam with ε = 0: m ← β₁ m + (1−β₁) g, s ← β₂ s + (1−β₂) g², p ← p − η (m/(1−β₁ᵗ))/√(s/(1−β₂ᵗ)), entry by entry.

Here g = ∇L(p), and the moments m and s begin at 0. ``adam-ETA``: β₁ = 0.9, β₂ = 0.999, η constant; ``adam-B1-B2-ETA``:
the β in the name, and steps of η/√t. A positive ε would exceed every gradient after a few steps, so that Adam would
turn into gradient descent with momentum. An entry whose gradient has been zero throughout does not move.

Limit: with steps of η/√t and β₁² < β₂ ``adam-one-input`` and ``adam-from-a-margin`` prove for attention that the margin
tends to the largest ℓ∞ margin, and bound the gap at every step; Zhang et al. prove the limit for separable linear data.
For steps of constant length ``adam-one-input`` and ``adam-from-a-margin`` bound the gap, too, but the gap may stay
positive, and no limit is proven. For β = (0.9, 0.999) the bound says nothing at usual step sizes: it needs η of about
γ(1−β₂)/D², with γ the largest margin and D the largest ℓ1 norm of a difference of keys. With constant ε > 0 the limit
on linear data is the ℓ2 direction (Wang et al.).

References: Kingma, Ba, *Adam*, ICLR 2015; Zhang, Zou, Cao, *The Implicit Bias of Adam on Separable Data*, NeurIPS 2024;
Wang et al., *Does Momentum Change the Implicit Regularization on Separable Data?*, NeurIPS 2022.
"""

from __future__ import annotations

import math

import numpy as np

from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers import scaled_vectors
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector

BETAS = 0.9, 0.999
"""The rates β₁ and β₂ of the moments, unless the name of a rule contains others."""
STATEMENTS = ("adam-one-input", "adam-from-a-margin")


def theory_of(step: float, betas: tuple[float, float] | None = None) -> Theory:
    """Return the theory of Adam: for steps of η/√t if ``betas`` are given, else for constant steps and default β."""
    first, second = BETAS if betas is None else betas
    if first**2 >= second:
        return Theory(source="no theorem known for β₁² ≥ β₂")
    adam, by = (step, 0.0 if betas is None else 0.5, first, second), ", ".join(STATEMENTS)
    if betas is None:
        source = f"ℓ∞ margin up to a gap; steps of η/√t: the largest ({by})"
        return Theory(source=source, adam=adam, statements=STATEMENTS)
    return Theory(norm=math.inf, source=f"ℓ∞ margin: {by}", adam=adam, statements=STATEMENTS)


class Adam(Optimiser):
    """Adam with ε = 0: steps of about η in every coordinate, or η/√t if β are given."""

    batched = True

    def __init__(self, step: float, betas: tuple[float, float] | None = None) -> None:
        """Take the step size η and β₁, β₂, and count steps from 0."""
        self._step, self._betas, self._decreasing = step, betas or BETAS, betas is not None
        self._t = 0

    def begin(self, setting: Setting) -> None:
        """Set the moments m and s to 0."""
        self._m = self._root = scaled_vectors.of(ScaledGradient(0.0, 0 * setting.start))

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return p after a step, with bias correction for moments that begin at 0."""
        self._t += 1
        g, (first, second) = scaled_vectors.of(gradient), self._betas
        self._m = scaled_vectors.total(first, self._m, 1 - first, g)
        self._root = _root_of_squares(math.sqrt(second), self._root, math.sqrt(1 - second), g)
        m, root = self._m, self._root
        moves = root.direction > 0
        ratio = np.where(moves, m.direction / np.where(moves, root.direction, 1.0), 0.0)
        corrected = math.sqrt(1 - second**self._t) / (1 - first**self._t)
        step = self._step / math.sqrt(self._t) if self._decreasing else self._step
        return np.asarray(p - step * corrected * np.exp(m.log_scale - root.log_scale)[..., None] * ratio)


def _root_of_squares(a: float, x: ScaledGradient, b: float, y: ScaledGradient) -> ScaledGradient:
    """Return √((a x)² + (b y)²) entry by entry, without forming squares, which would underflow."""
    top = np.maximum(x.log_scale, y.log_scale)
    left, right = (
        np.exp(np.maximum(gradient.log_scale - top, scaled_vectors.NOTHING))[..., None] for gradient in (x, y)
    )
    return scaled_vectors.of(ScaledGradient(top, np.hypot(a * left * x.direction, b * right * y.direction)))
