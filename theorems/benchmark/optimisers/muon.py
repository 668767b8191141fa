"""Muon's rule: B ← μ B + ∇L(W), W ← W − η U Vᵀ, where B = U Σ Vᵀ over the nonzero singular values; μ = 0.95.

The factor U Vᵀ is computed by a singular value decomposition in place of Newton and Schulz's iteration; Nesterov's
correction is left out. Where a prompt p is trained, B is a single column, U Vᵀ = B/‖B‖, and the rule is *normalized
gradient descent with momentum*. Muon and normalized gradient descent differ where W is trained (data with queries),
because the gradient in W is a matrix.

The weight of a gradient in B decays like μᵗ. If ∇L vanishes faster, as it does with long steps (η Θ > log 1/μ, Θ the
margin), the oldest gradients dominate for ever and determine the direction.

Limit: short steps lead to nearly the largest margin, and steps like 1/√t to the largest: in ℓ2 for a prompt, in the
spectral norm for W, and for a single query in every norm of the singular values. ``steepest-one-input`` (from any
start) and ``steepest-from-a-margin``, with β = μ, bound the gap to the largest margin. Without momentum
(``spectral-ETA``) this gap is bounded once margins are large enough. On separable linear data, too, the margin in the
spectral norm tends to the largest.

References: Jordan et al., *Muon: An optimizer for hidden layers in neural networks*, 2024; Fan, Schmidt,
Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*, NeurIPS 2025.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from reference_attention.risk import ScaledGradient
from reference_attention.training.steepest_descent import orthogonal_factor
from theorems.benchmark.optimisers import scaled_vectors
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector

MOMENTUM = 0.95
"""The momentum μ."""
STATEMENTS = ("steepest-one-input", "steepest-from-a-margin")
SOURCE = "margin in the spectral norm of W, or ℓ2 for a prompt{}: steepest-one-input, steepest-from-a-margin"


class Muon(Optimiser):
    """Muon's rule: steps of length η in every singular direction."""

    theory = Theory(
        source=SOURCE.format(", short steps"), steepest=2.0, momentum=MOMENTUM, spectral=True, statements=STATEMENTS
    )
    batched = True
    remembers: ClassVar[bool] = True

    def __init__(self, step: float) -> None:
        """Take the step size η."""
        self._step = step

    def begin(self, setting: Setting) -> None:
        """Set the momentum B to 0, in the shape of the trained parameter."""
        self._shape = setting.shape if len(setting.shape) == 2 else (*setting.shape, 1)
        self._b = scaled_vectors.of(ScaledGradient(0.0, 0 * setting.start))

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return W − η U Vᵀ, where the updated momentum is B = U Σ Vᵀ."""
        now = scaled_vectors.of(gradient)
        self._b = scaled_vectors.total(MOMENTUM, self._b, 1.0, now) if self.remembers else now
        matrices = self._b.direction.reshape(*p.shape[:-1], *self._shape)
        return np.asarray(p - self._step * orthogonal_factor(matrices).reshape(p.shape))


class SpectralDescent(Muon):
    """Muon's rule without momentum: normalized steepest descent in the spectral norm."""

    theory = Theory(source=SOURCE.format(""), steepest=2.0, spectral=True, statements=STATEMENTS)
    remembers = False
