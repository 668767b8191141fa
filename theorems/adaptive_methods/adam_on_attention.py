"""Adam on attention: the run, the claims that it is one, and the fall of Φ_c along it.

The derivations are in :mod:`.adam_from_a_margin` and :mod:`.adam_one_input`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.risk import scaled_gradient
from reference_attention.training.iteration import batch_field
from theorems.adaptive_methods.adam_bounds import DIRECTION, IS_ADAM, AdamBounds, AdamRun, follow_adam
from theorems.adaptive_methods.gradient_proxy import attention_proxy
from theorems.adaptive_methods.inexact_steps import InexactSteps, attention_gain
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.steepest_descent.followed import STEEPEST_ROUNDING, Asked
from theorems.steepest_descent.geometry import Geometry

SPARE = 0.01
"""The margin by which χ is evaluated lower, so that steps may lose a little on the way."""


@dataclass(frozen=True, eq=False)
class AttentionRun:
    """A run of Adam on attention.

    Attributes:
        geometry: rows, γ, D and D' in ‖·‖_∞.
        run: the iterates and what rounding may have changed.
        log_c: the logarithms of the coefficients c of Φ_c, (N,).
        proxy: Z at the iterates but the last, in units of the gradients, (t, b).
    """

    geometry: Geometry
    run: AdamRun
    log_c: Numbers
    proxy: Numbers

    @property
    def off(self) -> Float64[np.ndarray, "t b"]:
        """By how much less Φ_c may fall because steps are rounded, (t, b)."""
        return self.run.lost / np.maximum(self.proxy.value - self.proxy.error, 1e-300) * (1 + 1e-9)

    def phi(self, points: Numbers) -> Numbers:
        """Return Φ_c at points, (*b,)."""
        return np.logaddexp.reduce(self.log_c - points @ self.geometry.rows.T, axis=-1)

    def gain(self, bounds: AdamBounds, turned: Any = 0.0) -> Numbers:
        """Return b = η(κ − D'ρ tanh(χ/4)) − D'²ρ²η²/8, (t,), ``turned`` being tanh(χ/4)."""
        rho = bounds.rho * (1 + bounds.excess)
        kappa = bounds.kappa - self.geometry.diameter * rho * turned
        return attention_gain(self.geometry, exact(bounds.asked.lengths), kappa, rho)

    def claims(self, bounds: AdamBounds, turned: Any = 0.0) -> Iterator[Claim]:
        """Yield the claims of the direction of every step, of the fall of Φ_c, of the margin and its share of γ."""
        steps = len(bounds.asked.lengths)
        expected = (exact(bounds.asked.lengths) * bounds.kappa)[:, None] * self.proxy[:steps]
        along = self.run.along[:steps] + self.run.lost[:steps]
        yield at_least(DIRECTION, Form.EFFECTIVE, along, expected, why=STEEPEST_ROUNDING, points="step")
        points, gain = self.run.points[: steps + 1], self.gain(bounds, turned)[:, None]
        yield from InexactSteps(
            self.geometry, points, self.phi(points), np.min(self.log_c), gain, self.off[:steps], bounds.time[:, None]
        ).claims()


def follow_attention(
    geometry: Geometry,
    bounds: AdamBounds,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    log_c: Numbers,
) -> Generator[Claim, None, AttentionRun]:
    """Return Adam's run under test once the claims that it is one have been made."""
    problem, evaluated = geometry.problem, []
    field = batch_field(problem.keys, problem.scores, problem.loss, under_test[scaled_gradient], starts.shape[:-1])

    def gradient_at(points: Float64[np.ndarray, "t b d"]) -> tuple[Numbers, Float64[np.ndarray, "t b"]]:
        at = AttentionAt(problem, points.reshape(-1, problem.d))
        evaluated.append(attention_proxy(problem, at).reshape(points.shape[:-1]))
        gradient = at.gradient_of(under_test, IS_ADAM).reshape(points.shape)
        return gradient, at.log_scale.reshape(points.shape[:-1])

    run = yield from follow_adam(bounds, under_test, field, starts, gradient_at)
    return AttentionRun(geometry, run, log_c, evaluated[0])


def known_changes(
    attention: AttentionRun, change: Callable[[float], float]
) -> tuple[AdamBounds, Float64[np.ndarray, "t"]] | None:
    """Return the bounds of the first steps, and χ at lower bounds of the margins there; None if there is no such step.

    The bound of an iterate is that at the last power of two before it, less :data:`SPARE`. Steps end where more
    than that may be lost.

    Args:
        attention: the run.
        change: margin → χ, ∞ where a coefficient may be negative.
    """
    whole, off = attention.run.bounds, attention.off.max(axis=1)
    first: Any = np.min(attention.log_c) - attention.phi(attention.run.points[0])
    margin, steps, t = float(np.min(first.value - first.error)), len(off), 0
    chi, most = np.zeros(steps), 0
    while t < steps:
        until = min(steps, max(1, 2 * t))
        chi[t:until] = change(margin - SPARE)
        if not np.isfinite(chi[t]):
            break
        bounds = _first_steps(whole, until, chi)
        gain: Any = attention.gain(bounds, np.tanh(exact(chi[:until]) / 4))[t:until]
        path = np.cumsum(gain.value - gain.error - off[t:until]) - 1e-12 * np.cumsum(np.abs(gain.value))
        if (path < -SPARE).any():
            # The step that leads below is still one of those spoken of.
            most = t + int(np.argmax(path < -SPARE)) + 1
            break
        margin, most, t = margin + float(path[-1]), until, until
    return None if most == 0 else (_first_steps(whole, most, chi), chi[:most])


def _first_steps(bounds: AdamBounds, steps: int, chi: Float64[np.ndarray, "t"]) -> AdamBounds:
    asked = Asked(bounds.asked.lengths[:steps], 0.0)
    so_far = np.where(np.tri(steps) > 0, chi[:steps], 0.0)
    return replace(bounds, asked=asked, further=np.maximum.accumulate(so_far[:, ::-1], axis=1)[:, ::-1])
