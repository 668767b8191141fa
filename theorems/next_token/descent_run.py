"""A run of gradient descent on the loss of next-token prediction, with a bound of its distance from the exact run.

A step of size η ≤ 2/β does not increase the distance between two points, since the loss is convex and β-smooth. So a
run whose steps have errors ξ_s stays within Σ‖ξ_s‖ of the exact run from the same start.

Reference: derived here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.next_token.next_token_descent import next_token_descent, smoothness
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Ended, Form, NotANumber, Verdict, at_least
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.next_token.limits import Limits
from theorems.next_token.loss_parts import LossParts
from theorems.rounding.attention_at import Numbers
from theorems.rounding.descent_steps import starts_claim

STEP_ROUNDING = tolerance(
    "next-token-step-rounding",
    "twice the error bound of θ_{k+1} − θ_k + η∇L(θ_k), and eps (|θ_{k+1}| + 4η|∇L|) by coordinate",
    "a loop computes the gradient by formulas like those whose error is bounded here, multiplies it by η and"
    " subtracts it",
)
RUN_IS_ASKED_FOR = premise("next-token-run-is-the-one-asked-for")
IS_A_STEP = premise("next-token-iterate-is-a-step")
RUN_PREMISES = (RUN_IS_ASKED_FOR, IS_A_STEP)
STEPS = 300
SHORTEST = 0.05
"""The smallest random step size η, in units of 1/β, with β the smoothness of the loss."""


@dataclass(frozen=True, eq=False)
class DescentRun:
    """The iterates θ_0 … θ_k of b runs from several starts, and the errors of their steps.

    Attributes:
        step: the step size η.
        at: the parts of the loss at all iterates, (k + 1, b).
        step_error: bounds of the distance of each step from an exact step, (k, b).
    """

    step: float
    at: LossParts
    step_error: Float64[np.ndarray, "k b"]

    @property
    def limits(self) -> Limits:
        """The limits Ŝ, θ_mm and θ_⋆ of training."""
        return self.at.limits

    @cached_property
    def count(self) -> Float64[np.ndarray, "k 1"]:
        """The indices 1, …, k of the iterates after the start, (k, 1)."""
        return np.arange(1.0, len(self.step_error) + 1)[:, None]

    @cached_property
    def drift(self) -> Numbers:
        """Bounds of the distances of the iterates θ_1, …, θ_k from those of the exact run, (k, b)."""
        return np.cumsum(exact(self.step_error), axis=0)

    def start_to_ray(self, r: Float64[np.ndarray, "*b"]) -> Numbers:
        """Return ‖θ_0 − ϑ_r‖² for each start θ_0 and each point ϑ_r = θ_⋆ + rθ_mm, (*b, b)."""
        away: Any = exact(self.at.y[0]) - exact(r)[..., None, None] * self.limits.ray
        return np.sum(exact(self.at.x[0]) ** 2, axis=-1) + np.sum(away**2, axis=-1)


def chosen_step(step: float, limits: Limits, rng: np.random.Generator) -> float:
    """Return the step size η of the case, or a random one if it has none.

    A random η is at most 1/β, with β the smoothness of the loss, or at most 1 if the loss is constant (β = 0).
    """
    share, bound = float(np.exp(rng.uniform(np.log(SHORTEST), 0.0))), smoothness(limits.problem)
    return step or (share / bound if bound > np.finfo(np.float64).tiny else share)


def starts(
    limits: Limits, start: Float64[np.ndarray, "D"] | None, rng: np.random.Generator
) -> tuple[Float64[np.ndarray, "b r"], Float64[np.ndarray, "b s"]]:
    """Return three starts: 0; the case's start or a point near 0; and θ_⋆ − 3θ_mm, where margins are −3 or less.

    θ_⋆ and θ_mm are the limits of :mod:`.limits`. A start θ is given by the coordinates of P_Fθ − θ_⋆ and of P_⊥θ.
    """
    split, r = limits.split, limits.split.dimension
    size = max(float(np.linalg.norm(split.outside, axis=2).max()), float(value_of(limits.span)), 1e-300)
    first = rng.normal(size=limits.problem.dimension) / size if start is None else start
    points = split.coordinates_of(np.array([np.zeros_like(first), first]) - limits.minimum.floats)
    behind = np.concatenate([np.zeros(r), -3 * value_of(limits.ray)])
    points = np.concatenate([points, behind[None]])
    return points[:, :r], points[:, r:]


def follow(
    limits: Limits,
    under_test: Implementation,
    x: Float64[np.ndarray, "b r"],
    y: Float64[np.ndarray, "b s"],
    step: float,
    steps: int = STEPS,
    *,
    normalized: bool = False,
) -> Generator[Claim, None, DescentRun]:
    """Yield the claims that the run under test is gradient descent, and return the run.

    Use it as ``run = yield from follow(…)``.

    Args:
        limits: the limits of training.
        under_test: the implementation under test.
        x: the coordinates of P_F θ_0 − θ_⋆, (b, r).
        y: the coordinates of P_⊥ θ_0, (b, s).
        step: the step size η, or the step length if steps are normalized.
        steps: the number of steps.
        normalized: True if the gradient is divided by its norm.

    Raises:
        Ended: the start or the number of points is not as requested, or a step is not a step of gradient descent.
        NotANumber: an iterate is not finite.
    """
    run = under_test[next_token_descent](limits.minimum, x, y, step=step, steps=steps, normalized=normalized)
    points = np.concatenate([run.x, run.y], axis=-1)
    claim = starts_claim(RUN_IS_ASKED_FOR, points, np.concatenate([x, y], axis=-1), steps)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    if not np.isfinite(points).all():
        raise NotANumber(IS_A_STEP, "an iterate is not finite")
    at = LossParts(limits, run.x, run.y)
    gradient: Any = at.gradient[:-1]
    if normalized:
        gradient = gradient / at.gradient_norm[:-1, :, None]
    moves = exact(step) * gradient
    residual: Any = exact(points[1:]) - points[:-1] + moves
    distances = np.sqrt(np.sum((np.abs(residual.value) + np.asarray(residual.error)) ** 2, axis=-1)) * (1 + 64 * EPS)
    room = np.asarray(residual.error) + EPS * (np.abs(points[1:]) + 4 * np.abs(value_of(moves)))
    claim = at_least(
        IS_A_STEP, Form.EXACT, 0.0, np.abs(residual.widen(room)), why=STEP_ROUNDING, points="coordinate of a step"
    )
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    return DescentRun(step, at, distances)
