"""A run of normalized steepest descent in a norm, with momentum, and the rounding errors of its steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.risk import scaled_gradient
from reference_attention.training.steepest_descent import steepest_descent
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Ended, Form, NotANumber, Verdict, at_least
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.descent_steps import starts_claim
from theorems.steepest_descent.geometry import Geometry, RowGeometry

STEEPEST_ROUNDING = tolerance(
    "steepest-rounding",
    "the error bounds of both sides, where the error of a step is η (2‖δM‖_*/‖M‖_* + 8 d eps) + eps ‖|p(t+1)|‖, and"
    " that of Φ is D times the sum of these",
    "Δ is steepest for the computed M, whose error δM is that of the gradients (AttentionAt.gradient_of) and of t sums"
    " and exponentials; η Δ is added to p and rounded once; Φ changes by at most D times a step's length",
)
RUN_IS_ASKED_FOR = premise("steepest-run-is-the-one-asked-for")
IS_STEEPEST = premise("iterate-is-a-steepest-step")
IS_SHORT = premise("step-is-no-longer-than-asked-for")
RUN_PREMISES = (RUN_IS_ASKED_FOR, IS_STEEPEST, IS_SHORT)


@dataclass(frozen=True, eq=False)
class StepSchedule:
    """The lengths η_t of the steps of a run, (t,), and its momentum β."""

    lengths: Float64[np.ndarray, "t"]
    momentum: float

    @cached_property
    def time(self) -> Numbers:
        """The total length Σ_{s≤t} η_s up to and including step t, for each t, (t,)."""
        return np.cumsum(exact(self.lengths))

    @cached_property
    def since(self) -> Numbers:
        """The length ℓ_ts = Σ_{s≤r<t} η_r, a bound of the distance of p(t) from p(s), (t, t); 0 for s ≥ t."""
        before = self.time - self.lengths
        return np.maximum(before[:, None] - before[None], 0.0)

    @cached_property
    def log_memory(self) -> Numbers:
        """The logarithms of the weights β^{t−s} of gradient s at step t, (t, t); −∞ for s > t."""
        steps = np.arange(len(self.lengths))
        ago = steps[:, None] - steps[None]
        if not self.momentum:
            return exact(np.where(ago == 0, 0.0, -np.inf))
        return np.where(ago >= 0, np.log(exact(self.momentum)) * np.maximum(ago, 0), -np.inf)


@dataclass(frozen=True, eq=False)
class SteepestRun:
    """The iterates of a run and the errors of its steps.

    Attributes:
        schedule: the step lengths and the momentum of the run.
        p: p(0) … p(t), floats, (t + 1, b, d).
        step_error: bounds of the distance of each step from an exact steepest step, in the run's norm, (t, b).
    """

    schedule: StepSchedule
    p: Numbers
    step_error: Float64[np.ndarray, "t b"]

    def first(self, steps: int) -> SteepestRun:
        """Return the run of the first ``steps`` steps."""
        schedule = StepSchedule(self.schedule.lengths[:steps], self.schedule.momentum)
        return SteepestRun(schedule, self.p[: steps + 1], self.step_error[:steps])


def follow(
    geometry: Geometry, under_test: Implementation, starts: Float64[np.ndarray, "b d"], schedule: StepSchedule
) -> Generator[Claim, None, SteepestRun]:
    """Yield the claims that the run under test is steepest descent, and return the run.

    Use it as ``run = yield from follow(…)``.

    With M_t = β M_{t−1} + (1 − β)∇L(p(t)) the claims are ⟨−M_t, p(t+1) − p(t)⟩ ≥ η_t‖M_t‖_* and ‖p(t+1) − p(t)‖ ≤ η_t.
    These claims define a steepest step in every norm, even if the steepest direction is not unique.

    Raises:
        Ended: the start or the number of points is not as requested, or a step is not steepest.
        NotANumber: an iterate is not finite.
    """
    problem = geometry.problem
    points = under_test[steepest_descent](
        problem,
        starts,
        lengths=schedule.lengths,
        norm=geometry.norm,
        momentum=schedule.momentum,
        gradient=under_test[scaled_gradient],
    )
    yield from claim_start(points, starts, schedule)
    before = points[:-1]
    at = AttentionAt(problem, before.reshape(-1, problem.d))
    gradient = at.gradient_of(under_test, IS_STEEPEST).reshape(before.shape)
    return (yield from claim_steps(geometry, points, gradient, at.log_scale.reshape(before.shape[:-1]), schedule))


def claim_start(
    points: Float64[np.ndarray, "r b d"], starts: Float64[np.ndarray, "b d"], schedule: StepSchedule
) -> Iterator[Claim]:
    """Claim that the run begins at the requested start and has the requested number of points.

    Raises:
        Ended: the start or the number of points is not as requested.
        NotANumber: an iterate is not finite.
    """
    claim = starts_claim(RUN_IS_ASKED_FOR, points, starts, len(schedule.lengths))
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    if not np.isfinite(points).all():
        raise NotANumber(IS_STEEPEST, "an iterate is not finite")


def claim_steps(
    geometry: RowGeometry,
    points: Float64[np.ndarray, "r b d"],
    gradient: Numbers,
    log_scale: Float64[np.ndarray, "t b"],
    schedule: StepSchedule,
) -> Generator[Claim, None, SteepestRun]:
    """Yield the claims that each step is steepest for the gradients so far and at most η_t long; return the run.

    Args:
        geometry: the rows in the norm of the run.
        points: the iterates, (t + 1, b, d).
        gradient: the gradients divided by e^{log_scale}, (t, b, d).
        log_scale: the logarithms of the divisors of the gradients, (t, b).
        schedule: the step lengths and the momentum of the run.
    """
    before, after, lengths = points[:-1], points[1:], schedule.lengths
    average, error = remember(gradient, log_scale, schedule)
    moved: Any = exact(after) - before
    size, step = geometry.dual_length(average), exact(lengths)[:, None]
    # The run's M may differ from ``average`` by ``error`` because of rounding; its step is then steepest for its own M.
    wrong = 2 * geometry.dual_norm_bound(error)
    added = geometry.norm_bound(EPS * np.abs(after)) + 8 * points.shape[-1] * EPS * step
    room = value_of(step * wrong + added * geometry.dual_norm_bound(np.abs(value_of(average))))
    descent = np.vecdot(-average, moved).widen(room * (1 + 16 * EPS))
    yield at_least(IS_STEEPEST, Form.EXACT, descent, step * size, why=STEEPEST_ROUNDING, points="step")
    long = geometry.length(moved)
    yield at_least(IS_SHORT, Form.EXACT, step + added, long, why=STEEPEST_ROUNDING, points="step")
    least = np.maximum(size.value - size.error, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.fmin(value_of(wrong) * (1 + 16 * EPS) / least, 2.0)
    step_error = value_of(step * share + added) * (1 + 16 * EPS)
    return SteepestRun(schedule, exact(points), step_error)


def remember(
    gradient: Numbers, log_scale: Float64[np.ndarray, "t b"], schedule: StepSchedule
) -> tuple[Numbers, Float64[np.ndarray, "t b d"]]:
    """Return M_t e^{−S_t} for M_t = Σ_{s≤t} β^{t−s} ∇_s, and the rounding error that the run under test may make in it.

    ∇_s is the gradient of step s, and e^{S_t} is the unit of the largest term. M_t is computed as a sum over all
    gradients, not by the recursion of the run under test; the factor 1 − β is left out.
    """
    if not schedule.momentum:
        return gradient, gradient.error
    logs: Any = schedule.log_memory[:, :, None] + log_scale[None]
    top = np.max(value_of(logs), axis=1)
    weights: Any = np.exp(logs - top[:, None])
    average: Any = np.einsum("tsb,sbd->tbd", weights, gradient)
    # At every later step the recursion multiplies a gradient by an exponential, with an error of sizes · eps or less.
    sizes = 8 + 4 * np.abs(log_scale).max() + 4 * abs(np.log(schedule.momentum)) + gradient.shape[-1]
    steps = np.arange(len(log_scale))
    since = np.maximum(steps[:, None] - steps[None], 0) + 1.0
    loops = np.einsum("tsb,sbd->tbd", value_of(weights) * since[:, :, None], np.abs(gradient.value))
    error = average.error + EPS * sizes * loops
    return average.widen(EPS * sizes * loops), error


def momentum_lag(
    schedule: StepSchedule, moves: Numbers, turns: Numbers, apart: Numbers, range_of_slopes: Numbers, last: Numbers
) -> Numbers:
    """Return τ_t, (t,): a bound of the total variation between the weights of the rows in M_t and in ∇Φ.

    τ_t = Σ_{s≤t} β^{t−s} e^{Dℓ + r} tanh((D'ℓ + apart)/4) / Σ_{s≤t} β^{t−s} e^{−(Dℓ + r)}, or 1 if that is larger,
    where ℓ is the length moved from step s to step t, and r = ``range_of_slopes`` for s < t and ``last`` for s = t. If
    the log-ratio of two distributions has a range of x, their total variation is at most tanh(x/4).

    Args:
        schedule: the step lengths, which give ℓ, and the momentum β.
        moves: D, the most by which the logarithm of a gradient's size changes per unit of length.
        turns: D', the most by which the difference of two rows' log-weights changes per unit of length.
        apart: a bound of the part of the change of this difference that does not come from the length moved.
        range_of_slopes: a bound of the part of the change of the logarithm of a gradient's size that does not come from
            the length moved.
        last: the value of ``range_of_slopes`` for s = t.
    """
    now = np.eye(len(schedule.lengths), dtype=bool)
    change: Any = moves * schedule.since + np.where(now, last, range_of_slopes)
    turned = np.tanh((turns * schedule.since + apart) / 4)
    # Terms may be cut to e^300, because already such a term makes the quotient exceed 1.
    above = np.exp(np.minimum(schedule.log_memory + change, 300.0)) * turned
    below = np.exp(schedule.log_memory - np.minimum(change, 1e4))
    return np.minimum(np.sum(above, axis=1) / np.sum(below, axis=1), 1.0)
