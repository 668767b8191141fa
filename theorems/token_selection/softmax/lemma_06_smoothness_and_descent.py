"""Lemma 6: the risk is smooth, gradient descent with η ≤ 1/L_p decreases it, and its gradients are summable.

Main results: all three with explicit constants, also with a sharper one than the paper's.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import calls
from theorems.core.points import directions, log_uniform, probe_points
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.rounding.evaluation import GRADIENT, Evaluation, scaled_gradient_of
from theorems.rounding.forward_error import UNDERFLOW
from theorems.rounding.risk_change import RISK_CHANGE, risk_change
from theorems.token_selection.softmax.smoothness import log_sharp_smoothness

CONSTANTS = tolerance(
    "constants",
    "16 eps (T + d + n + |log L|) on the logarithm",
    "spectral norms by a backward stable SVD are off by a few eps (T + d) relatively, sums over inputs by n eps",
)

ASSUMPTIONS = ("well-behaved-loss",)

POINTS = 60
STEPS = 200
"""Gradient descent steps of the run whose squared gradients are summed."""

LOG_OF_ZERO = -1e5
"""Stands for the logarithm of a constant that is zero; no other logarithm is as small."""

POWER_STEPS = 4
"""Power iterations that turn a pair of close points towards the largest curvature."""


def _cases() -> SearchStrategy[Case]:
    return st.one_of(cases(assumptions=ASSUMPTIONS), cases(assumptions=ASSUMPTIONS, dataset=True))


@statement(
    "lemma-6",
    "Smoothness and descent",
    source="Appendix B.1, Lemma 6",
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=calls("its gradient is Lipschitz and is that of its risk; descent steps along it", turn=5),
)
def lemma_6(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Under Assumption A, ∇L is L_p-Lipschitz with

        L_p = (1/n) Σ_i (M0‖v‖²‖W‖²‖X_i‖⁴ + 3 M1‖v‖‖W‖²‖X_i‖³), spectral norms,

    and for η ≤ 1/L_p: L(p(t+1)) − L(p(t)) ≤ −(η/2)‖∇L(p(t))‖², hence Σ_t ‖∇L(p(t))‖² ≤ 2(L(p(0)) − inf L)/η.

    Effective form: every inequality with a constant that is no larger, L̂ ≤ L_keys ≤ L_p.
    L_keys = (1/n) Σ (M0‖γ_i‖²‖K_i‖² + 3 M1‖γ_i‖‖K_i‖²) needs only ‖γ_i‖ ≤ ‖v‖‖X_i‖ and ‖K_i‖ ≤ ‖W‖‖X_i‖.
    L̂ is derived in :func:`.smoothness.log_sharp_smoothness` from ∇²L = (1/n) Σ (ℓ'' ∇f∇fᵀ + ℓ'
    ∇²f), ∇f = Cov(γ, k) and ∇²f = E[(γ − f)(k − k̄)(k − k̄)ᵀ]; every γᵀs along a segment stays within the
    range of the scores, on which M0 and M1 are taken. The same Hessian gives the second-order bound on the
    model |L(p+h) − L(p) − ⟨∇L(p), h⟩| ≤ (L̂/2)‖h‖² of both signs, which for short h says that ∇L is the
    gradient of L to many digits; with h = −η∇L, η ≤ 1/L̂, it gives the descent inequality; summing that and
    L ≥ (1/n) Σ ℓ(max_t γ_it) gives the last one. Differences of risks are evaluated without cancellation.
    """
    problem = case.problem
    rng = case.rng()
    yield from _constants(case, under_test)
    log_sharp = log_sharp_smoothness(problem)
    points = probe_points(rng, problem, m=POINTS)
    if case.start is not None:
        points = np.concatenate([points, case.start[None]])
    yield _lipschitz(problem, points, log_sharp, rng, under_test)
    yield _model(problem, points, log_sharp, rng, under_test)
    yield from _descent(problem, points, log_sharp, under_test)


def _constants(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """L̂ ≤ L_keys ≤ L_p, the second as the implementation has it.

    Norms carry relative errors of a few (T + d) EPS each (backward stability of the SVD).
    """
    problem = case.problem
    chain = [log_sharp_smoothness(problem), under_test.log_smoothness(problem)]
    if case.dataset is not None:
        chain.append(case.dataset.log_smoothness)
    logs = np.maximum(np.array(chain), LOG_OF_ZERO)
    rounding = 16 * EPS * (problem.T + problem.d + problem.n + np.max(np.abs(logs)))
    yield at_least("constants-are-ordered", Form.EFFECTIVE, logs[1:], logs[:-1], rounding=rounding, why=CONSTANTS)


def _absolute(
    problem: Problem, points: Float64[np.ndarray, "m d"], under_test: Implementation
) -> tuple[Float64[np.ndarray, "m d"], Float64[np.ndarray, "m"]]:
    """∇L under test and a bound on the norm of its error."""
    at = Evaluation(problem, points)
    gradient = scaled_gradient_of(under_test, problem, points, np.zeros(len(points)))
    error = np.exp(at.gradient.log_scale)[:, None] * at.gradient.error
    if under_test.textbook_eps:
        error = error + at.textbook_gradient_error(under_test.textbook_eps)
    return gradient, np.asarray(np.linalg.norm(error, axis=-1))


def _lipschitz(
    problem: Problem,
    points: Float64[np.ndarray, "m d"],
    log_constant: float,
    rng: np.random.Generator,
    under_test: Implementation,
) -> Claim:
    """‖∇L(p) − ∇L(p')‖ ≤ L̂‖p − p'‖ on distant pairs, and on close ones turned towards the largest
    curvature."""
    m = len(points)
    near = np.concatenate([points, directions(rng, m, problem.d) * log_uniform(rng, 0.1, 10.0, m)[:, None]])
    far = np.concatenate([rng.permutation(points), points])
    base, base_error = _absolute(problem, near, under_test)
    length = (log_uniform(rng, 1e-6, 1e-1, len(near)) / problem.key_scale)[:, None]
    h = directions(rng, len(near), problem.d) * length
    for _ in range(POWER_STEPS):
        bent = _absolute(problem, near + h, under_test)[0] - base
        size = np.linalg.norm(bent, axis=-1, keepdims=True)
        h = np.where(size > 0, bent / np.where(size > 0, size, 1.0), h / length) * length
    ends = np.concatenate([near + h, far])
    there, there_error = _absolute(problem, ends, under_test)
    begins = np.concatenate([near, near])
    distance = np.linalg.norm(ends - begins, axis=-1)
    change = np.linalg.norm(there - np.concatenate([base, base]), axis=-1)
    error = there_error + np.concatenate([base_error, base_error]) + 4 * EPS * problem.d * change
    bound = math.exp(log_constant) * distance * (1 + 4 * EPS * problem.d)
    rounding = error + UNDERFLOW
    return at_least(
        "lipschitz",
        Form.EFFECTIVE,
        bound,
        change,
        rounding=rounding,
        scale=bound + rounding,
        why=GRADIENT,
        points="pair",
    )


def _model(
    problem: Problem,
    points: Float64[np.ndarray, "m d"],
    log_constant: float,
    rng: np.random.Generator,
    under_test: Implementation,
) -> Claim:
    """|L(p+h) − L(p) − ⟨∇L(p), h⟩| ≤ (L̂/2)‖h‖² for random h and for h along the gradient, of many
    lengths."""
    m = len(points)
    at = Evaluation(problem, points, under_test.textbook_eps)
    scale = at.gradient.log_scale
    direction = scaled_gradient_of(under_test, problem, points, scale)
    random = directions(rng, m, problem.d)
    size = np.linalg.norm(direction, axis=-1, keepdims=True)
    along = np.where(size > 0, direction / np.where(size > 0, size, 1.0), random)
    unit = np.where(rng.integers(2, size=(m, 1)) == 0, random, along)
    h = unit * (log_uniform(rng, 1e-12, 1.0, m) / problem.key_scale)[:, None]
    change = risk_change(at, h)
    slope = np.sum(direction * h, axis=-1)
    bound = np.exp(np.minimum(log_constant - np.where(np.isfinite(scale), scale, 0.0), 700.0))
    bound = bound / 2 * np.sum(h * h, axis=-1) * (1 + 4 * EPS * problem.d)
    rounding = change.error + np.sum((at.gradient.error + problem.d * EPS * np.abs(direction)) * np.abs(h), axis=-1)
    off = np.abs(change.value - slope)
    return at_least(
        "first-order-model",
        Form.EFFECTIVE,
        bound,
        off,
        rounding=rounding,
        scale=bound + rounding,
        why=RISK_CHANGE,
    )


def _run(
    problem: Problem, start: Float64[np.ndarray, "d"], log_step: float, under_test: Implementation
) -> Float64[np.ndarray, "t d"]:
    points = np.empty((STEPS + 1, problem.d))
    points[0] = start
    for t in range(STEPS):
        gradient = under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, points[t])
        points[t + 1] = points[t] - np.exp(log_step + gradient.log_scale) * np.asarray(gradient.direction)
    return points


def _descent(
    problem: Problem, points: Float64[np.ndarray, "m d"], log_constant: float, under_test: Implementation
) -> Iterator[Claim]:
    """The decrease at probe points and along a run, and the sum along the run, η = 1/L̂."""
    log_step = -log_constant if math.isfinite(log_constant) else 0.0
    run = _run(problem, points[-1] if np.linalg.norm(points[-1]) < 10 else points[0], log_step, under_test)
    every = np.concatenate([points, run])
    at = Evaluation(problem, every, under_test.textbook_eps)
    scale = np.where(np.isfinite(at.gradient.log_scale), at.gradient.log_scale, 0.0)
    direction = scaled_gradient_of(under_test, problem, every, at.gradient.log_scale)
    squared = np.sum(direction * direction, axis=-1)
    error = at.gradient.error + problem.d * EPS * np.abs(direction)
    # ‖∇L‖² = e^{2 scale} squared; in units of e^{scale}, η‖∇L‖² is ``quadratic``.
    for name, factor in (("descent-with-largest-step", 1.0), ("descent-with-small-step", 1e-3)):
        step = factor * np.exp(np.minimum(log_step + scale, 700.0))
        change = risk_change(at, -step[:, None] * direction)
        quadratic = step * squared
        # The step is taken with the reported direction, so only ‖·‖² and the change itself are rounded.
        rounding = change.error + step * np.sum(2 * error * np.abs(direction), axis=-1) + UNDERFLOW
        # An input of tiny score range may see its logits move by hundreds; such steps cannot be evaluated in float64.
        kept = ~change.too_long
        yield at_least(
            name,
            Form.EFFECTIVE,
            -quadratic[kept] / 2,
            change.value[kept],
            rounding=rounding[kept],
            scale=(quadratic + rounding)[kept],
            why=RISK_CHANGE,
        )
    yield _summed(problem, run, log_step, under_test)


def _summed(problem: Problem, run: Float64[np.ndarray, "t d"], log_step: float, under_test: Implementation) -> Claim:
    """η Σ_{s<t} ‖∇L(p(s))‖² ≤ 2(L(p(0)) − (1/n) Σ ℓ(max γ)) for every t."""
    at = Evaluation(problem, run, under_test.textbook_eps)
    gradient, error = _absolute(problem, run, under_test)
    norms = np.linalg.norm(gradient, axis=-1)
    step = math.exp(log_step)
    summed = np.cumsum(step * norms**2)[:-1]
    floor = np.mean(problem.loss.value(np.max(problem.scores, axis=1)))
    first = under_test.risk(problem.keys, problem.scores, problem.loss, run[:1])[0]
    losses = np.abs(problem.loss.value(at.outputs[0])) + np.abs(problem.loss.value(np.max(problem.scores, axis=1)))
    slope = math.exp(problem.loss.log_bound(*problem.score_range))
    start_error = slope * np.mean(at.outputs_error[0] + at.textbook_outputs_error[0]) + EPS * (problem.n + 4) * np.mean(
        losses
    )
    # Each point of the run is rounded (‖∇L‖ EPS ‖p‖), each gradient is off by its error.
    each = norms * EPS * 2 * np.linalg.norm(run, axis=-1) + 2 * step * norms * (error + problem.d * EPS * norms)
    rounding = 2 * (start_error + np.cumsum(each)[:-1]) + UNDERFLOW
    bound = 2 * (first - floor)
    return at_least(
        "squared-gradients-are-summable",
        Form.EFFECTIVE,
        bound,
        summed,
        rounding=rounding,
        scale=np.abs(bound) + rounding,
        why=RISK_CHANGE,
        points="step",
    )
