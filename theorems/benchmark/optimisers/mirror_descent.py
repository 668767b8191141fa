"""Mirror descent with the potential ψ(p) = ‖p‖_q^q/q, q > 1: ∇ψ(p⁺) = ∇ψ(p) − η ∇L(p), entry by entry.

∇ψ(p)_j = sign(p_j)|p_j|^{q−1}; q = 2 is gradient descent. Normalized: ∇L is divided by its norm ‖∇L‖_{q'}, 1/q + 1/q'
= 1. The state kept between steps is the dual point ∇ψ(p).

Limit: the solution of ATT-SVM with ‖p‖_q in place of ‖p‖. For one input with equal non-optimal scores
``mirror-one-input`` proves this limit and a rate from any start, plain or normalized; ``mirror-from-a-margin`` proves
this limit for any inputs and scores as long as margins stay large enough. Julistiono, Ataee Tarzanagh and Azizan prove
this limit, at a rate polynomial in log t, for the key-query matrix of attention with a fixed head, from starts in a
cone around a locally optimal solution and with small steps; Sun et al. prove it for separable linear data, with a
faster rate for the normalized rule. Steepest descent in ‖·‖_q is another rule, but its margin tends to the same largest
margin (``steepest-one-input``).

References: Julistiono, Ataee Tarzanagh, Azizan, *Optimizing Attention with Mirror Descent: Generalized Max-Margin Token
Selection*, 2024 (arXiv 2410.14581); Sun, Gatmiry, Ahn, Azizan, *A Unified Approach to Controlling Implicit
Regularization via Mirror Descent*, JMLR 2023; Gunasekar, Lee, Soudry, Srebro, *Characterizing Implicit Bias in Terms of
Optimization Geometry*, ICML 2018.
"""

from __future__ import annotations

import math

import numpy as np

from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers import scaled_vectors
from theorems.benchmark.optimisers.optimiser import Against, Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector

STATEMENTS = ("mirror-one-input", "mirror-from-a-margin")


class MirrorDescent(Optimiser):
    """Mirror descent: steps along −∇L in the dual space, of length η ‖∇L‖ or, if normalized, η."""

    batched = True

    def __init__(self, power: float, step: float, normalized: bool) -> None:
        """Take the power of the potential ψ, the step size η, and whether gradients are normalized."""
        self._power, self._step, self._normalized = power, step, normalized

    def begin(self, setting: Setting) -> None:
        """Set the dual point to ∇ψ(p(0))."""
        self._dual = signed_power(setting.start, self._power - 1)

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Take a step from the stored dual point, and return the p that belongs to the new dual point."""
        g = scaled_vectors.of(gradient)
        if self._normalized:
            # No entry of g.direction is above 1 in absolute value, and one entry is ±1 unless all are 0.
            conjugate = self._power / (self._power - 1)
            length = (np.abs(g.direction) ** conjugate).sum(axis=-1, keepdims=True) ** (1 / conjugate)
            moved = self._step * g.direction / np.where(length > 0, length, 1.0)
        else:
            moved = scaled_vectors.times(math.log(self._step), g)
        self._dual = self._dual - moved
        return signed_power(self._dual, 1 / (self._power - 1))


def signed_power(x: Vector, exponent: float) -> Vector:
    """Return sign(x)|x|^exponent, entry by entry."""
    return np.asarray(np.sign(x) * np.abs(x) ** exponent)


def theory_of(power: float, normalized: bool) -> Theory:
    """Return the theorems about mirror descent in the norm ‖·‖_q, q = ``power``, plain or normalized."""
    if normalized:
        return Theory(power, "mirror-one-input; linear data (Sun et al. 2023)", statements=STATEMENTS)
    source = "mirror-one-input; from a cone (Julistiono et al. 2024)"
    return Theory(power, source, Against.LOG, statements=STATEMENTS)
