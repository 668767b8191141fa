"""Sign descent p ← p − η sign ∇L, and descent with rows normalised: every row of W moves by η along its own gradient.

Both rules are steepest descent: the first in the norm ‖·‖_∞ of the entries, the second in the norm max_r ‖W_r‖_2 of the
rows. The rows of a prompt have one entry, so the two rules agree on a prompt.

Limit: with steps of constant length the margin may stay below the largest margin in the norm of the rule by D'²η/8 (D':
the largest dual norm of a difference of non-optimal keys); ``steepest-one-input`` or ``steepest-from-a-margin`` bounds
this gap.

References: Gunasekar, Lee, Soudry, Srebro, *Characterizing Implicit Bias in Terms of Optimization Geometry*, ICML 2018;
Kim, Song, Yun, *Why Row Normalization Can Beat Adam and Muon*, 2026.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from reference_attention.norms import Blocks, Norm
from reference_attention.risk import ScaledGradient
from reference_attention.training.steepest_descent import steepest_direction
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting, Theory
from theorems.benchmark.optimisers.scaled_vectors import Vector

STATEMENTS = ("steepest-one-input", "steepest-from-a-margin")


class SignDescent(Optimiser):
    """Sign descent: steps of η in every entry of p."""

    theory = Theory(source=f"ℓ∞ margin up to a gap: {', '.join(STATEMENTS)}", steepest=math.inf, statements=STATEMENTS)
    batched = True
    by_rows: ClassVar[bool] = False

    def __init__(self, step: float) -> None:
        """Take the step size η."""
        self._step = step

    def begin(self, setting: Setting) -> None:
        """Choose the norm in which steps are steepest: the norm of the rows for :class:`RowDescent`, else ‖·‖_∞."""
        shape = setting.shape if len(setting.shape) == 2 else (*setting.shape, 1)
        self._norm: Norm = Blocks(math.inf, "rows", (shape[0], shape[1])) if self.by_rows else math.inf

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return p − η Δ, where Δ is the direction of steepest descent."""
        return np.asarray(p - self._step * steepest_direction(np.asarray(gradient.direction), self._norm))


class RowDescent(SignDescent):
    """Descent with rows normalised: steps of length η in every row of W."""

    theory = Theory(
        source=f"margin in the largest row norm of W, or ℓ∞ for a prompt, up to a gap: {', '.join(STATEMENTS)}",
        steepest=math.inf,
        blocks="rows",
        statements=STATEMENTS,
    )
    by_rows = True
