"""The ℓ∞ margin of a run, and the lower bound that ``adam-one-input`` or ``adam-from-a-margin`` proves for it.

The bound is computed in floats, with sums over past gradients updated from step to step: it is for comparison, not a
claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from reference_attention.norms import Norm
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.svm.norm_max_margin import norm_max_margin
from theorems.adaptive_methods.inexact_steps import LARGEST_EXPONENT
from theorems.benchmark.margin_gap import Gap
from theorems.benchmark.optimisers.optimiser import Theory
from theorems.bounded import in_floats
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.steepest_from_a_margin import SteepestConstants

ONE_INPUT, FROM_A_MARGIN = "adam-one-input", "adam-from-a-margin"


def adam_gap(
    problem: Problem, svm: MaxMargin, points: Float64[np.ndarray, "r d"], norm: Norm, theory: Theory
) -> Gap | None:
    """Compute the margin gap 1 − m(p)/(γ‖p‖_∞) at the last iterate of Adam with bias correction, and its proven bound.

    For one input with equal non-optimal scores the bound holds from any start, otherwise only from a start of
    sufficient margin. Return None where neither statement covers the run, and a Gap without a bound where the bound is
    vacuous.
    """
    best = problem.scores == problem.scores.max(axis=1, keepdims=True)
    if not theory.adam or (best.sum(axis=1) > 1).any() or not np.array_equal(svm.alpha, problem.optimal):
        return None
    solution = norm_max_margin(problem.exact_keys, problem.optimal, math.inf)
    if solution is None or len(points) < 2:
        return None
    with in_floats():
        geometry = Geometry(problem, solution)
        one_input = problem.n == 1 and len(set(problem.scores[~best].tolist())) == 1
        gamma, reach, apart = float(geometry.margin), float(geometry.reach), float(geometry.diameter)
        start = -(points[0] @ geometry.rows.T)
        if one_input:
            loss, ends = problem.loss, problem.score_range
            further, turned, moves = loss.log_bound(*ends) - loss.log_floor(*ends), 0.0, reach + apart
            known = -float(np.logaddexp.reduce(start))
        else:
            constants = SteepestConstants(problem, svm, geometry, 1 / 4)
            known = float(np.min(constants.log_c) - np.logaddexp.reduce(constants.log_c + start))
            further, moves = constants.change(known), reach
            turned = math.tanh(further / 4)
            if math.isinf(further):
                return None
        path, margin = float(geometry.length(points[0])), known
        for step, kappa, rho in rates(theory, len(points) - 1, gamma, reach, moves, further):
            gain = step * (kappa - apart * rho * turned) - (apart * rho * step) ** 2 / 8
            # χ was evaluated at the margin of the start; below that margin no bound holds.
            margin = margin + gain if one_input or gain >= 0 else -math.inf
            path += step * rho
        size = float(geometry.length(points[-1])) * gamma
        measured = 1 - float(geometry.margins(points[-1])) / size if size else math.nan
    at_most = 1 - margin / path / gamma
    return Gap(math.inf, ONE_INPUT if one_input else FROM_A_MARGIN, at_most if at_most < 1 else None, measured)


def rates(
    theory: Theory, steps: int, gamma: float, reach: float, moves: float, further: float
) -> Iterator[tuple[float, float, float]]:
    """Yield η_t, κ_t and ρ_t of steps with bias correction; κ_t = −∞ once a sum over past gradients overflows.

    Let y_s = e^{Dℓ_s + χ} − 1, where ℓ_s is the length of the last s steps, D is ``moves`` and χ is ``further``. The
    sums Σβ^s y_s and Σβ^s y_s² over s ≥ 1 are updated from step to step by 1 + y_{s+1} = (1 + y_s)e^{Dηρ}, without
    cancellation.
    """
    length, decay, first, second = theory.adam
    c = (1 - first) / math.sqrt((1 - second) * (1 - first**2 / second)) if first != second else 1.0
    tau = sigma = mean = growth = 0.0
    for t in range(steps):
        # ``growth`` is D times the length of the previous step.
        if t and growth + further < LARGEST_EXPONENT and math.isfinite(tau + sigma + mean):
            m, y = math.expm1(growth), math.expm1(growth + further)
            old = sum_of_powers(second, t - 1)
            tau = first * ((1 + m) * tau + m * sum_of_powers(first, t - 1) + y)
            sigma = second * ((1 + m) ** 2 * sigma + 2 * m * (1 + m) * mean + m * m * old + y * y)
            mean = second * ((1 + m) * mean + m * old + y)
        elif t:
            tau = math.inf
        a, b = 1 - first ** (t + 1), math.sqrt(1 - second ** (t + 1))
        share, rms = (1 - first) * tau, math.sqrt((1 - second) * sigma)
        kappa = gamma * a / b - reach * (share / b + max(a * rms / b**2, c * share / a)) if tau < 1e100 else -math.inf
        rho, step = c * b / a, length * (t + 1.0) ** -decay
        growth = moves * step * rho
        yield step, kappa * b / a, rho


def sum_of_powers(beta: float, last: int) -> float:
    """Return β + … + β^last."""
    return beta * (1 - beta**last) / (1 - beta)


GAPS = {ONE_INPUT: adam_gap}
"""Statement id → function that computes its bound; :func:`adam_gap` covers ``adam-from-a-margin``, too."""
