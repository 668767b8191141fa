"""Three kinds of descent on the factors (K, Q) of W = K Qᵀ; a prompt p counts as a W of one column.

- *factored*: K ← K − η ∇L(W) Q, Q ← Q − η ∇L(W)ᵀ K, both computed from the old factors.
- *normalized-factored*: steps along the normalized joint gradient, (∇_K, ∇_Q)/(‖∇_K‖² + ‖∇_Q‖²)^½.
- *factored-apart*: the update of the authors' code, which adds ε(‖K‖² + ‖Q‖²) to the loss and divides each gradient by
  its own norm plus ε, ε = 2⁻⁵². As each gradient is normalized by itself, steps do not go along −∇L(K, Q), and even in
  the limit of short steps KᵀK − QᵀQ is not conserved; once ‖∇L‖ is below ε steps follow the penalty.

All three kinds start at K = I and Q = W(0)ᵀ, with the largest |entry| of keys as unit; so KᵀK − QᵀQ ≻ 0 if W(0) = 0.

Limit: for steps along the joint gradient, W of least nuclear norm is expected, but no theorem proves this.

References: *Transformers as Support Vector Machines*, (KQ-ERM); github.com/umich-sota/TF-as-SVM.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from reference_attention.floats import EPS
from reference_attention.risk import ScaledGradient
from reference_attention.training.factorization import factor_gradients
from theorems.benchmark.optimisers.optimiser import Against, Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector

OPEN = "open; on (K, Q) expected: least nuclear norm"


class Way(StrEnum):
    """The scaling of the gradients in K and in Q."""

    PLAIN = "plain"
    JOINTLY = "jointly"
    APART = "apart"


PLAIN, JOINTLY = Theory(source=OPEN, against=Against.LOG), Theory(source=OPEN)
APART = Theory(source="none: each factor is normalized by itself, which is no gradient descent")


class Factored(Optimiser):
    """Descent on the factors K and Q of W = K Qᵀ, from one start on one problem; the iterates are vec(W)."""

    def __init__(self, way: Way, step: float) -> None:
        """Take the scaling ``way`` of the gradients in K and Q, and the step size η."""
        self._way, self._step = way, step

    def begin(self, setting: Setting) -> None:
        """Set K = I and Q = W(0)ᵀ, in units in which the largest |entry| of the keys is about one."""
        unit = math.sqrt(setting.problem.key_scale)
        self._shape = setting.shape if len(setting.shape) == 2 else (*setting.shape, 1)
        self._K = np.eye(self._shape[0]) / unit
        self._Q = setting.start.reshape(self._shape).T * unit

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return vec(K Qᵀ) after the step."""
        log_scale = float(gradient.log_scale)
        by_k, by_q = factor_gradients(np.asarray(gradient.direction).reshape(self._shape), self._K, self._Q)
        if self._way is Way.APART:
            size = math.exp(max(log_scale, -745.0))
            by_k, by_q = size * by_k + 2 * EPS * self._K, size * by_q + 2 * EPS * self._Q
            scales = [self._step / (float(np.linalg.norm(by)) + EPS) for by in (by_k, by_q)]
        else:
            joint = math.hypot(float(np.linalg.norm(by_k)), float(np.linalg.norm(by_q)))
            along = math.exp(max(log_scale, -745.0)) if self._way is Way.PLAIN else (1 / joint if joint else 0.0)
            scales = [self._step * along] * 2
        self._K, self._Q = self._K - scales[0] * by_k, self._Q - scales[1] * by_q
        return np.asarray((self._K @ self._Q.T).reshape(p.shape))
