"""The effective claims of Theorem 2, at every iterate of gradient descent from several starts.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2; derivation in
:mod:`.theorem_2_global_convergence`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop, gradient_descent
from theorems.core.claim import Claim, Form, at_least, undecided
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.evaluation import GRADIENT, Evaluation, scaled_gradient_of
from theorems.rounding.forward_error import dot_error
from theorems.token_selection.global_paths.growth_bounds import (
    climb_bound,
    correlation_deficit,
    log_climb,
    log_rate,
    relative_climb_error,
)

DESCENT_ROUNDING = tolerance(
    "descent-rounding",
    "t · max_s η‖δ∇L(p(s))‖ + Σ_s eps (‖p(s)‖ + ‖p(s+1)‖ + 2‖Δ_s‖), times ‖p_mm‖ for ⟨p, p_mm⟩",
    "a computed iterate differs from p − η∇L(p) by the error of the gradient (Evaluation.gradient) and one rounding"
    " of the sum; the inequalities are summed over iterates, and so are their errors",
)

STEPS = 1000
"""Iterations of gradient descent at which every effective claim is checked."""
KERNEL_STEPS = 200
"""The same for a kernel, whose automatic differentiation costs ten times as much."""
LARGEST_LOGARITHM = 1e6
"""Logarithms beyond it leave fewer than ten digits of what they are the logarithm of."""
EVALUATIONS = 3_000_000
"""About how many floats the evaluation of the iterates may occupy at a time."""


def _starts(
    case: Case, svm: MaxMargin, rng: np.random.Generator
) -> tuple[Float64[np.ndarray, "b d"], Float64[np.ndarray, "b"]]:
    """p(0): the origin, near it, far, opposite to p_mm, the case's own; and log of each step size times L_p."""
    d = case.problem.d
    scale = 1 / case.problem.key_scale
    # Margins of −3, but none below −300: where p_mm is long, the weights there would be e^{−10⁹}.
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


def descent_claims(case: Case, under_test: Implementation, svm: MaxMargin, rng: np.random.Generator) -> Iterator[Claim]:
    """Run gradient descent with η ≤ 1/L_p and check every iterate."""
    problem = case.problem
    starts, fractions = _starts(case, svm, rng)
    log_step = fractions - under_test.log_smoothness(problem)
    steps = KERNEL_STEPS if under_test.textbook_eps else STEPS
    run = gradient_descent(problem, starts, steps=steps, log_step=log_step, gradient=under_test.scaled_gradient)
    if run.stop is Stop.OVERFLOW:
        yield undecided("climbs-to-max-margin", "a step of gradient descent overflows float64", Form.EFFECTIVE)
        return
    points = run.points
    stride = max(1, math.ceil(points.size * problem.n * problem.T / EVALUATIONS))
    looked = np.unique(np.append(np.arange(0, steps + 1, stride), steps))
    flat = points[looked].reshape(-1, problem.d)
    evaluation = Evaluation(problem, flat, under_test.textbook_eps)
    log_scale, error = evaluation.gradient.log_scale, evaluation.gradient.error
    direction = scaled_gradient_of(under_test, problem, flat, log_scale)
    log_bound, log_error = log_climb(evaluation, problem)
    largest = float(np.abs(log_bound).max())
    if not (largest < LARGEST_LOGARITHM and np.isfinite(error).all() and float(log_error.max()) < 1):
        why = f"log|∇L| reaches {largest:.3g} with an error of {float(log_error.max()):.3g}: no digits left in float64"
        yield undecided("climbs-to-max-margin", why, Form.EFFECTIVE)
        return
    terms = np.exp(np.minimum(log_bound - log_scale[:, None], 700.0))
    along = -direction @ svm.p
    yield at_least(
        "climbs-to-max-margin",
        Form.EFFECTIVE,
        along,
        terms.sum(axis=1),
        rounding=dot_error(direction, svm.p, error)
        + np.sum(terms * relative_climb_error(log_error + EPS * np.abs(log_scale)[:, None]), axis=1),
        why=GRADIENT,
        scale=np.abs(direction) @ np.abs(svm.p) + terms.sum(axis=1),
        points="iterate",
    )

    # What one computed step may differ from −η∇L: the gradient's error, and one rounding of the new point.
    shape = (len(looked), len(starts))
    factor = np.exp(np.minimum(log_step[None] + log_scale.reshape(shape), 700.0))
    gradient_error = factor * np.linalg.norm(error, axis=1).reshape(shape)
    per_step = np.maximum.accumulate(gradient_error, axis=0)
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=-1)
    rounded = np.cumsum(EPS * (run.norms[1:] + run.norms[:-1] + 2 * lengths), axis=0)
    drift = np.concatenate([np.zeros((1, len(starts))), rounded])
    drift[looked] += looked[:, None] * per_step
    drift, norms, shown = drift[looked], run.norms[looked], points[looked]
    w = shown @ svm.p
    w_rounding = svm.norm * drift + (problem.d + 2) * EPS * (np.abs(shown) @ np.abs(svm.p) + abs(w[0]))
    climbed = climb_bound(problem, log_step + log_rate(problem, run.norms[0]), looked.astype(np.float64))
    yield at_least(
        "climbs-like-log-t",
        Form.EFFECTIVE,
        (w - w[0])[1:],
        climbed[1:],
        rounding=(w_rounding + 16 * EPS * climbed)[1:],
        why=DESCENT_ROUNDING,
        scale=(np.maximum(climbed, svm.norm * norms) + EPS)[1:],
        points="iterate",
    )
    least = svm.margin * (w[0] + climbed)
    yield at_least(
        "norm-grows-like-log-t",
        Form.EFFECTIVE,
        norms[1:],
        least[1:],
        rounding=(svm.margin * w_rounding + 16 * EPS * (norms + np.abs(least)))[1:],
        why=DESCENT_ROUNDING,
        scale=(norms + np.abs(least) + EPS)[1:],
        points="iterate",
    )
    yield _summable(problem, under_test, starts, log_step, lengths, drift[-1], run.norms)
    if problem.n > 1:
        return
    lag = svm.norm * math.log(problem.T - 1)
    size = np.linalg.norm(flat, axis=1)
    towards, onwards = -(direction @ svm.direction) * (size + lag), -np.sum(direction * flat, axis=1)
    yield at_least(
        "correlation-step",
        Form.EFFECTIVE,
        towards,
        onwards,
        rounding=dot_error(direction, svm.direction, error) * (size + lag)
        + dot_error(direction, flat, error)
        + (problem.d + 4) * EPS * np.abs(towards),
        why=GRADIENT,
        scale=np.linalg.norm(direction, axis=1) * (size + lag) + EPS,
        points="iterate",
    )
    deficit = correlation_deficit(run.norms, lengths, lag)[looked]
    base = np.where(norms[0] + lag > 0, 0, 1)
    begin = points[base, np.arange(len(starts))]
    u = shown @ svm.direction
    gained = np.linalg.norm(begin, axis=1)
    later = looked[:, None] > base
    yield at_least(
        "correlation-lower-bound",
        Form.EFFECTIVE,
        (u - begin @ svm.direction)[later],
        (norms - gained - deficit)[later],
        rounding=(2 * drift + (problem.d + 8) * EPS * (norms + gained + deficit))[later],
        why=DESCENT_ROUNDING,
        scale=(norms + gained + EPS)[later],
        points="iterate",
    )


def _summable(
    problem: Problem,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    log_step: Float64[np.ndarray, "b"],
    lengths: Float64[np.ndarray, "t b"],
    drift: Float64[np.ndarray, "b"],
    norms: Float64[np.ndarray, "r b"],
) -> Claim:
    """½ Σ‖Δ_s‖² ≤ η (L(p(0)) − L_opt), compared relative to the larger side."""
    _, log_excess = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, starts, problem.optimal)
    allowed = np.exp(np.minimum(log_step + log_excess, 700.0))
    taken = np.sum(lengths**2, axis=0) / 2
    # A step whose rounding is e counts |Δ|² wrong by 2|Δ|e + e².
    rounding = drift * lengths.max(axis=0) + drift**2 + 64 * problem.d * EPS * (1 + norms[0]) * (allowed + taken)
    return at_least(
        "steps-are-summable",
        Form.EFFECTIVE,
        allowed,
        taken,
        rounding=rounding,
        why=DESCENT_ROUNDING,
        scale=allowed + taken + EPS,
        points="start",
    )
