"""The regularization path of the implementation under test: the point of a sphere where the gradient is radial.

Newton steps use the gradient under test, and the Hessian of :mod:`.reduced_program` only as a preconditioner. So at the
resulting point the gradient under test is normal to the sphere, and the risk under test is below that at R p̄_mm, and
the point shows faults and rounding errors of the implementation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.span import tangential
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.implementation import Implementation
from theorems.curves.constraints import log_excess
from theorems.curves.reduced_program import QUADRATIC, Reduced
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import log_excess_of

STEPS = 60
"""The largest number of Newton steps; a few suffice unless the costs of the constraints differ by many orders of
magnitude."""

ENOUGH = 0.1
"""The least share of the decrease predicted by the gradient that a step must achieve; a step that achieves less is
shortened. If a smaller share sufficed, steps could alternate for ever between two rows of opposite signs."""


@dataclass(frozen=True, eq=False)
class Sphere:
    """The risk under test and its gradient on the sphere ‖p‖ = ρ‖p_mm‖, as functions of the y of :class:`Reduced`."""

    problem: Problem
    svm: MaxMargin
    basis: Float64[np.ndarray, "d e"]
    reduced: Reduced
    under_test: Implementation

    def point(self, y: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "d"]:
        """Compute the point ‖p_mm‖ (√(ρ² − |y|²) p̄_mm + y) of the sphere."""
        return np.asarray(self.svm.norm * (self.reduced.height(y) * self.svm.direction + self.basis @ y))

    def coordinates(self, p: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "e"]:
        """Return the tangential coordinates y of a point p, which may be rounded."""
        return tangential(p, self.svm.direction, self.basis) / self.svm.norm

    def excess(self, y: Float64[np.ndarray, "e"]) -> float:
        """Compute log(L − L_opt) under test at y, where L_opt is the risk if all weight is on the optimal tokens."""
        return float(log_excess(self.under_test, self.problem, self.point(y)))

    def log_excess_of(self, points: Numbers, claim: str) -> Numbers:
        """Return log(L − L_opt) under test at points, (b, d), with the error that a correct implementation may have."""
        return log_excess_of(self.under_test, self.problem, points, claim)

    def slope(self, y: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "e"]:
        """Return the gradient of log(L − L_opt) under test in y, scaled to have the radial part of :class:`Reduced`.

        If all margins are positive, the risk decreases outwards; if the risk under test does not, the result is NaN.
        """
        gradient = self.under_test[scaled_gradient](
            self.problem.keys, self.problem.scores, self.problem.loss, self.point(y)
        )
        direction = np.asarray(gradient.direction)
        radial = float(self.svm.direction @ direction)
        weights, _ = self.reduced.slopes(y)
        across = tangential(direction, self.svm.direction, self.basis) - radial * y / self.reduced.height(y)
        return np.asarray(across * ((weights @ self.reduced.margins) / -radial if radial < 0 else np.nan))

    def newton_step(self, y: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "e"]:
        """Return the Newton step from y towards the implementation's minimiser."""
        return np.asarray(-self.reduced.solve(y, self.slope(y)))

    def follow(
        self, start: Float64[np.ndarray, "e"], resolution: float, precision: float
    ) -> tuple[Float64[np.ndarray, "e"], bool]:
        """Return the minimiser under test, sought downhill from ``start``, and whether steps shrank to ``resolution``.

        The exponents are those of :class:`Reduced`. Steps that raise the risk by at most the rounding error of
        exponents are accepted. Steps shorter than ``resolution`` are still taken while they shrink and change an
        exponent by more than ``precision``: rounding moves the minimiser in directions of weak curvature much further
        than in directions of strong curvature, and Newton's method changes the exponent of a term of small weight by
        only about one per step.
        """
        y = np.array(start)
        if y.size == 0:
            return y, True
        value, last, arrived = self.excess(y), np.inf, False
        noise = 64 * EPS * self.reduced.rho * max(1.0, float(np.abs(self.reduced.rows).max()))
        for _ in range(STEPS):
            slope = self.slope(y)
            step = np.asarray(-self.reduced.solve(y, slope))
            length = float(np.linalg.norm(step))
            if not np.isfinite(length):
                return y, False
            arrived = length <= resolution
            if arrived:
                change = self.reduced.change(y, step)
                if change <= precision or (change <= QUADRATIC and change >= last / 2):
                    return self.coordinates(self.point(y + step)), True
                last = change
            scale = longest = self.reduced.longest(y, step)
            while scale > 1e-6 * longest:
                trial = y + scale * step
                least = ENOUGH * scale * max(float(-slope @ step), 0.0)
                trial_value = self.excess(trial) if np.linalg.norm(trial) < self.reduced.rho else np.inf
                if trial_value <= value - least + noise:
                    break
                scale /= 2
            else:
                return y, arrived
            y, value = trial, trial_value
        return y, arrived
