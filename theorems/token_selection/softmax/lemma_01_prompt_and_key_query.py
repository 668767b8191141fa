"""Lemma 1: gradient descent on the prompt p and gradient descent on the key-query weights W have the same iterates.

Main result: W(t) = u p(t)ᵀ/‖u‖² at every iterate, for any sequence of step sizes.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 1, Lemma 1; Appendix A.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import BLOCKS
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.loss import Loss
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import gradient_descent
from theorems.bounded import Bounded, exact, in_floats, spacing, value_of
from theorems.core.claim import Claim, Form, NotANumber, Undecided, Verdict, at_least
from theorems.core.claim_name import premises, stated_claim
from theorems.core.dataset_claims import DATASET_CLAIMS, dataset_claims
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.points import affordable, directions, log_uniform
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.curves.descent import RUN_IS_ASKED_FOR
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import starts_claim
from theorems.token_selection.softmax.smoothness import local_smoothness, log_sharp_smoothness

TWO_RUNS = tolerance(
    "two-runs",
    "E(t+1) = (1 + η L) E(t) + η (‖δ∇_W L‖/‖u‖ + ‖δ∇L‖) + eps (4‖p(t)‖ + 4‖p(t+1)‖"
    " + (d_u + 6 + 2|log η| + 2|log‖∇L‖|)‖p(t+1) − p(t)‖)",
    "two runs in floating point drift apart by the rounding of each step, amplified by the curvature between them;"
    " δ∇_W L and δ∇L are the error bounds of the gradients at p(t) in the one-step claim",
)

SAME_ITERATES = stated_claim("same-iterates")
ONE_STEP = stated_claim("one-step-from-a-common-point")

LONGEST_HEAD = 30
"""Approximate largest number of rows of W, as many as u has entries; the time of the run on W grows with it."""
STEPS = 50
SAME = 10
"""The number of consecutive steps of the same size."""
POINTS = 24
ENTRIES = 1 << 21
"""Approximate largest number of floats in an array over points, tokens and coordinates."""
LARGEST_LOGIT = 30.0
"""The largest ‖p‖ at which one step on p is compared with one step on W, in units of 1/(largest |entry| of the keys).

Up to this norm the gradient in W, plain back-propagation in float64, is accurate.
"""

LARGEST_SLOPE = 690.0
"""The largest log|ℓ'| and log|ℓ''| at which products with values and tokens do not overflow float64."""


def _cases() -> SearchStrategy[Case]:
    return st.one_of(cases(large=BLOCKS), cases(dataset=True, large=BLOCKS))


@statement(
    "lemma-1",
    "Prompt and key-query weights: the same dynamics",
    source="Section 1, Lemma 1; Appendix A.2",
    claims=(RUN_IS_ASKED_FOR, SAME_ITERATES, ONE_STEP, *DATASET_CLAIMS),
    assumptions=(),
    cases=_cases,
    kernel=calls("the kernel's gradient at many points, against back-propagation through W", turn=4),
)
def lemma_1(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Fix u ≠ 0, f_p(X) = ⟨Xv, softmax(Xp)⟩ and f_W(X) = ⟨Xv, softmax(XWᵀu)⟩, any differentiable loss.

    Gradient descent on p from p(0) with steps η_t and gradient descent on W from W(0) = u p(0)ᵀ/‖u‖² with
    steps η_t/‖u‖² satisfy W(t) = u p(t)ᵀ/‖u‖² for all t.

    Derivation. f_W depends on W through Wᵀu only, so ∇_W L = u ∇_p L(Wᵀu)ᵀ. If W = u pᵀ/‖u‖², then Wᵀu = p,
    and W − (η/‖u‖²) u ∇_p L(p)ᵀ = u (p − η∇_p L(p))ᵀ/‖u‖².

    Exact form, one step: from a common point the updates of p and of W agree up to the rounding of one step. This is
    claimed at every iterate of a run and at random points, divided by the step size. The gradient in the matrix W is
    computed by back-propagation through f_W; the gradient in p is the one under test.

    Exact form, many steps: with E_t = ‖u‖ ‖W(t) − u p(t)ᵀ/‖u‖²‖, E_{t+1} ≤ (1 + η_t L_t) E_t + r_t, where L_t bounds
    the curvature of L between p(t) and W(t)ᵀu (:func:`.smoothness.local_smoothness` at p(t), a tenth added for the
    distance E_t between them) and r_t is the rounding of one step.

    The keys are the tokens of the dataset, in units of the largest entry. If the case has no dataset, they are the keys
    of the problem, and its scores are the values Y Xv.
    """
    yield from premises(dataset_claims(case, under_test))
    setting = _setting(case)
    rng = case.rng()
    problem = setting.problem
    loss = problem.loss
    steepest = max(loss.log_bound(*problem.score_range), loss.log_lipschitz(*problem.score_range))
    if steepest > LARGEST_SLOPE:
        why = f"ℓ' or ℓ'' reaches e^{steepest:.4g} on these scores, where back-propagation through W overflows float64"
        raise Undecided(SAME_ITERATES, why, Form.EXACT)
    u = case.arrays["u"] if "u" in case.arrays else _head(rng, problem.d)
    start = case.start if case.start is not None and len(case.start) == problem.d else None
    if start is None or np.linalg.norm(start) > LARGEST_LOGIT / problem.key_scale:
        start = directions(rng, 1, problem.d)[0] * float(log_uniform(rng, 1e-2, 3.0, 1)[0]) / problem.key_scale
    log_constant = log_sharp_smoothness(problem).value
    largest = np.exp(-log_constant) if np.isfinite(log_constant) else 1.0
    count = -(-affordable(problem, STEPS) // SAME) * SAME
    steps = np.repeat(log_uniform(rng, 1e-2, 1.0, count // SAME) * largest, SAME)
    points, matrices = _two_runs(setting, u, start, steps, under_test)
    first_claim = starts_claim(RUN_IS_ASKED_FOR, points, start, count)
    yield first_claim
    if first_claim.verdict is Verdict.FALSIFIED:
        return
    if not np.isfinite(points).all():
        raise NotANumber(SAME_ITERATES, "an iterate is not finite", Form.EXACT)
    if not np.isfinite(matrices).all():
        # The suite's own run overflows, so nothing follows about the implementation under test.
        raise Undecided(SAME_ITERATES, "back-propagation through W overflows float64", Form.EXACT)
    norms = log_uniform(rng, 1e-3, LARGEST_LOGIT, affordable(problem, POINTS)) / problem.key_scale
    prompts = np.concatenate([points, directions(rng, len(norms), problem.d) * norms[:, None]])
    at_once = max(1, ENTRIES // (problem.n * problem.T * (problem.d + len(u))))
    blocks = (prompts[k : k + at_once] for k in range(0, len(prompts), at_once))
    gradients = zip(*(_both_paths(setting, u, block, under_test) for block in blocks), strict=True)
    joined: list[Any] = [np.concatenate(parts) for parts in gradients]
    in_matrix, in_prompt = joined
    # The norm of bounded arrays is used, because it does not underflow where |ℓ'| is e^{−400}.
    local = norm(exact(in_matrix.error), axis=(1, 2)) / norm(u) + norm(exact(in_prompt.error), axis=1)
    yield _every_iterate(setting, u, points, matrices, steps, local.value[: len(points)])
    yield equal(ONE_STEP, in_matrix, u[:, None] * in_prompt[:, None], points="entry")


@dataclass(frozen=True, eq=False)
class Setting:
    """The tokens X, labels Y and values Xv that define f_p and f_W of Lemma 1; values may carry rounding errors."""

    tokens: Float64[np.ndarray, "n T d"]
    labels: Float64[np.ndarray, "n"]
    values: Any
    loss: Loss
    problem: Problem

    @property
    def in_floats(self) -> Setting:
        """Return the same setting with the values as plain floats."""
        return replace(self, values=value_of(self.values))


def _setting(case: Case) -> Setting:
    """Return the tokens, labels and values of a case's dataset or, without a dataset, of its problem."""
    problem, data = case.problem, case.dataset
    if data is None:
        return Setting(problem.keys, np.ones(problem.n), problem.scores, problem.loss, problem)
    # The problem's scores Y Xv may come from any float64 evaluation; inside ``spacing`` the error bound covers every
    # such evaluation.
    with spacing(EPS):
        values = np.sum(exact(data.X) * data.v, axis=-1)
    # Moving a power of two from the tokens to p changes no digits, except those of logarithms of sizes.
    problem = Problem(data.X, data.problem.scores, data.loss)
    problem = problem.with_keys_scaled(1 / problem.key_scale)
    return Setting(problem.keys, data.Y, values, data.loss, problem)


def _head(rng: np.random.Generator, d: int) -> Float64[np.ndarray, "du"]:
    """Return a random vector u with a norm from 1e-3 to 1e3.

    W has as many rows as u has entries; this number may differ from the dimension d of the tokens.
    """
    length = int(rng.integers(1, min(d, LONGEST_HEAD) + 3))
    return np.asarray(directions(rng, 1, length)[0] * float(log_uniform(rng, 1e-3, 1e3, 1)[0]))


SLOPES: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "logistic": lambda u: -np.exp(-np.logaddexp(0.0, u)),
        "exponential": lambda u: -np.exp(-u),
        "correlation": lambda u: -np.ones_like(u),
        "sigmoid": lambda u: -np.exp(-np.logaddexp(0.0, u) - np.logaddexp(0.0, -u)),
        "squared": lambda u: u - 1,
        "cubic": lambda u: -3 * u**2,
        "kinked": lambda u: 0.375 * np.sign(u) - 0.625,
    }
)
"""The textbook formulas of ℓ', by name of the loss; with them the gradient in W needs no :class:`Loss`."""


def weight_gradient(setting: Setting, W: Any, u: Float64[np.ndarray, "du"]) -> Any:
    """Return ∇_W (1/n) Σ ℓ(Y_i ⟨X_i v, softmax(X_i Wᵀu)⟩) by back-propagation, for a batch of W, (b, du, d).

    The chain rule is applied to each step of f_W in reverse order; no code is shared with the gradient in p. For
    bounded arrays the result contains its error bound.
    """
    X, values = setting.tokens, setting.values
    mapped = X @ np.swapaxes(W, -1, -2)[:, None]  # X_i Wᵀ, (b, n, T, du)
    logits = mapped @ u
    exponentials = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    weights = exponentials / np.sum(exponentials, axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        slopes = SLOPES[setting.loss.name](setting.labels * np.sum(values * weights, axis=-1))
    to_weights = (slopes * setting.labels / len(X))[..., None] * values
    to_logits = weights * (to_weights - np.sum(weights * to_weights, axis=-1, keepdims=True))
    to_mapped = (to_logits[..., None] * u).reshape(len(W), -1, len(u))
    return np.swapaxes(to_mapped, -1, -2) @ X.reshape(-1, X.shape[-1])


def _both_paths(
    setting: Setting, u: Float64[np.ndarray, "du"], points: Float64[np.ndarray, "b d"], under_test: Implementation
) -> tuple[Bounded, Bounded]:
    """Return ∇_W L at W = u pᵀ/‖u‖², (b, du, d), and the gradient under test at p, (b, d)."""
    head = exact(u)
    in_matrix = weight_gradient(setting, head[:, None] * points[:, None, :] / np.sum(head * head), u)
    at = AttentionAt(setting.problem, points, under_test.textbook_eps)
    in_prompt = at.gradient_of(under_test, ONE_STEP, Form.EXACT)
    return in_matrix, np.exp(exact(at.log_scale))[:, None] * in_prompt


def _two_runs(
    setting: Setting,
    u: Float64[np.ndarray, "du"],
    start: Float64[np.ndarray, "d"],
    steps: Float64[np.ndarray, "s"],
    under_test: Implementation,
) -> tuple[Float64[np.ndarray, "r d"], Float64[np.ndarray, "t du d"]]:
    """Return the iterates p(t) of the run under test, and the iterates W(t) of the suite's own run.

    ``steps`` are the step sizes of p. The run on W is computed by :func:`weight_gradient` from its own iterates.
    """
    squared = float(np.sum(u * u))
    points, matrices, setting = [start], [np.outer(u, start) / squared], setting.in_floats
    for log_step in np.log(steps[::SAME]).tolist():
        # The optimiser accepts one step size, so it is called once per step size, each time from its last iterate.
        run = under_test[gradient_descent](
            setting.problem, points[-1], steps=SAME, log_step=log_step, gradient=under_test[scaled_gradient]
        )
        points.extend(run.points[1:])
        if len(run.points) != SAME + 1:
            break
    for step in steps.tolist():
        matrices.append(matrices[-1] - step / squared * weight_gradient(setting, matrices[-1][None], u)[0])
    return np.stack(points), np.stack(matrices)


def _every_iterate(
    setting: Setting,
    u: Float64[np.ndarray, "du"],
    points: Float64[np.ndarray, "t d"],
    matrices: Float64[np.ndarray, "t du d"],
    steps: Float64[np.ndarray, "s"],
    local: Float64[np.ndarray, "t"],
) -> Claim:
    """Claim Lemma 1's bound of E_t at every iterate; ``local`` bounds the errors of both gradients at p(t)."""
    head = exact(u)
    distances = norm(head) * norm(matrices - head[:, None] * points[:, None, :] / np.sum(head * head), axis=(1, 2))
    lengths, step_lengths = norm(points, axis=1), norm(np.diff(points, axis=0), axis=1)
    with in_floats():
        curvature = 1.1 * local_smoothness(AttentionAt(setting.problem, points))
    allowed = [(len(u) + 6) * EPS * lengths[0]]
    for t, step in enumerate(steps.tolist()):
        # The optimiser computes a step as the exponential of a sum of logarithms.
        logs = abs(math.log(step)) + (abs(math.log(step_lengths[t] / step)) if step_lengths[t] / step > 0 else 0.0)
        rounded = EPS * ((len(u) + 6 + 2 * logs) * step_lengths[t] + 4 * (lengths[t] + lengths[t + 1]))
        allowed.append((1 + step * curvature[t]) * allowed[-1] + step * local[t] + rounded)
    rounding = np.array(allowed) + distances.error
    scale = lengths + np.where(np.isfinite(rounding), rounding, 1.0)
    return at_least(
        SAME_ITERATES,
        Form.EXACT,
        0.0,
        distances.value,
        rounding=rounding,
        scale=scale,
        why=TWO_RUNS,
        points="iterate",
    )
