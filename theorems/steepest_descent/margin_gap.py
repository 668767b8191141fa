"""The margin of a run, and the lower bound that ``steepest-one-input`` or ``steepest-from-a-margin`` proves for it.

References: :mod:`theorems.steepest_descent`.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from reference_attention.norms import Norm
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.svm.norm_max_margin import norm_max_margin
from theorems.benchmark.margin_gap import Gap
from theorems.benchmark.optimisers.optimiser import Theory
from theorems.bounded import in_floats
from theorems.core.claim import Undecided
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.potential import step_gain
from theorems.steepest_descent.steepest_from_a_margin import SteepestConstants

ONE_INPUT, FROM_A_MARGIN = "steepest-one-input", "steepest-from-a-margin"
LONGEST_MEMORY = 4000
"""The largest number of past gradients in the sums of :func:`_lag`.

The sums are used if β e^{Dη} ≤ 0.99, so that the terms of older gradients are below 0.99^4000 < e^−40.
"""


def margin_gap(
    problem: Problem, svm: MaxMargin, points: Float64[np.ndarray, "r d"], norm: Norm, momentum: float
) -> Gap | None:
    """Compute the margin gap 1 − m(p)/(γ‖p‖) at the last iterate of steepest descent in a norm, and its proven bound.

    For one input with equal non-optimal scores the bound holds from any start. Otherwise it holds from the first
    iterate whose margin suffices; with momentum, which depends on earlier gradients, the start's margin must suffice.
    Return None where the bound is vacuous, or where ``svm`` does not select unique optimal tokens. The bound is
    computed in floats, for comparison; no claim is made.

    Args:
        problem: keys and scores.
        svm: ATT-SVM of the optimal tokens.
        points: consecutive iterates; the step lengths are computed from them.
        norm: q of ‖·‖_q, or a norm of matrices.
        momentum: β.
    """
    best = problem.scores == problem.scores.max(axis=1, keepdims=True)
    if (best.sum(axis=1) > 1).any() or not np.array_equal(svm.alpha, problem.optimal) or len(points) < 2:
        return None
    solution = norm_max_margin(problem.exact_keys, problem.optimal, norm)
    if solution is None:
        return None
    with in_floats():
        geometry = Geometry(problem, solution)
        lengths = np.asarray(geometry.length(np.diff(points, axis=0)))
        is_one_input = problem.n == 1 and len(set(problem.scores[~best].tolist())) == 1
        if is_one_input:
            least: float | None = _one_input(geometry, points, lengths, momentum)
        else:
            constants = SteepestConstants(problem, svm, geometry, 1 / 16 if momentum else 1 / 4)
            least = _from_a_margin(constants, points, lengths, momentum)
        if least is None:
            return None
        gamma, size = float(geometry.margin), float(geometry.length(points[-1]))
        gap = Gap(
            norm,
            ONE_INPUT if is_one_input else FROM_A_MARGIN,
            1 - least / gamma,
            1 - float(geometry.margins(points[-1])) / (size * gamma),
        )
        return gap if gap.at_most is not None and gap.at_most < 1 else None


def _one_input(
    geometry: Geometry, points: Float64[np.ndarray, "r d"], lengths: Float64[np.ndarray, "t"], momentum: float
) -> float:
    """Compute a lower bound of m/‖p‖ at the last iterate, for one input."""
    phi = float(np.logaddexp.reduce(-points[0] @ geometry.rows.T))
    loss, (low, high) = geometry.problem.loss, geometry.problem.score_range
    range_of_slopes = loss.log_bound(low, high) - loss.log_floor(low, high)
    lag = _lag(geometry, float(lengths.max()), len(lengths), momentum, range_of_slopes, 0.0)
    gained = float(np.sum(step_gain(geometry, lengths, lag)))
    return (gained - phi) / (float(geometry.length(points[0])) + float(lengths.sum()))


def _lag(
    geometry: Geometry, length: float, steps: int, momentum: float, range_of_slopes: float, turned: float
) -> Float64[np.ndarray, "t"]:
    """Return τ_t of :func:`theorems.steepest_descent.steepest_run.momentum_lag` for steps of at most the given length.

    The length moved since the k-th last gradient is at most kη. ``turned`` bounds that part of the change of the
    difference of two rows' log-weights that does not come from the length moved.
    """
    reach, apart = geometry.reach, geometry.diameter
    if not momentum:
        return np.zeros(steps)
    if momentum * math.exp(float(reach) * length) > 0.99:
        return np.ones(steps)
    k = np.arange(float(LONGEST_MEMORY))
    change = float(reach) * length * k + np.where(k > 0, range_of_slopes, 0.0)
    above = np.cumsum(np.exp(k * math.log(momentum) + change) * np.tanh((float(apart) * length * k + turned) / 4))
    below = np.cumsum(np.exp(k * math.log(momentum) - change))
    return np.asarray(np.minimum(above / below, 1.0)[np.minimum(np.arange(steps), LONGEST_MEMORY - 1)])


def _from_a_margin(
    constants: SteepestConstants,
    points: Float64[np.ndarray, "r d"],
    lengths: Float64[np.ndarray, "t"],
    momentum: float,
) -> float | None:
    """Compute a lower bound of m/‖p‖ at the last iterate, from the first iterate that the statement covers.

    With momentum this iterate must be the start. Return None if the statement covers no iterate before the last.
    """
    geometry = constants.geometry
    try:
        enough = constants.enough
    except Undecided:
        return None
    phi = np.logaddexp.reduce(constants.log_c - points @ geometry.rows.T, axis=-1)
    margins = float(np.min(constants.log_c)) - phi
    long = np.append(lengths * float(geometry.diameter) ** 2 > 2 * float(geometry.margin), False)
    allowed = np.flatnonzero((margins >= enough) & ~np.logical_or.accumulate(long[::-1])[::-1])
    if len(allowed) == 0 or allowed[0] + 1 >= len(points):
        return None
    first = t = int(allowed[0])
    margin = float(margins[first])
    if momentum:
        change = constants.change(enough)
        lags = _lag(geometry, float(lengths.max()), len(lengths), momentum, change, change)
        if first > 0 or float(lags.max() * geometry.diameter) > float(geometry.margin) / 4:
            return None
        gained = float(np.sum(step_gain(geometry, lengths, lags)))
        return (margin + gained) / (float(geometry.length(points[0])) + float(lengths.sum()))
    while t < len(lengths):
        until = min(len(lengths), max(t + 1, first + 2 * (t - first)))
        lag = math.tanh(constants.change(margin) / 4)
        margin += float(np.sum(step_gain(geometry, lengths[t:until], lag)))
        t = until
    return margin / (float(geometry.length(points[first])) + float(lengths[first:].sum()))


def steepest_gap(
    problem: Problem, svm: MaxMargin, points: Float64[np.ndarray, "r d"], norm: Norm, theory: Theory
) -> Gap | None:
    """Compute :func:`margin_gap` of a run whose rule takes steepest steps; return None for other rules."""
    if theory.steepest is None:
        return None
    return margin_gap(problem, svm, points, norm, float(theory.momentum))


GAPS = {ONE_INPUT: steepest_gap}
"""Statement id → function that computes its bound; :func:`steepest_gap` covers ``steepest-from-a-margin``, too."""
