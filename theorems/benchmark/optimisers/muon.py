"""Muon's rule: B ← μ B + ∇L(W), W ← W − η U Vᵀ, where B = U Σ Vᵀ over the nonzero singular values; μ = 0.95.

The factor U Vᵀ comes from a singular value decomposition in place of Newton and Schulz's iteration, and without
Nesterov's correction. Where a prompt p is trained, B is a single column, U Vᵀ = B/‖B‖, and this is *normalized
gradient descent with momentum*: no other geometry. It makes a difference where W is trained (data with queries), whose
gradient is a matrix.

B forgets a gradient like μᵗ. Where ∇L vanishes faster, as it does with long steps (η Θ > log 1/μ, Θ the margin), the
oldest gradients rule for ever and the direction stays theirs.

Limit: of a prompt, short steps lead to nearly the largest ℓ2 margin, and steps like 1/√t to the largest: the gap has a
bound (``steepest-one-input`` from any start, ``steepest-from-a-margin``), β = μ there. Of W it is the spectral norm on
separable linear data; for attention nothing is proven here but where all gradients have rank one (one query).

References: Jordan et al., *Muon: An optimizer for hidden layers in neural networks*, 2024; Fan, Schmidt,
Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*, NeurIPS 2025.
"""

from __future__ import annotations

import numpy as np

from reference_attention.floats import EPS
from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers import scaled
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled import Vector

MOMENTUM = 0.95
"""μ."""


class Muon(Optimiser):
    """Steps of length η in every singular direction."""

    theory = Theory(
        source="margin of a prompt, short steps: steepest-from-a-margin; of W, linear data (Fan et al. 2025)",
        steepest=2.0,
        momentum=MOMENTUM,
    )
    batched = True

    def __init__(self, step: float) -> None:
        self._step = step

    def begin(self, setting: Setting) -> None:
        """B = 0, in the shape of what is trained."""
        self._shape = setting.shape if len(setting.shape) == 2 else (*setting.shape, 1)
        self._b = scaled.of(ScaledGradient(0.0, 0 * setting.start))

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """W − η U Vᵀ."""
        self._b = scaled.total(MOMENTUM, self._b, 1.0, scaled.of(gradient))
        matrices = self._b.direction.reshape(*p.shape[:-1], *self._shape)
        return np.asarray(p - self._step * orthogonal_factor(matrices).reshape(p.shape))


def orthogonal_factor(matrices: np.ndarray) -> np.ndarray:
    """U Vᵀ of each matrix (*b, k, l) over its nonzero singular values: those beyond the rounding of the largest."""
    if matrices.shape[-1] == 1:
        length = np.sqrt((matrices * matrices).sum(axis=-2, keepdims=True))
        return np.asarray(matrices / np.where(length > 0, length, 1.0))
    u, sizes, vt = np.linalg.svd(matrices, full_matrices=False)
    counted = sizes > max(matrices.shape[-2:]) * EPS * sizes[..., :1]
    return np.asarray((u * counted[..., None, :]) @ vt)
