"""Adam without ε on attention: from a start of sufficient margin, its direction tends to the largest ℓ∞ margin.

Main result: a lower bound of the margin at every step, for any number of inputs, any scores and any loss of Assumption
A.

References: derived here; :mod:`theorems.steepest_descent.steepest_from_a_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.risk import scaled_gradient
from reference_attention.training.iteration import batch_field
from theorems.adaptive_methods.adam_bounds import ADAM_PREMISES, DIRECTION, IS_ADAM, AdamBounds, AdamRun, follow_adam
from theorems.adaptive_methods.adam_max_margin import adam_steps
from theorems.adaptive_methods.gradient_proxy import attention_proxy
from theorems.adaptive_methods.inexact_steps import (
    FALLS,
    STEP_CLAIMS,
    InexactSteps,
    attention_gain,
    least_path,
    steps_until_below,
)
from theorems.bounded import exact
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.margin_points import starts_with_margin
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.steepest_descent.geometry import Geometry, certify_margin
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_from_a_margin import (
    ASSUMPTIONS,
    SteepestConstants,
    margin_cases,
    steepest_from_a_margin,
)
from theorems.steepest_descent.steepest_one_input import affordable_steps
from theorems.steepest_descent.steepest_run import RUN_IS_ASKED_FOR, StepSchedule

STEPS = 100
SPARE = 0.01
"""The largest decrease of the margin for which the bounds hold.

χ, a bound that grows as margins fall, is evaluated at the known margin less this number.
"""


@dataclass(frozen=True, eq=False)
class WideGeometry(Geometry):
    """The rows with 2D in place of D': starts then need a larger margin, at which χ is small compared with γ/D."""

    @cached_property
    def diameter(self) -> Numbers:
        """The bound 2D of D', the largest distance of two rows."""
        return 2 * self.reach


@statement(
    "adam-from-a-margin",
    "Adam without ε on attention, from a start of sufficient margin",
    source="own",
    claims=(SVM_IS_OPTIMAL, NORM_MARGIN, RUN_IS_ASKED_FOR, *ADAM_PREMISES, DIRECTION, *STEP_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=margin_cases,
    kernel=SATURATED,
    needs=dict(steepest_from_a_margin.needs),
)
def adam_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and ATT-SVM feasible; the notation is that of steepest-from-a-margin.

    There Φ_c is a potential with coefficients c, χ(m) a bound that vanishes as the margin m grows, γ the largest
    margin, and D and D' are the largest length of a row and the largest distance of two rows.

    In ‖·‖_∞ let m̲_0 = log c_min − Φ_c(p(0)), m̲_{t+1} = m̲_t + b_t with the b_t below, χ_{t,s} = χ(min_{t−s≤r≤t}
    m̲_r), and let A_t, a, b, c, ρ, τ, σ, κ_t be as in adam-max-margin, but with e^{Dℓ_s + χ_{t,s}} − 1 in place of
    e^{Dℓ_s} − 1 in the terms s ≥ 1 of τ and σ, and with 0 in the terms s = 0. Let p(t+1) = p(t) − η_t A_t. As long as
    all χ are finite,

        Φ_c(p(t+1)) ≤ Φ_c(p(t)) − b_t,    b_t = η_t(κ_t − D'ρ_t tanh(χ_{t,0}/4)) − D'²ρ_t²η_t²/8,
        m(p(t)) ≥ m̲_t,    ‖p(t)‖_∞ ≤ ‖p(0)‖_∞ + Σηρ.

    Suppose that b_t ≥ 0 from the start, which holds for η up to about γ(1−β2)/D² and start margins a few units above
    the margin that steepest-from-a-margin needs. Then χ vanishes geometrically, and for β1 = β2 and η_t = η_0/√t the
    gap γ − m/‖p‖_∞ is O(log t/√t): Adam's direction tends to the solution of ATT-SVM in ‖·‖_∞.

    **Derivation.** −∇L = ΣCg with C = c_it e^{ε − g·p}, where ε lies in one interval of length χ(m) for all points of
    margin at least m (steepest-from-a-margin): from p(t−s) to p(t), log C changes by at most Dℓ_s + χ_{t,s}, and not at
    all for s = 0. So the derivation of adam-max-margin holds with Z = ΣC for G: ⟨∇L, A_t⟩ ≥ κ_tZ. Weights C/Z and those
    of −∇Φ_c are within tanh(χ/4) in total variation, and the numbers −A·g of two rows differ by at most ρD': ⟨−∇Φ_c,
    −A_t⟩ ≥ κ_t − D'ρ_t tanh(χ/4). The second derivative is at most D'²ρ²/4, and m ≥ log c_min − Φ_c.

    For step t, χ is evaluated at the lower bound of the margin of p(s), where s is the largest power of two up to t.
    """
    problem, rng = case.problem, case.rng()
    svm = yield from certify(problem, problem.optimal, under_test)
    geometry = yield from certify_margin(problem, math.inf, under_test)
    bounds = adam_steps(geometry, rng, min(STEPS, affordable_steps(problem)))
    room = (1 - bounds.betas.second) * float(rng.choice([1 / 16, 1 / 128]))
    constants = SteepestConstants(problem, svm, WideGeometry(problem, geometry.solution), room)
    starts = starts_with_margin(case, constants, rng)
    run = yield from follow_attention(geometry, bounds, under_test, starts, constants.log_c)
    changes = known_changes(run, constants.change)
    if changes is None:
        raise Undecided(FALLS, "the first step may lower the margin, and then no bound holds", Form.EFFECTIVE)
    first, chi = changes
    yield from run.claims(first, np.tanh(exact(chi) / 4))


@dataclass(frozen=True, eq=False)
class AttentionRun:
    """A run of Adam on attention (symbols: see :func:`adam_from_a_margin`).

    Attributes:
        geometry: rows, γ, D and D' in ‖·‖_∞.
        run: the iterates and bounds of their rounding errors.
        log_c: the logarithms of the coefficients c of Φ_c, (N,).
        proxy: Z at all iterates except the last, in units of the gradients, (t, b).
    """

    geometry: Geometry
    run: AdamRun
    log_c: Numbers
    proxy: Numbers

    @property
    def step_error(self) -> Float64[np.ndarray, "t b"]:
        """Upper bounds, (t, b), of how much less the potential Φ_c falls in step t because the step is inexact."""
        return self.run.step_error(self.proxy)

    def phi(self, points: Numbers) -> Numbers:
        """Return the potential Φ_c at points, (*b,)."""
        return np.logaddexp.reduce(self.log_c - points @ self.geometry.rows.T, axis=-1)

    def gain(self, bounds: AdamBounds, turned: Any = 0.0) -> Numbers:
        """Return b = η(κ − D'ρ tanh(χ/4)) − D'²ρ²η²/8, lower bounds of the fall of Φ_c in each step, (t,).

        ``turned`` is tanh(χ/4). Symbols: see :func:`adam_from_a_margin`.
        """
        rho = bounds.rho * (1 + bounds.excess)
        kappa = bounds.kappa - self.geometry.diameter * rho * turned
        return attention_gain(self.geometry, exact(bounds.schedule.lengths), kappa, rho)

    def claims(self, bounds: AdamBounds, turned: Any = 0.0) -> Iterator[Claim]:
        """Yield the claims on each step's direction, the fall of the potential Φ_c, the margin m(p) and m(p)/‖p‖_∞."""
        steps = len(bounds.schedule.lengths)
        yield self.run.direction_claim(bounds, self.proxy)
        points, gain = self.run.points[: steps + 1], self.gain(bounds, turned)[:, None]
        yield from InexactSteps(
            self.geometry,
            points,
            self.phi(points),
            np.min(self.log_c),
            gain,
            self.step_error[:steps],
            bounds.time[:, None],
        ).claims()


def follow_attention(
    geometry: Geometry,
    bounds: AdamBounds,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    log_c: Numbers,
) -> Generator[Claim, None, AttentionRun]:
    """Yield the claims that the run under test is Adam's, and return the run."""
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
    """Return the bounds of the first steps, as many as can be proven, and χ for each step; None if no step has a bound.

    χ of step t is evaluated at the lower bound of the margin of p(s) less :data:`SPARE`, where s is the largest power
    of two up to t. The bounds end at the first step after which the margin may have fallen by more than :data:`SPARE`.

    Args:
        attention: the run.
        change: the function that maps a margin to χ, ∞ where a coefficient may be negative.
    """
    whole, step_error = attention.run.bounds, attention.step_error
    first: Any = np.min(attention.log_c) - attention.phi(attention.run.points[0])
    margin, steps, t = float(np.min(first.value - first.error)), len(step_error), 0
    chi, most = np.zeros(steps), 0
    while t < steps:
        until = min(steps, max(1, 2 * t))
        chi[t:until] = change(margin - SPARE)
        if not np.isfinite(chi[t]):
            break
        bounds = _first_steps(whole, until, chi)
        gain: Any = attention.gain(bounds, np.tanh(exact(chi[:until]) / 4))[t:until]
        path = least_path(gain, step_error[t:until])
        if (path < -SPARE).any():
            most = t + steps_until_below(path, -SPARE)
            break
        margin, most, t = margin + float(path[-1]), until, until
    return None if most == 0 else (_first_steps(whole, most, chi), chi[:most])


def _first_steps(bounds: AdamBounds, steps: int, chi: Float64[np.ndarray, "t"]) -> AdamBounds:
    schedule = StepSchedule(bounds.schedule.lengths[:steps], 0.0)
    so_far = np.where(np.tri(steps) > 0, chi[:steps], 0.0)
    return replace(bounds, schedule=schedule, further=np.maximum.accumulate(so_far[:, ::-1], axis=1)[:, ::-1])
