"""Points of a cone around p_mm, where float64 can resolve them, and the gradient under test relative to the cone's tip.

A point is p = ‖p‖ (cos φ · axis + sin φ · side), where the axis is p_mm/‖p_mm‖, φ the angle to it, and the *side* a
unit vector orthogonal to the axis. Points are chosen where a claim is most likely to fail: with sides towards and away
from single tokens, with random sides, and at distances of a few 1/‖k‖ from the axis, at which the constants of
inequality L3 in the proof are attained.
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
"""The least distance of points from the cone's boundary in 1 − cos, as a share of the width μ; rounding of p changes 1
− cos by less."""

LEAST_BITS = 2.0**-6
"""The largest relative rounding error that softmax weights may have at a point where claims are checked."""

NO_STATIONARY_POINT = stated_claim("no-stationary-point")
"""The claim of Lemma 7 and Theorem 3 that no point is stationary; it also fails where a gradient under test is NaN."""

TOGETHER = 500_000
"""The approximate number of floats in the key differences of the points that are evaluated in one batch."""


@runtime_checkable
class Cone(Protocol):
    """A cone {p : cos(p, p_mm) ≥ 1 − μ} around the solution p_mm of ATT-SVM(α), with its constants."""

    @property
    def problem(self) -> Problem:
        """The problem: keys, scores and loss."""

    @property
    def solution(self) -> MaxMargin:
        """The solution p_mm of ATT-SVM(α)."""

    @property
    def mu(self) -> float:
        """The width μ of the cone."""

    @property
    def norm(self) -> Numbers:
        """The norm P = ‖p_mm‖."""

    @property
    def rows(self) -> Numbers:
        """The rows g_it = k_iα − k_it, (n, T, d)."""

    @property
    def others(self) -> Bool[np.ndarray, "n T"]:
        """The mask of the tokens t ≠ α_i, (n, T)."""

    @property
    def reach(self) -> Numbers:
        """The numbers P‖g_it‖, with P = ‖p_mm‖ and g_it = k_iα − k_it, (n, T)."""

    @property
    def A(self) -> float:
        """The constant A = P max ‖g_it‖/2, with P = ‖p_mm‖ and g_it = k_iα − k_it."""


def resolvable_rho(cone: Cone) -> float:
    """Return the largest ρ = ‖p‖/‖p_mm‖ at which float64 resolves softmax weights to six bits.

    At this ρ the bound (d + 3) eps · 2ρ · 2A of the relative error of a weight is 2^−6, with A = :attr:`Cone.A`.
    """
    return LEAST_BITS / (2 * (cone.problem.d + 3) * EPS * 2 * cone.A)


def is_resolvable(cone: Cone, rho: float) -> bool:
    """Return whether float64 resolves softmax weights and the cone's boundary for ‖p‖ from ρP to 2ρP, P = ‖p_mm‖.

    Softmax weights must be resolved to six bits (:func:`resolvable_rho`), and at the boundary 1 − cos = μ must change
    by less than :data:`INSIDE`·μ when p is rounded.
    """
    angle = math.sqrt(2 * cone.mu)
    steady = cone.problem.d == 1 or 8 * EPS * cone.problem.d <= INSIDE * angle
    return steady and 2 * rho <= resolvable_rho(cone)


def is_followable(cone: Cone, rho: float) -> bool:
    """Return whether float64 can follow a flow in the cone at ‖p‖ = ρP, where P = ‖p_mm‖.

    Along the flow the terms of the gradient orthogonal to p_mm, each up to P‖g_it‖ times the component along p_mm,
    cancel. Their relative rounding error, which is that of a softmax weight, must leave nine bits of the component
    along p_mm: (d + 3) eps · 2ρ max(P‖g_it‖)² ≤ 2^−9, with g_it = k_iα − k_it.
    """
    return is_resolvable(cone, rho) and 8 * max(1.0, 2 * cone.A) * rho <= resolvable_rho(cone)


def sides(rng: np.random.Generator, cone: Cone, m: int) -> Float64[np.ndarray, "m d"]:
    """Draw m unit vectors orthogonal to p_mm, (m, d); a row is 0 if d = 1 or the drawn vector is parallel to p_mm."""
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
    """Draw a point of the cone per norm: near the boundary, near the axis, between, or about 1/‖k‖ off the axis."""
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
    """The gradient under test at m points p, (m, d), seen from the tip a of a cone a + {x : cos(x, p_mm) ≥ 1 − μ}.

    Here p' = p − a is a point seen from the tip, and a bar divides a vector by its norm. Gradients are divided by their
    units e^{log_scale}, (m,), as in :class:`reference_attention.risk.ScaledGradient`.
    """

    cone: Cone
    points: Float64[np.ndarray, "m d"]
    under_test: Implementation
    tip: Float64[np.ndarray, "d"]

    @cached_property
    def _evaluation(self) -> tuple[Numbers, Numbers, Numbers]:
        """The values of :attr:`descent`, :attr:`log_scale` and :attr:`log_missed`, computed in batches of points."""
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
        """The descent directions −∇L under test, divided by their units, (m, d)."""
        return self._evaluation[0]

    @property
    def log_scale(self) -> Float64[np.ndarray, "m"]:
        """The logarithms of the units by which the gradients are divided, (m,)."""
        return self._evaluation[1]

    @property
    def log_missed(self) -> Numbers:
        """The logarithm of the largest weight of tokens other than α_i in an input, log max_i (1 − s_iα_i), (m,)."""
        return self._evaluation[2]

    @cached_property
    def axis(self) -> Numbers:
        """The unit vector p̄_mm = p_mm/‖p_mm‖."""
        p_mm = with_rounding(self.cone.solution.p)
        return p_mm / norm(p_mm)

    @cached_property
    def from_tip(self) -> Numbers:
        """The points seen from the tip, p' = p − a, (m, d), where the tip has an error of about d + 8 roundings."""
        return exact(self.points) - approximate(self.tip, (self.tip.size + 8) * EPS * np.abs(self.tip))

    @cached_property
    def rho(self) -> Numbers:
        """The norms ρ' = ‖p'‖/‖p_mm‖ of the points seen from the tip, (m,)."""
        return norm(self.from_tip, axis=1) / norm(with_rounding(self.cone.solution.p))

    @cached_property
    def deviation(self) -> Numbers:
        """The deviations p'/‖p'‖ − p̄_mm of the points' directions from the axis, (m, d)."""
        return self.from_tip / norm(self.from_tip, axis=1)[:, None] - self.axis

    @cached_property
    def nu(self) -> Numbers:
        """The numbers ν' = 1 − cos(p', p_mm), (m,), without cancellation."""
        return np.vecdot(self.deviation, self.deviation) / 2

    @cached_property
    def axial(self) -> Numbers:
        """The lengths of the points p along the axis, ζ = ⟨p, p_mm⟩/‖p_mm‖², in units of ‖p_mm‖, (m,)."""
        p_mm = with_rounding(self.cone.solution.p)
        return exact(self.points) @ p_mm / np.vecdot(p_mm, p_mm)

    @cached_property
    def along(self) -> Numbers:
        """The descent along the axis, ⟨−∇L, p̄_mm⟩, divided by the units of the gradients, (m,)."""
        return self.descent @ self.axis

    @cached_property
    def aside(self) -> Numbers:
        """The products ⟨−∇L, p̄' − p̄_mm⟩, p̄' = p'/‖p'‖, without the cancellation of ⟨−∇L, p̄'⟩ − ⟨−∇L, p̄_mm⟩."""
        return np.vecdot(self.descent, self.deviation)

    def pi(self, kappa: Any) -> Numbers:
        """Return π' = κ/ρ' − ν', where κ has an error of about d + 16 roundings relative to 1 + κ, (m,)."""
        values = np.asarray(kappa)
        return approximate(values, np.asarray((self.tip.size + 16) * EPS * (1 + values))) / self.rho - self.nu

    def in_units(self, log_bound: Numbers) -> Numbers:
        """Return the numbers e^{log_bound} divided by the units of the gradients, but at most e^{700}."""
        return np.exp(np.minimum(log_bound - self.log_scale, 700.0))
