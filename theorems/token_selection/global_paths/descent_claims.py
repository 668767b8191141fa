"""The effective claims of Theorem 2, at every iterate of gradient descent from several starts.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2; derivation in
:mod:`.theorem_2_global_convergence`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop, Trajectory
from theorems.core.claim import Claim, Form, NotANumber, Verdict, at_least, undecided
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.bounded import Bounded, exact, rounded
from theorems.rounding.steps import starts_claim, steps_claim
from theorems.token_selection.global_paths.growth_bounds import (
    climb_bound,
    correlation_deficit,
    log_climb,
    log_rate,
)

DESCENT_ROUNDING = tolerance(
    "descent-rounding",
    "what both sides carry, iterates by coordinate: t · max_s η|δ∇L(p(s))| + Σ_s eps (|p(s)| + |p(s+1)| +"
    " (2 + |log η∇L|)|Δ_s|)",
    "a computed iterate differs from p − η∇L(p) by the error of the gradient (AttentionAt.gradient_of), of the step's"
    " exponential and one rounding of the sum; the inequalities are summed over iterates, and so are their errors",
)

STEPS = 1000
"""Iterations of gradient descent at which every effective claim is checked."""
KERNEL_STEPS = 200
"""The same for a kernel, whose automatic differentiation costs ten times as much."""
LARGEST_LOGARITHM = 1e6
"""Logarithms beyond it leave fewer than ten digits of what they are the logarithm of."""
EVALUATIONS = 3_000_000
"""About how many floats the evaluation of the iterates may occupy at a time."""


def starts_of(
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


def descent_claims(
    problem: Problem,
    under_test: Implementation,
    svm: MaxMargin,
    starts: Float64[np.ndarray, "b d"],
    fractions: Float64[np.ndarray, "b"],
) -> Iterator[Claim]:
    """Run gradient descent with η ≤ 1/L_p from the starts, log ηL_p given, and check every iterate."""
    log_step = fractions - under_test.log_smoothness(problem)
    steps = KERNEL_STEPS if under_test.textbook_eps else STEPS
    run = under_test.gradient_descent(
        problem, starts, steps=steps, log_step=log_step, gradient=under_test.scaled_gradient
    )
    asked = starts_claim("run-is-the-one-asked-for", run.points, starts, steps)
    yield asked
    if asked.verdict is Verdict.FALSIFIED:
        return
    if run.stop is Stop.OVERFLOW:
        yield undecided("climbs-to-max-margin", "a step of gradient descent overflows float64", Form.EFFECTIVE)
        return
    if not np.isfinite(run.points).all():
        raise NotANumber("climbs-to-max-margin", "an iterate of gradient descent is not finite")
    stride = max(1, math.ceil(run.points.size * problem.n * problem.T / EVALUATIONS))
    looked = np.unique(np.append(np.arange(0, steps + 1, stride), steps))
    at = AttentionAt(problem, run.points[looked].reshape(-1, problem.d), under_test.textbook_eps)
    log_climbs = log_climb(at)
    largest, error = float(np.abs(log_climbs.value).max()), float(log_climbs.error.max())
    if not (largest < LARGEST_LOGARITHM and error < 1 and np.isfinite(at.gradient).all()):
        why = f"log|∇L| reaches {largest:.3g} with an error of {error:.3g}: no digits left in float64"
        yield undecided("climbs-to-max-margin", why, Form.EFFECTIVE)
        return
    p_mm, descent = rounded(svm.p), -at.gradient_of(under_test, "climbs-to-max-margin")
    climbs = np.sum(np.exp(log_climbs - at.log_scale[:, None]), axis=1)
    yield at_least("climbs-to-max-margin", Form.EFFECTIVE, descent @ p_mm, climbs, points="iterate")
    yield _is_a_step(run, looked, log_step, at, descent)

    p, moved = _with_drift(run, looked, log_step, at, descent)
    norms, w = norm(exact(run.points), axis=-1), p @ p_mm
    climbed = climb_bound(problem, log_step + log_rate(problem, norms[0]), looked)
    drifted = {"why": DESCENT_ROUNDING, "points": "iterate"}
    yield at_least("climbs-like-log-t", Form.EFFECTIVE, (w - w[0])[1:], climbed[1:], **drifted)
    least = (w[0] + climbed) / norm(p_mm)
    yield at_least("norm-grows-like-log-t", Form.EFFECTIVE, norms[looked][1:], least[1:], **drifted)
    lengths = norm(moved, axis=-1)
    drop = _drop(problem, under_test, starts, log_step, norms[0].value)
    taken = np.sum(lengths * lengths, axis=0) / 2
    yield at_least("steps-are-summable", Form.EFFECTIVE, drop, taken, why=DESCENT_ROUNDING, points="start")
    if problem.n > 1:
        return
    lag = norm(p_mm) * np.log(exact(problem.T - 1))
    towards = descent @ p_mm / norm(p_mm) * (norm(exact(at.points), axis=-1) + lag)
    yield at_least("correlation-step", Form.EFFECTIVE, towards, np.vecdot(descent, at.points), points="iterate")
    base = np.where(norms[0].value + lag.value > 0, 0, 1)
    begin = exact(run.points[base, np.arange(len(starts))])
    turned = (p - begin) @ p_mm / norm(p_mm)
    gained = norm(p, axis=-1) - norm(begin, axis=-1) - correlation_deficit(norms, lengths, lag)[looked]
    later = looked[:, None] > base
    yield at_least("correlation-lower-bound", Form.EFFECTIVE, turned[later], gained[later], **drifted)


def _is_a_step(
    run: Trajectory,
    looked: Int64[np.ndarray, "r"],
    log_step: Float64[np.ndarray, "b"],
    at: AttentionAt,
    descent: Bounded,
) -> Claim:
    """Every iterate looked at is followed by p − η∇L(p)."""
    shape = (len(looked), *run.points.shape[1:])
    gradient, log_scale, t = -descent.reshape(shape), at.log_scale.reshape(shape[:2]), looked[:-1]
    return steps_claim("iterate-is-a-step", run.points[t], run.points[t + 1], gradient[:-1], log_scale[:-1], log_step)


def _with_drift(
    run: Trajectory,
    looked: Int64[np.ndarray, "r"],
    log_step: Float64[np.ndarray, "b"],
    at: AttentionAt,
    descent: Bounded,
) -> tuple[Bounded, Bounded]:
    """Iterates looked at (r, b, d) and all steps (t, b, d), with what they differ by from p − Σ η∇L."""
    shape = (len(looked), len(log_step))
    logs = log_step + at.log_scale.reshape(shape)
    of_gradient = np.exp(np.minimum(logs, 700.0))[..., None] * descent.error.reshape(*shape, -1)
    last = np.searchsorted(looked, np.arange(len(run.points) - 1), side="right") - 1
    moved = np.diff(run.points, axis=0)
    sizes = np.abs(run.points[1:]) + np.abs(run.points[:-1]) + (2 + np.abs(logs[last]))[..., None] * np.abs(moved)
    each = np.maximum.accumulate(of_gradient, axis=0)[last] + EPS * sizes
    drift = np.concatenate([np.zeros_like(each[:1]), np.cumsum(each, axis=0)])
    return exact(run.points[looked]).widened(drift[looked]), exact(moved).widened(each)


def _drop(
    problem: Problem,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    log_step: Float64[np.ndarray, "b"],
    norms: Float64[np.ndarray, "b"],
) -> Bounded:
    """η (L(p(0)) − L_opt), which ½ Σ‖Δ_s‖² may not exceed, with what an implementation's excess may be off by."""
    _, log_excess = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, starts, problem.optimal)
    drop = np.exp(np.minimum(log_step + log_excess, 700.0))
    if np.isnan(drop).any():
        raise NotANumber("steps-are-summable", "the excess risk under test is NaN")
    return exact(drop).widened(128 * problem.d * EPS * (1 + norms) * drop)
