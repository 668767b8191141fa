"""Planted faults in Adam's moments and steps, in gradients of batches, and in the schedules of batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from generators.adaptive_methods import EPOCHS, batch_schedule, epoch_length
from reference_attention.exact import to_floats
from reference_attention.loss import Array
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.risk import ScaledGradient
from theorems.adaptive_methods.adam import (
    Betas,
    Moments,
    adam_descent,
    adam_direction,
    in_one_unit,
    in_units_of_the_largest,
    next_moments,
)
from theorems.adaptive_methods.batches import batch_gradient, label_samples, minibatch_descent
from theorems.faults.fault import Faults, Kind

RUN = Faults(Kind.RUN)
ADAM, BATCHES = "adam-max-margin", "minibatch-momentum"


@RUN.plant("adam-with-epsilon", "√V + ε for √V, ε = 1e-8", ADAM, adam_direction, size=1e-8)
def _epsilon(right: Any, size: float, moments: Moments, betas: Betas, t: int) -> Array:
    root = moments.root + size * np.exp(-np.maximum(moments.log_scale, -700.0))[:, None]
    return np.asarray(right(replace(moments, root=np.where(moments.root > 0, root, 0.0)), betas, t))


@RUN.plant("adam-otherwise-corrected", "bias correction only where none is requested", ADAM, adam_direction)
def _otherwise_corrected(right: Any, moments: Moments, betas: Betas, t: int) -> Array:
    return np.asarray(right(moments, replace(betas, corrected=not betas.corrected), t))


@RUN.plant("adam-corrects-the-mean-only", "bias correction of M, none of V", ADAM, adam_direction)
def _mean_only(right: Any, moments: Moments, betas: Betas, t: int) -> Array:
    plain = right(moments, replace(betas, corrected=False), t)
    return np.asarray(plain / (1 - betas.first ** (t + 1)) if betas.corrected else plain)


@RUN.plant("adam-corrects-the-root-only", "bias correction of V, none of M", ADAM, adam_direction)
def _root_only(right: Any, moments: Moments, betas: Betas, t: int) -> Array:
    plain = right(moments, replace(betas, corrected=False), t)
    return np.asarray(plain * math.sqrt(1 - betas.second ** (t + 1)) if betas.corrected else plain)


@RUN.plant("adam-without-root", "M/V for M/√V", ADAM, adam_direction)
def _no_root(right: Any, moments: Moments, betas: Betas, t: int) -> Array:
    return np.asarray(right(replace(moments, root=moments.root**2), betas, t))


@RUN.plant("adam-betas-swapped", "β1 and β2 swapped", ADAM, next_moments)
def _swapped(right: Any, moments: Moments, log_scale: Array, gradient: Array, betas: Betas, t: int) -> Moments:
    return right(moments, log_scale, gradient, replace(betas, first=betas.second, second=betas.first), t)


@RUN.plant("adam-mean-starts-at-gradient", "M_0 = ∇L for M_0 = (1 − β1)∇L", ADAM, next_moments)
def _mean_starts(right: Any, moments: Moments, log_scale: Array, gradient: Array, betas: Betas, t: int) -> Moments:
    result = right(moments, log_scale, gradient, betas, t)
    return replace(result, mean=result.mean / (1 - betas.first)) if t == 0 else result


@RUN.plant(
    "adam-moments-start-at-gradient",
    "M_0 = ∇L and V_0 = ∇L², without the factors 1 − β1 and 1 − β2",
    ADAM,
    next_moments,
)
def _both_start(right: Any, moments: Moments, log_scale: Array, gradient: Array, betas: Betas, t: int) -> Moments:
    result = right(moments, log_scale, gradient, betas, t)
    if t > 0:
        return result
    return replace(result, mean=result.mean / (1 - betas.first), root=result.root / math.sqrt(1 - betas.second))


def _with_root(
    moments: Moments, log_scale: Array, gradient: Array, betas: Betas, root: Callable[[Array, Array, Array], Array]
) -> Moments:
    """Return the next moments with √V computed by ``root`` from the last √V, the gradient and the new mean."""
    top, decay, new = in_one_unit(moments, log_scale)
    mean = betas.first * decay * moments.mean + (1 - betas.first) * new * gradient
    return in_units_of_the_largest(Moments(top, mean, root(decay * moments.root, new * gradient, mean)))


def _average(past: Array, now: Array, betas: Betas) -> Array:
    return np.hypot(math.sqrt(betas.second) * past, math.sqrt(1 - betas.second) * now)


@RUN.plant("adam-sums-squares", "V is the sum of all ∇L², as in AdaGrad", ADAM, next_moments)
def _summed(right: Any, moments: Moments, log_scale: Array, gradient: Array, betas: Betas, t: int) -> Moments:
    return _with_root(moments, log_scale, gradient, betas, lambda past, now, mean: np.hypot(past, now))


@RUN.plant("adam-squares-the-mean", "V averages M² in place of ∇L²", ADAM, next_moments)
def _squared_mean(right: Any, moments: Moments, log_scale: Array, gradient: Array, betas: Betas, t: int) -> Moments:
    return _with_root(moments, log_scale, gradient, betas, lambda past, now, mean: _average(past, mean, betas))


@RUN.plant("adam-never-lowers-squares", "V is the largest V so far, as in AMSGrad", ADAM, next_moments)
def _largest(right: Any, moments: Moments, log_scale: Array, gradient: Array, betas: Betas, t: int) -> Moments:
    return _with_root(
        moments, log_scale, gradient, betas, lambda past, now, mean: np.maximum(_average(past, now, betas), past)
    )


@RUN.plant("adam-with-decay", "W ← (1 − 0.01 η) W before the step", ADAM, adam_descent)
def _decayed(right: Callable[..., Array], field: Any, start: Array, **options: Any) -> Array:
    points = right(field, start, **options)
    for t, length in enumerate(options["lengths"].tolist()):
        step = points[t + 1] - points[t]
        points[t + 1] = points[t] * (1 - 0.01 * length) + step
    return points


@RUN.plant("adam-turns-an-entry", "the last entry of every step has the wrong sign", ADAM, adam_direction)
def _turned(right: Any, moments: Moments, betas: Betas, t: int) -> Array:
    step = np.array(right(moments, betas, t))
    step[:, -1] *= -1
    return step


@RUN.plant(
    "batches-with-replacement",
    "every batch drawn anew, where an epoch should have every sample once",
    BATCHES,
    batch_schedule,
)
def _replaced(right: Any, kind: str, weights: Array, size: int, steps: int, rng: Any) -> Array:
    return np.asarray(right("with replacement" if kind in EPOCHS else kind, weights, size, steps, rng))


@RUN.plant("last-batch-dropped", "the last batch of every epoch repeats an earlier one", BATCHES, batch_schedule)
def _dropped(right: Any, kind: str, weights: Array, size: int, steps: int, rng: Any) -> Array:
    shares = right(kind, weights, size, steps, rng)
    length = epoch_length(len(weights), size)
    if kind in EPOCHS and length > 1:
        shares[length - 1 :: length] = shares[: steps - length + 1 : length]
    return np.asarray(shares)


@RUN.plant(
    "batch-summed", "the sum over a batch divided by the largest batch size, for the mean", BATCHES, batch_schedule
)
def _summed_batch(right: Any, kind: str, weights: Array, size: int, steps: int, rng: Any) -> Array:
    shares = right(kind, weights, size, steps, rng)
    return np.asarray(shares * (shares > 0).sum(axis=1, keepdims=True) / max(size, 1) if kind in EPOCHS else shares)


@RUN.plant("batch-of-the-last-step", "the gradients of the previous step's batch", BATCHES, minibatch_descent)
def _stale(right: Callable[..., Array], samples: Any, start: Array, **options: Any) -> Array:
    return right(samples, start, **options | {"shares": np.roll(options["shares"], 1, axis=0)})


@RUN.plant("momentum-per-epoch", "momentum β^{1/n} for β, n the number of samples", BATCHES, minibatch_descent)
def _per_epoch(right: Callable[..., Array], samples: Any, start: Array, **options: Any) -> Array:
    n = options["shares"].shape[1]
    return right(samples, start, **options | {"momentum": options["momentum"] ** (1 / n)})


@RUN.plant(
    "momentum-after-normalisation", "momentum averages normalised directions, not gradients", BATCHES, minibatch_descent
)
def _after(right: Callable[..., Array], samples: Any, start: Array, **options: Any) -> Array:
    plain = right(samples, start, **options | {"momentum": 0.0})
    average, points = np.zeros_like(start), np.array(plain)
    for t in range(len(options["lengths"])):
        average = options["momentum"] * average + (1 - options["momentum"]) * (plain[t + 1] - plain[t])
        points[t + 1] = points[t] + average
    return points


@RUN.plant("batch-shares-forgotten", "every sample of a batch has the same weight", BATCHES, batch_gradient)
def _forgotten(right: Any, samples: ScaledGradient, shares: Array) -> ScaledGradient:
    return right(samples, (shares > 0) / max(int((shares > 0).sum()), 1))


@RUN.plant("sample-loss-exponential", "∇e^{−x·W} for ∇log(1 + e^{−x·W})", BATCHES, label_samples)
def _exponential(right: Any, problem: MasterProblem, theta: Array) -> ScaledGradient:
    samples = right(problem, theta)
    rows = np.array([to_floats(problem.differences[pair]) for pair in problem.pairs])
    odds = np.logaddexp.reduce(-(theta @ rows.T).reshape(len(theta), problem.contexts, -1), axis=-1)
    return ScaledGradient(np.asarray(samples.log_scale) + np.logaddexp(0.0, odds), samples.direction)
