"""Descent with momentum on batches: the run, its claims, and how far the mean M_t of batches' gradients is from ∇L.

Sample i has the weight π_i and the gradient ∇ℓ_i; its share in the batch of step t is c_i(t). The derivations are in
:mod:`.minibatch_momentum` and :mod:`.minibatch_from_a_margin`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.adaptive_methods import EPOCHS, FULL, REPLACED, batch_schedule, epoch_length
from reference_attention.exact import to_floats
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.norms import Norm
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, scaled_gradient
from reference_attention.training.steepest_descent import steepest_steps
from theorems.adaptive_methods.inexact_steps import LARGEST_EXPONENT
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Ended, Form, Verdict
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.label_loss import LabelGeometry, softplus
from theorems.steepest_descent.steepest_run import IS_STEEPEST, SteepestRun, StepSchedule, claim_start, claim_steps

Points = Float64[np.ndarray, "b d"]
Shares = Float64[np.ndarray, "t n"]
Samples = Callable[[Points], ScaledGradient]
"""The type of a function points (b, d) → ∇ℓ_i of all samples, as log scales (b, n) and directions (b, n, d)."""
SCHEDULE = premise("batches-are-those-asked-for")


@dataclass(frozen=True, eq=False)
class BatchSchedule:
    """The batches of a run, as shares of the samples at each step.

    Attributes:
        kind: one of :data:`generators.adaptive_methods.KINDS`.
        size: samples in a batch.
        shares: the share c_i(t) of sample i in the batch of step t, (t, n).
    """

    kind: str
    size: int
    shares: Shares


def label_samples(problem: MasterProblem, theta: Points) -> ScaledGradient:
    """Return ∇ℓ_i = −Σ_v s_iv g_iv for rows g_iv with softmax weights s_iv, scaled by each sample's largest s_iv."""
    rows = np.array([to_floats(problem.differences[pair]) for pair in problem.pairs])
    logits = -(theta @ rows.T).reshape(len(theta), problem.contexts, -1)
    top = logits.max(axis=-1)
    terms = np.exp(logits - top[..., None])
    scale = top - np.logaddexp(0.0, np.logaddexp.reduce(logits, axis=-1))
    return ScaledGradient(scale, -np.einsum("bnv,nvd->bnd", terms, rows.reshape(problem.contexts, -1, rows.shape[1])))


def attention_samples(geometry: Geometry, under_test: Implementation) -> Samples:
    """Return the function that computes ∇ℓ_i of attention for each input i with the gradient under test."""
    problem = geometry.problem

    def samples(points: Points) -> ScaledGradient:
        each = [
            under_test[scaled_gradient](problem.keys[i : i + 1], problem.scores[i : i + 1], problem.loss, points)
            for i in range(problem.n)
        ]
        return ScaledGradient(np.stack([x.log_scale for x in each], 1), np.stack([x.direction for x in each], 1))

    return samples


def batch_gradient(samples: ScaledGradient, shares: Float64[np.ndarray, "n"]) -> ScaledGradient:
    """Return the gradient Σ_i c_i ∇ℓ_i of a batch as log scales (b,) and directions (b, d)."""
    with np.errstate(divide="ignore"):
        logs = np.asarray(samples.log_scale) + np.log(shares)
    top = logs.max(axis=-1)
    top = np.where(np.isfinite(top), top, 0.0)
    direction = np.einsum("bn,bnd->bd", np.exp(logs - top[..., None]), np.asarray(samples.direction))
    return ScaledGradient(top, direction)


BatchGradient = Callable[[ScaledGradient, Float64[np.ndarray, "n"]], ScaledGradient]


def minibatch_descent(
    samples: Samples,
    start: Points,
    *,
    lengths: Float64[np.ndarray, "t"],
    norm: Norm,
    momentum: float,
    shares: Shares,
    gradient: BatchGradient = batch_gradient,
) -> Float64[np.ndarray, "r b d"]:
    """Run W(t+1) = W(t) + η_tΔ_t, Δ_t = argmax ⟨−M_t, Δ⟩ over ‖Δ‖ ≤ 1, M_t = βM_{t−1} + (1−β)Σ_i c_i(t)∇ℓ_i(W(t)).

    Args:
        samples: the function points → gradients ∇ℓ_i of all samples.
        start: W(0), a batch of starts.
        lengths: η_t.
        norm: q of ‖·‖_q, or a norm of matrices.
        momentum: β, in [0, 1).
        shares: c_i(t), the share of sample i in the batch of step t, (t, n).
        gradient: the function that adds the samples' gradients.

    Returns:
        The iterates W(0) … W(t).
    """
    batches = iter(shares)

    def field(points: Points) -> tuple[Float64[np.ndarray, "b"], Points]:
        slope = gradient(samples(points), next(batches))
        return np.asarray(slope.log_scale), np.asarray(slope.direction)

    return steepest_steps(field, start, lengths, norm, momentum)


def schedule_tried(
    weights: Float64[np.ndarray, "n"],
    steps: int,
    rng: np.random.Generator,
    under_test: Implementation,
    *,
    single: bool = False,
) -> Generator[Claim, None, BatchSchedule]:
    """Yield the claim that the batches under test are of the kind and size requested, and return them.

    Args:
        weights: the weights π_i of the samples.
        steps: number of batches.
        rng: the generator that draws kind, size and orders.
        under_test: the implementation.
        single: True if a batch must be one sample.

    Raises:
        Ended: the claim is false.
    """
    n, kind = len(weights), str(rng.choice([*EPOCHS, REPLACED, *([] if single else [FULL])]))
    size = 1 if single else int(rng.integers(1, n + 1))
    shares = under_test[batch_schedule](kind, weights, size, steps, rng)
    batches = BatchSchedule(kind, size, shares)
    wrong = schedule_fault(batches, weights, steps)
    yield (claim := Claim(SCHEDULE, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong))
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    return batches


def schedule_fault(batches: BatchSchedule, weights: Float64[np.ndarray, "n"], steps: int) -> str:
    """Return a description of the first wrong batch, or an empty text if there is none.

    Every batch must have the right size, and the batches of an epoch must together contain every sample once.
    """
    n, size, shares = len(weights), batches.size, batches.shares
    if shares.shape != (steps, n):
        return f"batches of shape {shares.shape} for {steps} steps and {n} samples"
    if batches.kind == FULL:
        return "" if np.array_equal(shares, np.tile(weights, (steps, 1))) else "a full batch has wrong weights"
    length = epoch_length(n, size)
    for t in range(steps):
        batch_size = size if batches.kind == REPLACED else min(size, n - t % length * size)
        counts = shares[t] * batch_size
        # A share is a sum of multiples of 1/batch_size, each rounded once.
        if (
            np.abs(counts - np.round(counts)).max() > 4 * batch_size * 2.0**-52
            or round(float(counts.sum())) != batch_size
        ):
            return f"the shares of batch {t} are not those of a mean over {batch_size} samples"
        if batches.kind in EPOCHS and t % length == length - 1:
            times = (shares[t - length + 1 : t + 1] > 0).sum(axis=0)
            if (times != 1).any():
                sample = int(np.argmax(times != 1))
                return f"the epoch that ends at step {t} contains sample {sample} {times[sample]} times, not once"
    return ""


def follow_label_batches(
    geometry: LabelGeometry, under_test: Implementation, starts: Points, schedule: StepSchedule, batches: BatchSchedule
) -> Generator[Claim, None, SteepestRun]:
    """Yield the claims that each step of a run on classification data is steepest for its batches; return the run."""
    problem, samples = geometry.case.problem, under_test[label_samples]
    points = _run(lambda W: samples(problem, W), geometry.norm, under_test, starts, schedule, batches)
    yield from claim_start(points, starts, schedule)
    gradient, top = label_batch_gradient(geometry, points[:-1], batches.shares)
    return (yield from claim_steps(geometry, points, gradient, top, schedule))


def label_batch_gradient(
    geometry: LabelGeometry, W: Float64[np.ndarray, "t b d"], shares: Shares
) -> tuple[Numbers, Float64[np.ndarray, "t b"]]:
    """Return Σ_i c_i(t)∇ℓ_i(W(t)) in some unit, with the error of a correct evaluation, and the unit's logarithm."""
    logits, odds = geometry.log_odds(exact(W))
    batch_shares = shares[:, None, :, None]
    with np.errstate(divide="ignore"):
        logs: Any = np.where(
            batch_shares > 0, logits - softplus(odds)[..., None] + np.log(exact(batch_shares)), -np.inf
        )
    flat = logs.reshape(*logs.shape[:-2], -1)
    top = np.max(value_of(flat), axis=-1)
    gradient = -(np.exp(flat - top[..., None]) @ geometry.rows)
    return gradient.widen(gradient.error), top


def follow_attention_batches(
    geometry: Geometry, under_test: Implementation, starts: Points, schedule: StepSchedule, batches: BatchSchedule
) -> Generator[Claim, None, SteepestRun]:
    """Yield the claims that each step of a run on attention is steepest for its batches; return the run."""
    problem = geometry.problem
    points = _run(attention_samples(geometry, under_test), geometry.norm, under_test, starts, schedule, batches)
    yield from claim_start(points, starts, schedule)
    before = points[:-1]
    flat = before.reshape(-1, problem.d)
    each = [AttentionAt(input_of(problem, i), flat) for i in range(problem.n)]
    with np.errstate(divide="ignore"):
        logs = np.log(batches.shares)[:, None] + np.stack(
            [at.log_scale.reshape(before.shape[:-1]) for at in each], axis=-1
        )
    top = logs.max(axis=-1)
    gradient: Any = exact(np.zeros(before.shape))
    for i, at in enumerate(each):
        input_gradient = at.gradient_of(under_test, IS_STEEPEST).reshape(before.shape)
        gradient = gradient + np.exp(exact(logs[..., i] - top))[..., None] * input_gradient
    return (yield from claim_steps(geometry, points, gradient.widen(gradient.error), top, schedule))


def input_of(problem: Problem, i: int) -> Problem:
    """Return the problem that consists of input i alone."""
    keys = problem.exact_keys
    input_keys = OuterKeys(keys.tokens[[i]], keys.queries[[i]]) if isinstance(keys, OuterKeys) else keys[[i]]
    return Problem(input_keys, problem.scores[[i]], problem.loss)


def _run(
    samples: Samples,
    norm: Norm,
    under_test: Implementation,
    starts: Points,
    schedule: StepSchedule,
    batches: BatchSchedule,
) -> Float64[np.ndarray, "r b d"]:
    return under_test[minibatch_descent](
        samples,
        starts,
        lengths=schedule.lengths,
        norm=norm,
        momentum=schedule.momentum,
        shares=batches.shares,
        gradient=under_test[batch_gradient],
    )


def misplaced(
    reach: Numbers, schedule: StepSchedule, shares: Shares, weights: Numbers, log_ratio: Any = 0.0
) -> Numbers:
    """Return tanh((χ_t + log_ratio)/4), (t,): a bound of the total variation between the rows' weights in M_t and ∇L.

    χ_t = log(max_i a_i^+/min_i a_i^−), a_i^± = Σ_{s≤t} β^s c_i(t−s) e^{±Dℓ_s}/π_i, ℓ_s the length of the last s steps.
    The bound is 1 until every sample has been in a batch.

    Args:
        reach: D, a bound of the change of a row's log-weight per unit of length.
        schedule: the lengths and the momentum of the run.
        shares: c_i(t), the share of sample i in the batch of step t, (t, n).
        weights: the weights π_i of the samples, (n,).
        log_ratio: a bound of all other changes of the logarithm of the ratio of two weights, (t,) or a number.
    """
    change: Any = reach * schedule.since
    far = np.any(value_of(change) + np.asarray(change.error) > LARGEST_EXPONENT, axis=1)
    change = np.minimum(change, LARGEST_EXPONENT)
    above = np.exp(schedule.log_memory + change) @ exact(shares) / weights
    below = np.exp(schedule.log_memory - change) @ exact(shares) / weights
    low: Any = np.min(below, axis=1)
    # A sample's a_i^− is positive, or 0 if the sample has not been in any batch.
    unknown = far | ~np.asarray(low > 0)
    top = np.max(above, axis=1) * np.exp(exact(0.0) + log_ratio)
    ratio: Any = np.sqrt(np.where(unknown, 1.0, low) / np.where(unknown, 1.0, top))
    return np.where(unknown, 1.0, (1 - ratio) / (1 + ratio))
