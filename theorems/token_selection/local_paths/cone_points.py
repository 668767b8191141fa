"""Points of a cone around p_mm, and the gradient under test at them next to the bounds of Lemma 7.

A point is p = ‖p‖(cos·axis + sin·side). Sides are chosen against the statement: towards and away from single tokens,
uniform ones, and lateral lengths of a few 1/‖k‖, at which the constants of L3 are attained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from theorems.core.implementation import Implementation
from theorems.rounding.evaluation import BoundedGradient, Evaluation, scaled_gradient_of
from theorems.rounding.forward_error import dot_error
from theorems.token_selection.local_paths.local_constants import LocalConstants

INSIDE = 1e-4
"""Points keep this share of μ from the boundary: what rounding of p could change of 1 − cos, and more."""

LEAST_BITS = 2.0**-6
"""Largest relative error of a softmax weight at which a point still says something."""


def resolvable_rho(constants: LocalConstants) -> float:
    """The largest ρ at which float64 knows softmax weights to six bits: (d+3) eps · 2ρ max P‖g‖ ≤ 2^−6."""
    return LEAST_BITS / (2 * (constants.problem.d + 3) * EPS * 2 * constants.A)


def is_resolvable(constants: LocalConstants, rho: float) -> bool:
    """Whether float64 can tell what happens in the cone at ‖p‖ = ρP and twice that.

    Logits must be known to six bits, and 1 − cos = μ must change by less than :data:`INSIDE`·μ when p is rounded.
    """
    angle = math.sqrt(2 * constants.mu)
    steady = constants.problem.d == 1 or 8 * EPS * constants.problem.d <= INSIDE * angle
    return steady and 2 * rho <= resolvable_rho(constants)


def is_followable(constants: LocalConstants, rho: float) -> bool:
    """Whether float64 can follow a flow through ‖p‖ = ρP.

    Along the path the lateral forces, each up to P‖g‖ times the axial one, cancel. Their relative rounding, that of a
    weight, must leave nine bits of the axial one: (d+3) eps · 2ρ max(P‖g‖)² ≤ 2^−9.
    """
    return is_resolvable(constants, rho) and 8 * max(1.0, 2 * constants.A) * rho <= resolvable_rho(constants)


def sides(rng: np.random.Generator, constants: LocalConstants, m: int) -> Float64[np.ndarray, "m d"]:
    """Unit vectors orthogonal to p_mm; zero where there is none (d = 1, or a token straight along p_mm)."""
    axis, rows = constants.solution.direction, constants.rows[constants.others]
    raw = rng.standard_normal((m, axis.size))
    chosen = rows[rng.integers(len(rows), size=m)] * rng.choice([-1.0, 1.0], size=(m, 1))
    raw = np.where(rng.random((m, 1)) < 0.6, chosen + 0.3 * rng.integers(0, 2, size=(m, 1)) * raw, raw)
    size = np.linalg.norm(raw, axis=1, keepdims=True)
    for _ in range(2):
        raw = raw - (raw @ axis)[:, None] * axis
    left = np.linalg.norm(raw, axis=1, keepdims=True)
    return np.where(left > 1e-6 * size, raw / np.where(left > 0, left, 1.0), 0.0)


def cone_points(
    rng: np.random.Generator, constants: LocalConstants, norms: Float64[np.ndarray, "m"], mu: float
) -> Float64[np.ndarray, "m d"]:
    """A point of cone_μ per norm: on the axis, at the boundary, in between, and at lateral lengths of order 1/‖k‖."""
    m = len(norms)
    side = sides(rng, constants, m)
    kinds = rng.integers(4, size=m)
    few = np.exp(rng.uniform(-3, 3, m)) * constants.norm / (np.median(constants.reach[constants.others]) * norms)
    share = np.choose(kinds, [np.full(m, 1.0), rng.random(m), rng.random(m) ** 8, few**2 / (2 * mu)])
    nu = np.minimum(share, 1 - INSIDE) * mu * np.any(side != 0, axis=1)
    points = (1 - nu)[:, None] * constants.solution.direction + np.sqrt(nu * (2 - nu))[:, None] * side
    return np.asarray(norms[:, None] * points / np.linalg.norm(points, axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class ConeView:
    """The gradient under test at points p (m, d), seen from the tip of a cone around p_mm.

    All inner products with −∇L are divided by e^{own.log_scale}.
    """

    constants: LocalConstants
    points: Float64[np.ndarray, "m d"]
    under_test: Implementation
    tip: Float64[np.ndarray, "d"]

    @cached_property
    def evaluation(self) -> Evaluation:
        return Evaluation(self.constants.problem, self.points)

    @cached_property
    def own(self) -> BoundedGradient:
        return self.evaluation.gradient

    @cached_property
    def descent(self) -> Float64[np.ndarray, "m d"]:
        """−∇L under test."""
        return -scaled_gradient_of(self.under_test, self.constants.problem, self.points, self.own.log_scale)

    @cached_property
    def moved(self) -> Float64[np.ndarray, "m d"]:
        """p' = p − a."""
        return np.asarray(self.points - self.tip)

    @cached_property
    def lengths(self) -> Float64[np.ndarray, "m"]:
        """‖p'‖."""
        return np.asarray(np.linalg.norm(self.moved, axis=1))

    @cached_property
    def rho(self) -> Float64[np.ndarray, "m"]:
        """ρ' = ‖p'‖/P."""
        return self.lengths / self.constants.norm

    @cached_property
    def apart(self) -> Float64[np.ndarray, "m d"]:
        """p̄' − p̄_mm; errors of a few eps per coordinate."""
        return np.asarray(self.moved / self.lengths[:, None] - self.constants.solution.direction)

    @cached_property
    def nu(self) -> Float64[np.ndarray, "m"]:
        """ν' = 1 − cos(p', p_mm); exactly 0 when d = 1, where p' and p_mm are parallel."""
        if self.points.shape[1] == 1:
            return np.zeros(len(self.points))
        return np.asarray(np.sum(self.apart * self.apart, axis=1) / 2)

    @cached_property
    def nu_error(self) -> Float64[np.ndarray, "m"]:
        """Rounding of ν': p' carries (d + 8) eps of ‖p‖ + ‖a‖ relative to ‖p'‖, p̄_mm as much of 1."""
        size = np.linalg.norm(self.points, axis=1) + float(np.linalg.norm(self.tip))
        unit = (self.points.shape[1] + 8) * EPS * size / self.lengths
        return np.asarray(unit * (np.sqrt(2 * self.nu) + unit))

    @cached_property
    def axial(self) -> Float64[np.ndarray, "m"]:
        """ρ(1 − ν) = ⟨p, p_mm⟩/P² = ζ."""
        return np.asarray((self.points @ self.constants.solution.direction) / self.constants.norm)

    @cached_property
    def log_missed(self) -> Float64[np.ndarray, "m"]:
        """log max_i (1 − s_iα_i)."""
        return np.asarray(self.evaluation.log_complement(self.constants.solution.alpha).max(axis=1))

    @cached_property
    def log_error(self) -> Float64[np.ndarray, "m"]:
        """Error of an exponent such as ζ or log(1 − s): that of the logits and of the sums around them."""
        logits = self.evaluation.log_weights_error.max(axis=(1, 2))
        return np.asarray(
            logits + (self.points.shape[1] + 16) * EPS * (1 + np.abs(self.axial) + np.abs(self.own.log_scale))
        )

    def along(self, q: Float64[np.ndarray, "m d"]) -> tuple[Float64[np.ndarray, "m"], Float64[np.ndarray, "m"]]:
        """⟨−∇L, q⟩ and its rounding, for q with coordinates known to a few eps of |q_j| + |p̄_mm,j|."""
        value = np.sum(self.descent * q, axis=1)
        spread = np.abs(q) + np.abs(self.constants.solution.direction)
        size = np.linalg.norm(self.points, axis=1) + float(np.linalg.norm(self.tip))
        units = (self.points.shape[1] + 8) * EPS * (size / self.lengths)[:, None]
        extra = np.sum(np.abs(self.descent) * units * spread, axis=1)
        return value, dot_error(self.descent, q, self.own.error) + extra

    def correlation(
        self, kappa: float | Float64[np.ndarray, "m"]
    ) -> tuple[Float64[np.ndarray, "m"], Float64[np.ndarray, "m"]]:
        """(1 + κ/ρ' − ν')⟨−∇L, p̄_mm⟩ − ⟨−∇L, p̄'⟩, which L3 says is not negative, and its rounding."""
        axis = self.constants.solution.direction
        pi = kappa / self.rho - self.nu
        value, rounding = self.along(pi[:, None] * axis - self.apart)
        return value, rounding + self.nu_error * np.abs(self.descent @ axis)

    def in_units(self, log_bound: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "m"]:
        """e^{log_bound} in the units of the inner products."""
        return np.asarray(np.exp(np.clip(log_bound - self.own.log_scale, -745.0, 700.0)))


def log_saturation(constants: LocalConstants, rho: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "m"]:
    """log max_i u_i at each ρ: the proven bound of log max_i (1 − s_iα_i)."""
    lowest = np.where(constants.others, constants.lowest, np.inf)
    return np.asarray(np.logaddexp.reduce(-rho[:, None, None] * lowest, axis=2).max(axis=1))
