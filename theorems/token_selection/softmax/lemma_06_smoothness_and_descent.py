"""Lemma 6: ∇L is Lipschitz, gradient descent with η ≤ 1/L_p decreases L, and the sum of ‖∇L(p(t))‖² over t is bounded.

Main results: all three conclusions with explicit constants, the paper's and a sharper one.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 6.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import BLOCKS
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.problem import Problem, log_smoothness
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import gradient_descent
from theorems.bounded import Bounded, exact, value_of
from theorems.core.claim import Claim, Ended, Form, NotANumber, Verdict, at_least
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.dataset_claims import DATASET_CLAIMS, dataset_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.points import affordable, directions, log_uniform, probe_points
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.curves.descent import DESCENT_PREMISES, IS_A_STEP, RUN_IS_ASKED_FOR
from theorems.rounding.attention_at import LARGEST_EXPONENT, AttentionAt
from theorems.rounding.descent_steps import starts_claim, steps_claim
from theorems.rounding.risk_change import risk_change
from theorems.rounding.risk_under_test import risk_of
from theorems.token_selection.softmax.smoothness import log_sharp_smoothness
from theorems.token_selection.softmax.smoothness_value import log_smoothness_values

CONSTANTS = tolerance(
    "constants",
    "16 eps (T + d + n + |log L|) for the logarithm",
    "spectral norms by a backward stable SVD have a relative error of a few eps (T + d), sums over inputs one of n eps",
)

ARE_ORDERED = sharper("constants-are-ordered")
LIPSCHITZ = stated_claim("lipschitz")
MODEL = sharper("first-order-model")
DESCENT = stated_claim("descent-with-largest-step")
SMALL_DESCENT = stated_claim("descent-with-small-step")
SUMMABLE = stated_claim("squared-gradients-are-summable")
IS_ITS_FORMULA = premise("smoothness-is-its-formula")

ASSUMPTIONS = ("well-behaved-loss",)

POINTS = 60
STEPS = 200
"""The number of gradient descent steps of the run whose squared gradients are summed."""

LOG_OF_ZERO = -1e5
"""The number that replaces log 0; logarithms of positive constants are larger."""

ENTRIES = 1 << 17
"""Approximate largest number of points times number of key entries; a point is evaluated about twenty times."""

POWER_STEPS = 4
"""The number of power iterations that turn the difference of close points towards the largest curvature."""


def _cases() -> SearchStrategy[Case]:
    return st.booleans().flatmap(lambda dataset: cases(assumptions=ASSUMPTIONS, dataset=dataset, large=BLOCKS))


@statement(
    "lemma-6",
    "Smoothness and descent",
    source="Appendix B.1, Lemma 6",
    claims=(
        ARE_ORDERED,
        LIPSCHITZ,
        MODEL,
        DESCENT,
        SMALL_DESCENT,
        SUMMABLE,
        *DESCENT_PREMISES,
        IS_ITS_FORMULA,
        *DATASET_CLAIMS,
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=calls("the kernel's gradient, which must be Lipschitz and that of its risk, and descent along it", turn=5),
)
def lemma_6(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold. Then ∇L is Lipschitz with the constant L_p.

    With

        L_p = (1/n) Σ_i (M0‖v‖²‖W‖²‖X_i‖⁴ + 3 M1‖v‖‖W‖²‖X_i‖³), spectral norms,

    M0 the Lipschitz constant of ℓ', M1 the largest |ℓ'|, and η ≤ 1/L_p: L(p(t+1)) − L(p(t)) ≤ −(η/2)‖∇L(p(t))‖², hence
    Σ_t ‖∇L(p(t))‖² ≤ 2(L(p(0)) − inf L)/η.

    Exact form: the L_p under test is this number (:mod:`.smoothness_value`).

    Effective form: every inequality holds with a constant L̂ ≤ L_keys ≤ L_p, which may be smaller. L_keys = (1/n) Σ
    (M0‖γ_i‖²‖K_i‖² + 3 M1‖γ_i‖‖K_i‖²) needs only ‖γ_i‖ ≤ ‖v‖‖X_i‖ and ‖K_i‖ ≤ ‖W‖‖X_i‖. L̂ is derived in
    :func:`.smoothness.log_sharp_smoothness` from ∇²L = (1/n) Σ (ℓ'' ∇f∇fᵀ + ℓ' ∇²f), where f = γᵀs is the output, k̄ the
    mean key and, under the softmax weights s, ∇f = Cov(γ, k) and ∇²f = E[(γ − f)(k − k̄)(k − k̄)ᵀ]; every γᵀs along a
    segment stays within the range of the scores, on which M0 and M1 are taken. The same Hessian gives the second-order
    bound on the model |L(p+h) − L(p) − ⟨∇L(p), h⟩| ≤ (L̂/2)‖h‖² of both signs, which for short h says that ∇L is the
    gradient of L to many digits; with h = −η∇L, η ≤ 1/L̂, it gives the descent inequality, whose sum over t and L ≥
    (1/n) Σ ℓ(max_t γ_it) give the bound of Σ_t ‖∇L(p(t))‖². That the iterates are a run of gradient descent is claimed
    of every step. Differences of risks are evaluated without cancellation.
    """
    yield from premises(dataset_claims(case, under_test))
    problem = case.problem
    rng = case.rng()
    log_sharp = log_sharp_smoothness(problem)
    yield from _constants(case, log_sharp, under_test)
    points = probe_points(rng, problem, m=affordable(problem, POINTS, ENTRIES))
    if case.start is not None:
        points = np.concatenate([points, case.start[None]])
    yield _lipschitz(problem, points, log_sharp, rng, under_test)
    yield _model(problem, points, log_sharp, rng, under_test)
    start = points[-1] if norm(points[-1]) < 10 else points[0]
    run = yield from _run(problem, start, log_sharp, under_test)
    at = AttentionAt(problem, np.concatenate([points, run]), under_test.textbook_eps)
    yield from _descent(at, log_sharp, under_test)
    yield _is_a_step(at, len(points), log_sharp, under_test)
    yield _sum_of_decreases(at, len(points), log_sharp, under_test)


def _constants(case: Case, log_sharp: Bounded, under_test: Implementation) -> Iterator[Claim]:
    """Claim that L_p under test, from keys and from tokens, equals its formula, and L̂ ≤ L_keys ≤ L_p.

    The constants are those of :func:`lemma_6`. Norms have relative errors of a few (T + d) EPS each, because the SVD is
    backward stable.
    """
    problem = case.problem
    chain = [log_sharp.value, under_test[log_smoothness](problem)]
    if case.dataset is not None:
        chain.append(case.dataset.log_smoothness)
    logs = np.maximum(np.array(chain), LOG_OF_ZERO)
    if np.isnan(logs).any():
        raise NotANumber(IS_ITS_FORMULA, "log L_p is NaN", Form.EXACT)
    rounding = 16 * EPS * (problem.T + problem.d + problem.n + np.max(np.abs(logs)))
    reported, formula = exact(logs[1:]).widen(rounding), np.maximum(log_smoothness_values(case), LOG_OF_ZERO)
    sides = np.concatenate([reported, formula]), np.concatenate([formula, reported])
    yield at_least(IS_ITS_FORMULA, Form.EXACT, *sides, why=CONSTANTS, points="constant")
    yield at_least(ARE_ORDERED, Form.EFFECTIVE, logs[1:], logs[:-1], rounding=rounding, why=CONSTANTS)


def _log_unit(log_sharp: Bounded) -> float:
    """Return log L̂ as a float; 0 where ∇L = 0 everywhere. L̂ is the unit of gradients, and 1/L̂ the step size.

    L̂ is the sharper Lipschitz constant of :func:`.smoothness.log_sharp_smoothness`.
    """
    return float(log_sharp.value) if np.isfinite(log_sharp.value) else 0.0


def _in_units(at: AttentionAt, log_unit: float, under_test: Implementation, claim: str) -> Bounded:
    """Return the gradient under test times e^{−log_unit}, as a bounded array, (b, d)."""
    # No gradient exceeds e^700 L̂, except where ∇L = 0 and log_scale is arbitrary.
    unit = np.exp(exact(np.minimum(at.log_scale - log_unit, LARGEST_EXPONENT)))
    return unit[:, None] * at.gradient_of(under_test, claim)


def _lipschitz(
    problem: Problem,
    points: Float64[np.ndarray, "m d"],
    log_sharp: Bounded,
    rng: np.random.Generator,
    under_test: Implementation,
) -> Claim:
    """Claim ‖∇L(p) − ∇L(p')‖ ≤ L̂‖p − p'‖ for distant pairs, and for close pairs along the largest curvature.

    Both sides are divided by L̂ (:func:`_log_unit`).
    """
    log_unit = _log_unit(log_sharp)

    def gradient(points: Float64[np.ndarray, "k d"]) -> Bounded:
        return _in_units(AttentionAt(problem, points, under_test.textbook_eps), log_unit, under_test, LIPSCHITZ)

    m = len(points)
    near = np.concatenate([points, directions(rng, m, problem.d) * log_uniform(rng, 0.1, 10.0, m)[:, None]])
    far = np.concatenate([rng.permutation(points), points])
    base = gradient(near)
    length = (log_uniform(rng, 1e-6, 1e-1, len(near)) / problem.key_scale)[:, None]
    h = directions(rng, len(near), problem.d) * length
    for _ in range(POWER_STEPS):
        gradient_change = _reported_gradient(problem, near + h, log_unit, under_test) - base.value
        size = norm(gradient_change, axis=-1, keepdims=True)
        usable = np.isfinite(size) & (size > 0)
        h = np.where(usable, gradient_change / np.where(usable, size, 1.0), h / length) * length
    ends, begins = np.concatenate([near + h, far]), np.concatenate([near, near])
    change = norm(gradient(ends) - np.concatenate([base, base]), axis=-1)
    bound = np.exp(log_sharp - log_unit) * norm(exact(ends) - begins, axis=-1)
    return at_least(LIPSCHITZ, Form.EFFECTIVE, bound, change, points="pair")


def _reported_gradient(
    problem: Problem, points: Float64[np.ndarray, "*b d"], log_unit: float, under_test: Implementation
) -> Float64[np.ndarray, "*b d"]:
    """Return the gradient under test times e^{−log_unit}, as plain floats."""
    gradient = under_test[scaled_gradient](problem.keys, problem.scores, problem.loss, points)
    unit = np.exp(np.minimum(np.asarray(gradient.log_scale) - log_unit, LARGEST_EXPONENT))
    return unit[..., None] * np.asarray(gradient.direction)


def _model(
    problem: Problem,
    points: Float64[np.ndarray, "m d"],
    log_sharp: Bounded,
    rng: np.random.Generator,
    under_test: Implementation,
) -> Claim:
    """Claim |L(p+h) − L(p) − ⟨∇L(p), h⟩| ≤ (L̂/2)‖h‖² for h random and along the gradient, with L̂ of Lemma 6."""
    m = len(points)
    at = AttentionAt(problem, points, under_test.textbook_eps)
    gradient = at.gradient_of(under_test, MODEL)
    random = directions(rng, m, problem.d)
    size = norm(gradient.value, axis=-1, keepdims=True)
    along = np.where(size > 0, gradient.value / np.where(size > 0, size, 1.0), random)
    unit = np.where(rng.integers(2, size=(m, 1)) == 0, random, along)
    h = unit * (log_uniform(rng, 1e-12, 1.0, m) / problem.key_scale)[:, None]
    model_error = np.abs(risk_change(at, h) - np.vecdot(gradient, h))
    bound = np.exp(np.minimum(log_sharp - at.log_scale, LARGEST_EXPONENT)) / 2 * np.vecdot(exact(h), h)
    return at_least(MODEL, Form.EFFECTIVE, bound, model_error)


def _run(
    problem: Problem, start: Float64[np.ndarray, "d"], log_sharp: Bounded, under_test: Implementation
) -> Generator[Claim, None, Float64[np.ndarray, "t d"]]:
    """Claim that the run under test has the requested start and steps; return its iterates for η = 1/L̂ (Lemma 6's)."""
    steps = affordable(problem, STEPS, ENTRIES)
    log_step, gradient = -_log_unit(log_sharp), under_test[scaled_gradient]
    run = under_test[gradient_descent](problem, start, steps=steps, log_step=log_step, gradient=gradient)
    claim = starts_claim(RUN_IS_ASKED_FOR, run.points, start, steps)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    if not np.isfinite(run.points).all():
        raise NotANumber(DESCENT, "an iterate of gradient descent is not finite")
    return run.points


def _is_a_step(at: AttentionAt, first: int, log_sharp: Bounded, under_test: Implementation) -> Claim:
    """Claim that every iterate of the run is followed by p − η∇L(p)."""
    points = value_of(at.points)[first:]
    gradient = at.gradient_of(under_test, IS_A_STEP)[first:-1]
    return steps_claim(IS_A_STEP, points[:-1], points[1:], gradient, at.log_scale[first:-1], -_log_unit(log_sharp))


def _descent(at: AttentionAt, log_sharp: Bounded, under_test: Implementation) -> Iterator[Claim]:
    """Claim L(p) − L(p − η∇L) ≥ (η/2)‖∇L‖² at probe points and along a run, for η just below 1/L̂ and for a small η.

    A gradient with an error ε may decrease L by (η/2)‖ε‖² less than (η/2)‖∇L‖²; the error bound of ‖∇L‖² covers the
    difference.
    """
    gradient = at.gradient_of(under_test, DESCENT)
    # The step is in units of e^{−log_scale}, since ∇L is in units of e^{log_scale}.
    log_step = -log_sharp if np.isfinite(log_sharp.value) else exact(0.0)
    longest = np.exp(np.minimum(log_step + at.log_scale, LARGEST_EXPONENT))
    largest = np.maximum(longest.value - longest.error, 0.0)
    for name, step in ((DESCENT, largest), (SMALL_DESCENT, 1e-3 * largest)):
        decrease = -risk_change(at, -step[:, None] * gradient.value)
        yield at_least(name, Form.EFFECTIVE, decrease, exact(step) / 2 * np.vecdot(gradient, gradient))


def _sum_of_decreases(at: AttentionAt, first: int, log_sharp: Bounded, under_test: Implementation) -> Claim:
    """Claim η Σ_{s<t} ‖∇L(p(s))‖² ≤ 2(L(p(0)) − (1/n) Σ_i ℓ(max_t γ_it)) for every t, with η = 1/L̂.

    L̂ is the sharper Lipschitz constant of Lemma 6, and p(0) the point with index ``first``. Rounding makes a computed
    step Δ differ from −η∇L. By the descent lemma L decreases by at least −⟨∇L, Δ⟩ − ‖Δ‖²/(2η) = (η/2)‖∇L‖² − ‖Δ +
    η∇L‖²/(2η), so the squares ‖Δ + η∇L‖² are added to the bound.
    """
    log_unit, problem = _log_unit(log_sharp), at.problem
    run = at.points[first:]
    steps = _in_units(at, log_unit, under_test, SUMMABLE)[first:-1]
    missteps = np.diff(exact(run), axis=0) + steps
    risk = risk_of(AttentionAt(problem, run[:1], at.textbook_eps), under_test, SUMMABLE)
    lowest = np.mean(problem.loss.value(np.max(exact(problem.scores), axis=1)))
    bound = 2 * np.exp(exact(-log_unit)) * (risk - lowest) + np.cumsum(np.vecdot(missteps, missteps))
    return at_least(SUMMABLE, Form.EFFECTIVE, bound, np.cumsum(np.vecdot(steps, steps)), points="step")
