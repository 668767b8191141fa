"""Runs of gradient descent and normalized gradient descent by the implementation under test, and checks of these runs.

A *premise* is a claim that a run is what a theorem assumes: that it has the requested start and number of steps, and
that each step is a gradient step. The iterates carry a bound of the difference between the computed run and an exact
run. Inequalities that are summed over iterates allow for this error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem, log_smoothness
from reference_attention.risk import log_excess_risk, scaled_gradient
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop, Trajectory, gradient_descent, normalized_gradient_descent
from theorems.bounded import Bounded, exact
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import starts_claim, steps_claim

DESCENT_ROUNDING = tolerance(
    "descent-rounding",
    "the errors of both sides, where those of iterates are, by coordinate, t · max_s η|δ∇L(p(s))| + Σ_s eps (|p(s)|"
    " + |p(s+1)| + (2 + |log η∇L|)|Δ_s|)",
    "a computed iterate differs from p − η∇L(p) by the error of the gradient (AttentionAt.gradient_of), of the"
    " step's exponential and one rounding of the sum; errors add up, as inequalities are summed over iterates",
)

RUN_IS_ASKED_FOR = premise("run-is-the-one-asked-for")
IS_A_STEP = premise("iterate-is-a-step")
DESCENT_PREMISES = (RUN_IS_ASKED_FOR, IS_A_STEP)
"""The names of the premises of a run of gradient descent."""
NORMALIZED_RUN_IS_ASKED_FOR = premise("normalized-run-is-the-one-asked-for")
IS_A_NORMALIZED_STEP = premise("normalized-iterate-is-a-step")
NORMALIZED_PREMISES = (NORMALIZED_RUN_IS_ASKED_FOR, IS_A_NORMALIZED_STEP)
"""The names of the premises of a run of normalized gradient descent."""

STEPS = 1000
"""The largest number of steps of a run of gradient descent."""
RUN_SIZE, FEWEST_STEPS = 4_000_000, 50
"""The approximate number of floats in the iterates of a run, and the least number of steps: if d is large, a run has
fewer than :data:`STEPS` steps."""
KERNEL_STEPS = 200
"""The largest number of steps of gradient descent with a kernel, whose automatic differentiation takes ten times as
long."""
EVALUATIONS = 3_000_000
"""The approximate number of floats with which the iterates of a run are checked; long runs are checked at some iterates
only."""
NORMALIZED_STEPS = 50
"""The number of steps of normalized gradient descent."""
LENGTH = 0.5
"""The length of a normalized step, in units of 1/κ, where κ is about the largest |entry| of the keys."""


def starts_around(
    case: Case, svm: MaxMargin, rng: np.random.Generator
) -> tuple[Float64[np.ndarray, "b d"], Float64[np.ndarray, "b"]]:
    """Choose starts p(0), and for each the logarithm of η L_p, where η is the step size and ∇L is L_p-Lipschitz.

    The starts are the origin, a point near it, a far point, a point opposite to p_mm, and the start of the case if it
    has one.
    """
    d = case.problem.d
    scale = 1 / case.problem.key_scale
    # The start opposite to p_mm is −3p_mm, scaled down if a margin would be below −300: otherwise large margins of p_mm
    # would give softmax weights of e^{−10⁹}.
    opposite = 3 * min(1.0, 100 / float(svm.margins[np.isfinite(svm.margins)].max()))
    starts = [
        np.zeros(d),
        scale * rng.normal(size=d),
        scale * 30 * rng.normal(size=d),
        -opposite * svm.p + 0.1 * scale * rng.normal(size=d),
    ]
    if case.start is not None:
        starts.append(case.start)
    fractions = np.array([0.0, *np.log(rng.uniform(0.01, 1.0, len(starts) - 1))])
    return np.array(starts), fractions


@dataclass(frozen=True, eq=False)
class Descent:
    """A run of gradient descent p(t+1) = p(t) − η∇L(p(t)) from b starts, with t + 1 iterates, of which r are checked.

    Attributes:
        problem: the keys, scores and loss.
        under_test: the implementation that ran the descent.
        starts: the requested starts p(0), (b, d).
        log_step: log η of each start, (b,).
        steps: the number of steps requested.
        run: the trajectory that the implementation returned.
        claim: the name of the claim that fails, or is undecided, if an iterate or a gradient is not a number.
    """

    problem: Problem
    under_test: Implementation
    starts: Float64[np.ndarray, "b d"]
    log_step: Float64[np.ndarray, "b"]
    steps: int
    run: Trajectory
    claim: str

    @classmethod
    def of(
        cls,
        problem: Problem,
        under_test: Implementation,
        starts: Float64[np.ndarray, "b d"],
        fractions: Float64[np.ndarray, "b"],
        claim: str,
    ) -> Descent:
        """Run the gradient descent under test with step sizes η = e^{fractions}/L_p, ``fractions`` of shape (b,)."""
        log_step = fractions - under_test[log_smoothness](problem)
        most = KERNEL_STEPS if under_test.textbook_eps else STEPS
        steps = min(most, max(FEWEST_STEPS, RUN_SIZE // starts.size))
        run = under_test[gradient_descent](
            problem, starts, steps=steps, log_step=log_step, gradient=under_test[scaled_gradient]
        )
        return cls(problem, under_test, starts, log_step, steps, run, claim)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that starts and steps are as requested, and that each checked iterate p moves to p − η∇L(p).

        Raises:
            Ended: the run does not have the requested starts and number of steps.
            Undecided: a step overflows, or rounding leaves no digit of a gradient.
            NotANumber: an iterate is not finite.
        """
        first_claim = starts_claim(RUN_IS_ASKED_FOR, self.run.points, self.starts, self.steps)
        yield first_claim
        if first_claim.verdict is Verdict.FALSIFIED:
            raise Ended(first_claim.name)
        if self.run.stop is Stop.OVERFLOW:
            raise Undecided(self.claim, "a step of gradient descent overflows float64", Form.EFFECTIVE)
        if not np.isfinite(self.run.points).all():
            raise NotANumber(self.claim, "an iterate of gradient descent is not finite")
        if not np.isfinite(self.at.gradient).all():
            raise Undecided(self.claim, "a gradient has no digits left in float64", Form.EFFECTIVE)
        t, shape = self.checked_iterates[:-1], (len(self.checked_iterates), *self.run.points.shape[1:])
        gradient, log_scale = -self.direction.reshape(shape), self.at.log_scale.reshape(shape[:2])
        points = self.run.points
        yield steps_claim(IS_A_STEP, points[t], points[t + 1], gradient[:-1], log_scale[:-1], self.log_step)

    @cached_property
    def checked_iterates(self) -> Int64[np.ndarray, "r"]:
        """The indices of the iterates that are checked, the first and the last among them, (r,)."""
        stride = max(1, math.ceil(self.run.points.size * self.problem.n * self.problem.T / EVALUATIONS))
        return np.unique(np.append(np.arange(0, self.steps + 1, stride), self.steps))

    @cached_property
    def at(self) -> AttentionAt:
        """The attention at the checked iterates, flattened to r·b points."""
        points = self.run.points[self.checked_iterates].reshape(-1, self.problem.d)
        return AttentionAt(self.problem, points, self.under_test.textbook_eps)

    @cached_property
    def direction(self) -> Bounded:
        """The directions −∇L e^{−log_scale} under test at the checked iterates, (r·b, d)."""
        return -self.at.gradient_of(self.under_test, self.claim)

    @cached_property
    def norms(self) -> Bounded:
        """The norms ‖p(t)‖ of all computed iterates, (t + 1, b)."""
        return norm(exact(self.run.points), axis=-1)

    @property
    def p(self) -> Bounded:
        """The checked iterates, (r, b, d), with a bound of their distance from exact iterates as their error.

        The exact iterate is p(0) − Σ η∇L, with exact gradients at the computed iterates.
        """
        drift = np.concatenate([np.zeros_like(self._rounding[:1]), np.cumsum(self._rounding, axis=0)])
        return exact(self.run.points[self.checked_iterates]).widen(drift[self.checked_iterates])

    @property
    def increments(self) -> Bounded:
        """The increments p(t+1) − p(t), (t, b, d), with a bound of their distance from −η∇L(p(t)) as their error."""
        return exact(np.diff(self.run.points, axis=0)).widen(self._rounding)

    @cached_property
    def _rounding(self) -> Float64[np.ndarray, "t b d"]:
        """A bound of each step's distance from −η∇L, by coordinate, with the largest error of ∇L at checks so far."""
        shape = (len(self.checked_iterates), len(self.log_step))
        logs = self.log_step + self.at.log_scale.reshape(shape)
        of_gradient = np.exp(np.minimum(logs, 700.0))[..., None] * self.direction.error.reshape(*shape, -1)
        points = self.run.points
        last = np.searchsorted(self.checked_iterates, np.arange(len(points) - 1), side="right") - 1
        moved = np.diff(points, axis=0)
        sizes = np.abs(points[1:]) + np.abs(points[:-1]) + (2 + np.abs(logs[last]))[..., None] * np.abs(moved)
        return np.asarray(np.maximum.accumulate(of_gradient, axis=0)[last] + EPS * sizes)

    def drop(self, claim: str) -> Bounded:
        """Return η (L(p(0)) − L_opt) under test, (b,), with the error that a correct implementation may have.

        L_opt is the risk if all weight is on the optimal tokens.

        Raises:
            NotANumber: the excess risk is NaN, so that the claim named ``claim`` fails.
        """
        problem = self.problem
        _, log_excess = self.under_test[log_excess_risk](
            problem.keys, problem.scores, problem.loss, self.starts, problem.optimal
        )
        drop = np.exp(np.minimum(self.log_step + log_excess, 700.0))
        if np.isnan(drop).any():
            raise NotANumber(claim, "the excess risk under test is NaN")
        return exact(drop).widen(128 * problem.d * EPS * (1 + self.norms[0].value) * drop)


@dataclass(frozen=True, eq=False)
class NormalizedDescent:
    """A run of normalized gradient descent p(t+1) = p(t) − s ∇L/‖∇L‖ from b starts, checked at every iterate.

    Attributes:
        problem, under_test, starts, run: the same as for :class:`Descent`.
        length: the length s of each step.
    """

    problem: Problem
    under_test: Implementation
    starts: Float64[np.ndarray, "b d"]
    length: float
    run: Trajectory

    @classmethod
    def of(cls, problem: Problem, under_test: Implementation, starts: Float64[np.ndarray, "b d"]) -> NormalizedDescent:
        """Run the normalized gradient descent under test, with steps that together change logits by several units."""
        length = LENGTH / problem.key_scale
        run = under_test[normalized_gradient_descent](
            problem, starts, steps=NORMALIZED_STEPS, step=length, gradient=under_test[scaled_gradient]
        )
        return cls(problem, under_test, starts, length, run)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that starts and steps are as requested, and that each step is a normalized gradient step.

        Raises:
            Ended: the run does not have the requested starts and number of steps, or reports an overflow.
            NotANumber: an iterate is not finite.
        """
        first_claim = starts_claim(NORMALIZED_RUN_IS_ASKED_FOR, self.run.points, self.starts, NORMALIZED_STEPS)
        yield first_claim
        if first_claim.verdict is Verdict.FALSIFIED or self.run.stop is Stop.OVERFLOW:
            raise Ended(first_claim.name)
        if not np.isfinite(self.run.points).all():
            raise NotANumber(IS_A_NORMALIZED_STEP, "an iterate of normalized gradient descent is not finite")
        before, after = self.run.points[:-1], self.run.points[1:]
        log_scale = self.at.log_scale.reshape(before.shape[:-1])
        log_step = float(np.log(self.length))
        yield steps_claim(IS_A_NORMALIZED_STEP, before, after, self.gradient, log_scale, log_step, normalized=True)

    @cached_property
    def at(self) -> AttentionAt:
        """The attention at all iterates but the last one, flattened to t·b points."""
        return AttentionAt(self.problem, self.run.points[:-1].reshape(-1, self.problem.d), self.under_test.textbook_eps)

    @cached_property
    def gradient(self) -> Bounded:
        """The gradients ∇L e^{−log_scale} under test at all iterates but the last one, (t, b, d)."""
        return self.at.gradient_of(self.under_test, IS_A_NORMALIZED_STEP).reshape(self.run.points[:-1].shape)

    @property
    def times(self) -> Bounded:
        """The numbers of steps 1, 2, …, t after each iterate but the start, (t, 1)."""
        return exact(np.arange(NORMALIZED_STEPS + 1.0))[1:, None]

    @property
    def displacements(self) -> Bounded:
        """The displacements p(t) − p(0), (t, b, d), with a bound of their distance from exact steps as their error."""
        # An iterate is rounded once, and its step has the error of the direction of the gradient: if the gradient g is
        # known up to an error, so that it may be h, |g/|g| − h/|h|| ≤ 2|g − h|/|g|, and at most 2. The errors of all
        # previous steps add up.
        off = 2 * norm(self.gradient.error, axis=-1) / np.maximum(norm(self.gradient.value, axis=-1), EPS)
        drift = EPS * np.abs(self.run.points[1:]) + self.length * np.fmin(off, 2.0)[..., None]
        moved = exact(self.run.points) - self.run.points[0]
        return moved[1:].widen(np.cumsum(drift, axis=0))
