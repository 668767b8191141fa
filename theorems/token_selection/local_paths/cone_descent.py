"""Runs in a cone around p_mm: gradient descent, and descent along −∇L with the longest steps that stay in the cone.

At the norms where the cone begins, a step of gradient descent often has a length of e^{−1000}, so that all iterates are
equal as floats; the increments are therefore summed as multiples of the first step's length. The longest steps, of
lengths proportional to the distance from the cone's tip, multiply ‖p‖ by a constant factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import gradient_descent
from reference_attention.training.iteration import batch_field
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Ended, NotANumber, Verdict
from theorems.core.implementation import Implementation
from theorems.curves.cone_points import Cone, ConeView
from theorems.curves.descent import IS_A_STEP, RUN_IS_ASKED_FOR
from theorems.rounding.attention_at import Numbers
from theorems.rounding.descent_steps import starts_claim, steps_claim

Points = Float64[np.ndarray, "b d"]


@dataclass(frozen=True, eq=False)
class ConeRun:
    """A descent of t steps from b starts in a cone.

    Attributes:
        cone: the cone, with its problem.
        tip: the cone's tip a, (d,).
        under_test: the implementation whose gradient the descent follows.
        points: the iterates p(0) … p(t), rounded, (t+1, b, d).
        log_sizes: log ‖p(s+1) − p(s)‖ for each step s, (t, b); −inf where an iterate does not move.
        claim: the name of the claim that is falsified where an iterate is NaN or infinite.
    """

    cone: Cone
    tip: Float64[np.ndarray, "d"]
    under_test: Implementation
    points: Float64[np.ndarray, "records b d"]
    log_sizes: Float64[np.ndarray, "t b"]
    claim: str

    def premises(self) -> Iterator[Claim]:
        """Check that the iterates are finite; yield no claim.

        Raises:
            NotANumber: an iterate is NaN or infinite.
        """
        if not np.isfinite(self.points).all():
            raise NotANumber(self.claim, "an iterate of gradient descent is not finite")
        yield from ()

    @cached_property
    def _distinct(self) -> tuple[ConeView, Int64[np.ndarray, "records b"]]:
        """Return the distinct iterates, and for each iterate its index among the distinct ones."""
        flat = self.points.reshape(-1, self.points.shape[-1])
        distinct, inverse = np.unique(flat, axis=0, return_inverse=True)
        return ConeView(self.cone, distinct, self.under_test, self.tip), inverse.reshape(self.points.shape[:2])

    @property
    def view(self) -> ConeView:
        """The distinct iterates of all b runs, including the last iterates, as one batch."""
        return self._distinct[0]

    @property
    def index(self) -> Int64[np.ndarray, "records b"]:
        """The index of each iterate in :attr:`view`, (t + 1, b)."""
        return self._distinct[1]

    @cached_property
    def starts(self) -> ConeView:
        """The starts p(0) of the runs, as a batch, (b, d)."""
        return ConeView(self.cone, self.points[0], self.under_test, self.tip)

    def sum_of(self, increments: Numbers) -> Numbers:
        """Return Σ_{s<t} η_s x(s) for t = 1, 2, …, for the run's step sizes η_s and a quantity x of iterates.

        ``increments`` are the values of x at the distinct iterates, in units of the gradient there.
        """
        size = np.linalg.norm(value_of(self.view.descent), axis=1)[self.index[:-1]]
        factors = np.where(size > 0, np.exp(self.log_sizes) / np.where(size > 0, size, 1.0), 0.0)
        return np.cumsum(factors * increments[self.index[:-1]], axis=0)


@dataclass(frozen=True, eq=False)
class ConeDescent(ConeRun):
    """A run of gradient descent p(t+1) = p(t) − η∇L(p(t)) in a cone.

    Attributes:
        intended_starts: the requested p(0), (b, d).
        steps: the requested number of steps.
        log_step: the logarithm of the step size η.
    """

    intended_starts: Points
    steps: int
    log_step: float

    @classmethod
    def of(
        cls,
        cone: Cone,
        tip: Float64[np.ndarray, "d"],
        under_test: Implementation,
        starts: Points,
        log_step: float,
        steps: int,
        claim: str,
    ) -> ConeDescent:
        """Run the gradient descent under test with step size η = e^{log_step}."""
        run = under_test[gradient_descent](
            cone.problem, starts, steps=steps, log_step=log_step, gradient=under_test[scaled_gradient]
        )
        sizes = log_step + run.log_gradient_norm[:-1]
        return cls(cone, tip, under_test, run.points, sizes, claim, starts, steps, log_step)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the run begins at the starts, and that every iterate is followed by p − η∇L(p).

        Raises:
            Ended: the run does not have the requested starts and number of steps.
            NotANumber: an iterate is not finite.
        """
        first_claim = starts_claim(RUN_IS_ASKED_FOR, self.points, self.intended_starts, self.steps)
        yield first_claim
        if first_claim.verdict is Verdict.FALSIFIED:
            raise Ended(first_claim.name)
        yield from super().premises()
        at, before, after = self.index[:-1], self.points[:-1], self.points[1:]
        gradient, log_scale = -self.view.descent[at], self.view.log_scale[at]
        yield steps_claim(IS_A_STEP, before, after, gradient, log_scale, self.log_step)

    @property
    def unit(self) -> Float64[np.ndarray, "b"]:
        """The logarithms of the units of :attr:`climb`: log η plus the log scale of the gradient at the start, (b,)."""
        return np.asarray(self.log_step + self.view.log_scale[self.index[0]])

    @property
    def climb(self) -> Numbers:
        """The progress ⟨p(t) − p(0), p̄_mm⟩ e^{−unit} along p_mm for t = 1, 2, …, (t, b).

        The progress is computed as Σ_{s<t} η⟨−∇L(p(s)), p̄_mm⟩ e^{−unit}, a sum in which no increment is lost, however
        small.
        """
        scales = self.view.log_scale[self.index[:-1]]
        steps = np.exp(np.minimum(exact(self.log_step) + scales - self.unit, 700.0))
        return np.cumsum(steps * self.view.along[self.index[:-1]], axis=0)


def longest_steps(
    cone: Cone,
    tip: Float64[np.ndarray, "d"],
    under_test: Implementation,
    starts: Points,
    longest: Callable[[Points, Points], Float64[np.ndarray, "b"]],
    most: Float64[np.ndarray, "steps b"],
    claim: str,
) -> ConeRun:
    """Descend along −∇L, the gradient under test, with the longest steps that ``longest`` and ``most`` allow.

    Args:
        cone: the cone, with its problem.
        tip: the cone's tip a, (d,).
        under_test: the implementation whose gradient is followed.
        starts: p(0), (b, d).
        longest: the function that returns, for points p and unit vectors, the longest step from p along the vector, in
            units of ‖p − a‖, (b,).
        most: an upper bound for each step in units of ‖p − a‖, (t, b).
        claim: the name of the claim that is falsified where an iterate is NaN or infinite.
    """
    points, lengths = np.empty((len(most) + 1, *starts.shape)), np.empty(most.shape)
    points[0] = starts
    problem = cone.problem
    field = batch_field(problem.keys, problem.scores, problem.loss, under_test[scaled_gradient], starts.shape[:1])
    for s in range(len(most)):
        unit = _descent_direction(field(points[s])[1])
        from_tip = points[s] - tip
        length = np.sqrt(np.sum(from_tip * from_tip, axis=1))
        lengths[s] = np.minimum(longest(points[s], unit), most[s]) * length
        points[s + 1] = points[s] + lengths[s][:, None] * unit
    with np.errstate(divide="ignore"):
        return ConeRun(cone, tip, under_test, points, np.log(lengths), claim)


def growth(steps: int, factor: float, starts: int) -> Float64[np.ndarray, "steps b"]:
    """Return upper bounds of ‖Δ‖/‖p‖ for the steps Δ: constant in runs of even index, falling like 1/s in the others.

    All steps of these lengths together multiply ‖p‖ by at most ``factor``.
    """
    even = np.full(steps, math.log(factor) / steps)
    falling = 1 / (np.arange(steps) + 20.0)
    odd = falling * (math.log(factor) / falling.sum())
    return np.stack([even if k % 2 == 0 else odd for k in range(starts)], axis=1)


def _descent_direction(direction: Points) -> Points:
    """Return −∇L/‖∇L‖; 0 where the gradient is exactly zero."""
    size = np.sqrt(np.sum(direction * direction, axis=-1))
    positive = size > 0
    return np.where(positive[:, None], -direction / np.where(positive, size, 1.0)[:, None], 0.0)
