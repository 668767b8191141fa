"""The potential Φ(p) = log Σ_j c_j e^{−g_j·p} falls at every step of steepest descent, so that the margin grows.

The rows are g_j, and c_j > 0 are coefficients; γ, D and D' are as in :mod:`.geometry`. The derivations are in
:mod:`.steepest_one_input` and :mod:`.steepest_from_a_margin`, which choose different c_j and lags τ_t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.steepest_run import STEEPEST_ROUNDING, SteepestRun

FALLS = sharper("potential-falls")
GROWS = sharper("margin-grows")
GAP = sharper("margin-gap", when="the bound on the margin becomes positive")
POTENTIAL_CLAIMS = (FALLS, GROWS, GAP)


@dataclass(frozen=True, eq=False)
class Potential:
    """The potential Φ along a run with step lengths η_t and momentum M_t.

    Attributes:
        geometry: the rows, γ, D and D' in the norm of the run.
        run: the iterates.
        log_c: log c_j, (N,).
        lag: τ_t, a bound of the total variation between the rows' weights in M_t and in ∇Φ, (t, 1) or (t, b).
    """

    geometry: Geometry
    run: SteepestRun
    log_c: Numbers
    lag: Numbers

    @cached_property
    def phi(self) -> Numbers:
        """The potential Φ(p(t)) at each iterate of the run, (t + 1, b)."""
        return np.logaddexp.reduce(self.log_c - self.run.p @ self.geometry.rows.T, axis=-1)

    @cached_property
    def falls_by(self) -> Numbers:
        """The lower bounds b_t = η_t(γ − D'τ_t) − D'²η_t²/8 of the fall of Φ in step t, (t, 1) or (t, b)."""
        return step_gain(self.geometry, exact(self.run.schedule.lengths)[:, None], self.lag)

    @cached_property
    def least(self) -> Numbers:
        """The lower bounds min log c − Φ(p(0)) + Σ_{s≤t} b_s of the margin after step t, less step errors, (t, b).

        b_s is the proven fall of Φ in step s (``falls_by``).
        """
        step_error = value_of(self.geometry.reach * np.cumsum(exact(self.run.step_error), axis=0))
        gained = np.cumsum(self.falls_by + np.zeros_like(self.run.step_error), axis=0)
        return np.min(self.log_c) - self.phi[0] + gained - step_error

    def claims(self) -> Iterator[Claim]:
        """Yield the claims on the fall of Φ at every step, and on m(p) and m(p)/‖p‖ at every iterate."""
        options = {"why": STEEPEST_ROUNDING, "points": "step"}
        step_error = self.geometry.reach * self.run.step_error
        yield at_least(FALLS, Form.EFFECTIVE, self.phi[:-1] - self.phi[1:] + step_error, self.falls_by, **options)
        margins: Any = self.geometry.margins(self.run.p[1:])
        yield at_least(GROWS, Form.EFFECTIVE, margins, self.least, **options)
        norms, starts = self.geometry.length(self.run.p[1:]), self.geometry.length(self.run.p[:1])
        positive = np.asarray(self.least > 0)
        if positive.any():
            longest = starts + self.run.schedule.time[:, None]
            share, least = margins / norms, self.least / longest
            yield at_least(GAP, Form.EFFECTIVE, share[positive], least[positive], **options)


def step_gain(geometry: Geometry, step: Numbers, lag: Numbers) -> Numbers:
    """Return b = η(γ − D'τ) − D'²η²/8, a lower bound of the fall of Φ in a step of length η and lag τ."""
    return step * (geometry.margin - geometry.diameter * lag) - second_order(geometry, step)


def second_order(geometry: Geometry, step: Numbers) -> Numbers:
    """Return D'²η²/8, the upper bound of the second-order term of Φ in a step of length η."""
    moved = geometry.diameter * step
    return moved * moved / 8
