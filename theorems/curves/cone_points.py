"""Points of a cone around p_mm, the limits of float64 at them, and the gradient under test seen from the cone's tip.

A point is p = ‖p‖(cos·axis + sin·side). Points are chosen where a violation is most likely: with sides towards and away
from single tokens, with random sides, and with lateral lengths of a few 1/‖k‖, at which the constants of inequality L3
in the proof are attained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import exact, with_rounding
from theorems.core.claim_name import stated_claim
from theorems.core.implementation import Implementation
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import AttentionAt, Numbers

INSIDE = 1e-4
"""The least distance of points from the cone's boundary, as a share of μ; rounding of p changes 1 − cos by less."""

LEAST_BITS = 2.0**-6
"""The largest relative error that a softmax weight may have at a point at which claims are checked."""

NO_STATIONARY_POINT = stated_claim("no-stationary-point")
"""The claim of Lemma 7 and Theorem 3 that no point is stationary; it also fails where a gradient under test is NaN."""

TOGETHER = 500_000
"""The approximate number of floats in the key differences of all points that are evaluated in one batch."""


@runtime_checkable
class Cone(Protocol):
    """A cone {p : cos(p, p_mm) ≥ 1 − μ} around the solution p_mm of ATT-SVM with rows g_it."""

    @property
    def problem(self) -> Problem:
        """The keys, scores and loss."""

    @property
    def solution(self) -> MaxMargin:
        """The solution of ATT-SVM(α)."""

    @property
    def mu(self) -> float:
        """The width μ."""

    @property
    def norm(self) -> Numbers:
        """The norm P = ‖p_mm‖."""

    @property
    def rows(self) -> Numbers:
        """The rows g_it = k_iα − k_it, (n, T, d)."""

    @property
    def others(self) -> Bool[np.ndarray, "n T"]:
        """The mask of tokens t ≠ α_i."""

    @property
    def reach(self) -> Numbers:
        """The numbers P‖g_it‖, (n, T)."""

    @property
    def A(self) -> float:
        """The constant A = P max‖g_it‖/2."""


def resolvable_rho(cone: Cone) -> float:
    """Return the largest ‖p‖/P at which float64 resolves weights to six bits: (d+3) eps · 2ρ max P‖g‖ ≤ 2^−6."""
    return LEAST_BITS / (2 * (cone.problem.d + 3) * EPS * 2 * cone.A)


def is_resolvable(cone: Cone, rho: float) -> bool:
    """Return whether float64 resolves softmax weights and the cone's boundary at ‖p‖ = ρP and at ‖p‖ = 2ρP.

    Softmax weights must be resolved to six bits, and 1 − cos = μ must change by less than :data:`INSIDE`·μ when p is
    rounded.
    """
    angle = math.sqrt(2 * cone.mu)
    steady = cone.problem.d == 1 or 8 * EPS * cone.problem.d <= INSIDE * angle
    return steady and 2 * rho <= resolvable_rho(cone)


def is_followable(cone: Cone, rho: float) -> bool:
    """Return whether float64 can follow a flow through ‖p‖ = ρP.

    Along the path the lateral components of the gradient, each up to P‖g‖ times the axial component, cancel. Their
    relative rounding error, which is that of a softmax weight, must leave nine bits of the axial component: (d+3) eps ·
    2ρ max(P‖g‖)² ≤ 2^−9.
    """
    return is_resolvable(cone, rho) and 8 * max(1.0, 2 * cone.A) * rho <= resolvable_rho(cone)


def sides(rng: np.random.Generator, cone: Cone, m: int) -> Float64[np.ndarray, "m d"]:
    """Draw m unit vectors orthogonal to p_mm, (m, d); 0 where none is found (d = 1, or a row parallel to p_mm)."""
    axis, rows = cone.solution.direction, cone.rows[cone.others]
    raw = rng.standard_normal((m, axis.size))
    chosen = rows[rng.integers(len(rows), size=m)] * rng.choice([-1.0, 1.0], size=(m, 1))
    raw = np.where(rng.random((m, 1)) < 0.6, chosen + 0.3 * rng.integers(0, 2, size=(m, 1)) * raw, raw)
    size = np.linalg.norm(raw, axis=1, keepdims=True)
    for _ in range(2):
        raw = raw - (raw @ axis)[:, None] * axis
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    return np.where(lengths > 1e-6 * size, raw / np.where(lengths > 0, lengths, 1.0), 0.0)


def cone_points(
    rng: np.random.Generator, cone: Cone, norms: Float64[np.ndarray, "m"], mu: float
) -> Float64[np.ndarray, "m d"]:
    """Draw a point of the cone for each norm: on the axis, near the boundary, between, or about 1/‖k‖ off the axis."""
    m = len(norms)
    side = sides(rng, cone, m)
    kinds = rng.integers(4, size=m)
    few = np.exp(rng.uniform(-3, 3, m)) * cone.norm / (np.median(cone.reach[cone.others]) * norms)
    share = np.choose(kinds, [np.full(m, 1.0), rng.random(m), rng.random(m) ** 8, few**2 / (2 * mu)])
    nu = np.minimum(share, 1 - INSIDE) * mu * np.any(side != 0, axis=1)
    points = (1 - nu)[:, None] * cone.solution.direction + np.sqrt(nu * (2 - nu))[:, None] * side
    return np.asarray(norms[:, None] * points / np.linalg.norm(points, axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class ConeView:
    """The gradient under test at points p (m, d), seen from the tip a of a cone around p_mm.

    Gradients are divided by their units e^{log_scale}; log_scale has the shape (m,).
    """

    cone: Cone
    points: Float64[np.ndarray, "m d"]
    under_test: Implementation
    tip: Float64[np.ndarray, "d"]

    @cached_property
    def _evaluation(self) -> tuple[Numbers, Numbers, Numbers]:
        """The direction −∇L under test, the logarithm of its unit, and log max_i (1 − s_iα_i), computed in batches."""
        problem, batches = self.cone.problem, []
        together = max(1, TOGETHER // problem.keys.size)
        for first in range(0, max(1, len(self.points)), together):
            at = AttentionAt(problem, self.points[first : first + together])
            missed = np.max(at.log_complement(self.cone.solution.alpha), axis=1)
            batches.append((-at.gradient_of(self.under_test, NO_STATIONARY_POINT), at.log_scale, missed))
        descent, log_scale, missed = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return descent, log_scale, missed

    @property
    def descent(self) -> Numbers:
        """The descent direction −∇L under test, (m, d)."""
        return self._evaluation[0]

    @property
    def log_scale(self) -> Float64[np.ndarray, "m"]:
        """The logarithms of the units of the gradients, (m,)."""
        return self._evaluation[1]

    @property
    def log_missed(self) -> Numbers:
        """The logarithms log max_i (1 − s_iα_i), (m,)."""
        return self._evaluation[2]

    @cached_property
    def axis(self) -> Numbers:
        """The direction p̄_mm."""
        p_mm = with_rounding(self.cone.solution.p)
        return p_mm / norm(p_mm)

    @cached_property
    def from_tip(self) -> Numbers:
        """The points seen from the tip, p' = p − a; the error of a is about d + 8 roundings."""
        return exact(self.points) - approximate(self.tip, (self.tip.size + 8) * EPS * np.abs(self.tip))

    @cached_property
    def rho(self) -> Numbers:
        """The norms ρ' = ‖p'‖/P."""
        return norm(self.from_tip, axis=1) / norm(with_rounding(self.cone.solution.p))

    @cached_property
    def deviation(self) -> Numbers:
        """The deviations p̄' − p̄_mm."""
        return self.from_tip / norm(self.from_tip, axis=1)[:, None] - self.axis

    @cached_property
    def nu(self) -> Numbers:
        """The numbers ν' = 1 − cos(p', p_mm)."""
        return np.vecdot(self.deviation, self.deviation) / 2

    @cached_property
    def axial(self) -> Numbers:
        """The axial parts ζ = ρ(1 − ν) = ⟨p, p_mm⟩/P²."""
        p_mm = with_rounding(self.cone.solution.p)
        return exact(self.points) @ p_mm / np.vecdot(p_mm, p_mm)

    @cached_property
    def along(self) -> Numbers:
        """The descent along the axis, ⟨−∇L, p̄_mm⟩."""
        return self.descent @ self.axis

    @cached_property
    def aside(self) -> Numbers:
        """The products ⟨−∇L, p̄' − p̄_mm⟩, which have no cancellation, unlike ⟨−∇L, p̄'⟩ − ⟨−∇L, p̄_mm⟩."""
        return np.vecdot(self.descent, self.deviation)

    def pi(self, kappa: Any) -> Numbers:
        """Return π' = κ/ρ' − ν'; κ has an error of about d + 16 roundings relative to 1 + κ."""
        values = np.asarray(kappa)
        return approximate(values, np.asarray((self.tip.size + 16) * EPS * (1 + values))) / self.rho - self.nu

    def in_units(self, log_bound: Numbers) -> Numbers:
        """Return e^{log_bound} in the units of the gradients, capped at e^{700}."""
        return np.exp(np.minimum(log_bound - self.log_scale, 700.0))
