"""Lemma 0: a step that is steepest up to a factor κ/γ lowers the log-excess Y of the loss, and margins grow.

**Lemma 0** (own; the proof of :mod:`theorems.steepest_descent.steepest_multiclass` for other directions and lengths).
In the notation of that module let W⁺ = W + ηΔ with ‖Δ‖ ≤ ρ and ⟨−∇L, Δ⟩ ≥ κG, and b = ηκ − (e^{Dρη} − 1 − Dρη). Then
Y(W⁺) ≤ Y(W) − b if b ≥ 0, and Y(W⁺) ≤ Y(W) + |b|/π_min otherwise: Y(W⁺) ≤ Y(W) − min(b, b/π_min).

*Proof.* L''[Δ, Δ] ≤ D²ρ²G, since a variance is at most the second moment, and G(W + τΔ) ≤ e^{Dρτ}G(W): L falls by at
least Gb. Y is concave in u = L/π_min with slope 1/(1 − e^{−u}), so it lies below its tangent: Y rises by at most −b
G/(π_min(1 − e^{−u})). That factor of −b is at least 1 (steepest-multiclass), and at most 1/π_min: G = Σπ_i(1 −
e^{−ℓ_i}) ≤ 1 − e^{−L} ≤ 1 − e^{−u}, by Jensen and as π_min ≤ 1. ∎

On attention Φ_c, whose second derivatives are at most D'²/4 (steepest-from-a-margin), takes the place of Y: with
⟨−∇Φ_c, Δ⟩ ≥ κ and b = ηκ − D'²ρ²η²/8, Φ_c(W⁺) ≤ Φ_c(W) − b for b of either sign.

The statement on an update rule provides κ_t, ρ_t, and a bound of the run's length; this module makes the claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import RowGeometry
from theorems.steepest_descent.label_loss import LabelGeometry
from theorems.steepest_descent.potential import second_order
from theorems.steepest_descent.steepest_run import STEEPEST_ROUNDING

FALLS, GROWS = sharper("potential-falls"), sharper("margin-grows")
GAP = sharper("margin-gap", when="the bound on the margin becomes positive")
STEP_CLAIMS = (FALLS, GROWS, GAP)
LARGEST_EXPONENT = 300.0
"""The largest exponent that is evaluated; beyond it a bound is vacuous."""
VACUOUS = float(np.finfo(float).max) / 2**10
"""A number so large that the bound −VACUOUS of a fall says nothing; a thousand such numbers add up without overflow."""


@dataclass(frozen=True, eq=False)
class InexactSteps:
    """A run of steps η_tΔ_t with ⟨−∇L, Δ_t⟩ ≥ κ_tG and ‖Δ_t‖ ≤ ρ_t, along which a potential falls (see the module).

    Attributes:
        geometry: rows, γ, D and D' in the norm of the run.
        points: W(0) … W(t), (t + 1, b, d).
        potential: Y or Φ_c at the points, (t + 1, b).
        floor: a lower bound of m + potential at every point: 0 for Y, log c_min for Φ_c.
        gain: the proven fall of the potential at each step, b_t or min(b_t, b_t/π_min), (t, 1) or (t, b).
        step_error: bounds of how much less the potential falls at a step because the step is inexact, (t, b).
        longest: a bound of ‖W(t)‖ − ‖W(0)‖ after each step, (t, 1) or (t, b).
    """

    geometry: RowGeometry
    points: Numbers
    potential: Numbers
    floor: Numbers
    gain: Numbers
    step_error: Float64[np.ndarray, "t b"]
    longest: Numbers

    @cached_property
    def least(self) -> Numbers:
        """The lower bound of the margin after each step, (t, b)."""
        lost = np.minimum(self.step_error, VACUOUS)
        gained = np.cumsum(self.gain + np.zeros_like(lost), axis=0) - np.cumsum(exact(lost), axis=0)
        return self.floor - self.potential[0] + gained

    def claims(self) -> Iterator[Claim]:
        """Yield the claims on the fall of the potential, on m(W) and on m(W)/‖W‖, at every step."""
        options: dict[str, Any] = {"why": STEEPEST_ROUNDING, "points": "step"}
        fallen = self.potential[:-1] - self.potential[1:]
        yield at_least(FALLS, Form.EFFECTIVE, fallen + self.step_error, self.gain, **options)
        margins = self.geometry.margins(self.points[1:])
        yield at_least(GROWS, Form.EFFECTIVE, margins, self.least, **options)
        positive = np.asarray(self.least > 0)
        if positive.any():
            start: Any = self.geometry.length(self.points[:1])
            share, least = margins / self.geometry.length(self.points[1:]), self.least / (start + self.longest)
            yield at_least(GAP, Form.EFFECTIVE, share[positive], least[positive], **options)


def label_gain(geometry: LabelGeometry, step: Numbers, kappa: Numbers, rho: Numbers) -> Numbers:
    """Return min(b, b/π_min), the bound of Lemma 0 on the fall of Y, with b = ηκ − (e^{Dρη} − 1 − Dρη).

    Where Dρη is above 300, return the vacuous bound −1.8e305. ρ includes the rounding of a step, so Dρη can exceed 300
    at large W even if η is small.
    """
    moved: Any = geometry.reach * rho * step
    vacuous = np.asarray(value_of(moved) > LARGEST_EXPONENT)
    moved = np.where(vacuous, 0.0, moved)
    b: Any = step * kappa - (np.expm1(moved) - moved)
    return np.where(vacuous, -VACUOUS, np.minimum(b, b / geometry.least_weight))


def attention_gain(geometry: RowGeometry, step: Numbers, kappa: Numbers, rho: Numbers) -> Numbers:
    """Return b = ηκ − D'²ρ²η²/8, a lower bound of the fall of Φ_c in a step of length at most ρη (see the module)."""
    return step * kappa - second_order(geometry, step * rho)  # type: ignore[arg-type]


def least_path(gain: Numbers, step_error: Float64[np.ndarray, "t b"]) -> Float64[np.ndarray, "t"]:
    """Return lower bounds of the margin gained up to each step, (t,), the least over the starts.

    Args:
        gain: the proven fall of the potential at each step, (t,).
        step_error: bounds of how much less the potential falls at a step because the step is inexact, (t, b).
    """
    return np.cumsum(gain.value - gain.error - step_error.max(axis=1)) - 1e-12 * np.cumsum(np.abs(gain.value))


def steps_until_below(path: Float64[np.ndarray, "t"], least: float) -> int:
    """Return the number of steps through the first that may take the path below ``least``, or of all if none may."""
    below = path < least
    return int(np.argmax(below)) + 1 if below.any() else len(path)


def log_excess_error(geometry: LabelGeometry, step_error: Float64[np.ndarray, "t b"]) -> Float64[np.ndarray, "t b"]:
    """Return a bound of how much an error of length ``step_error`` in a step may raise the log-excess Y."""
    return np.asarray(value_of(geometry.reach * step_error) * geometry.steepness * (1 + 1e-12))
