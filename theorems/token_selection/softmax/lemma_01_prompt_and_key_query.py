"""Lemma 1: training the prompt and training the key-query weights are the same dynamics.

Main result: W(t) = u p(t)ᵀ/‖u‖² at every iterate, for any step sequence.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 1, Lemma 1; Appendix A.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.loss import Loss
from reference_attention.problem import Problem
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import calls
from theorems.core.points import directions, log_uniform
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.rounding.evaluation import Evaluation
from theorems.rounding.forward_error import UNDERFLOW
from theorems.token_selection.softmax.smoothness import local_smoothness, log_sharp_smoothness

AUTOGRAD = tolerance(
    "autograd",
    "(1/n) Σ_i |ℓ'_i| Σ_t s_t |x_tj| (|γ_t| + Σ s|γ|) r per coordinate j, r the relative error of the weights",
    "lemma-1 compares with plain back-propagation, which does not avoid cancellation: its error is relative to the"
    " terms, not to their sum",
)
TWO_RUNS = tolerance(
    "two-runs",
    "E(t+1) = (1 + η L) E(t) + η · autograd + eps (4‖p(t)‖ + 4‖p(t+1)‖ + (d_u + 6)‖p(t+1) − p(t)‖)",
    "two runs in floating point drift apart by the rounding of each step, amplified by the curvature between them",
)

STEPS = 50
POINTS = 24
LARGEST_LOGIT = 30.0
"""Norm of the points of the one-step check in units of the keys: the second path is plain float64
back-propagation, which has digits left there."""


def _cases() -> SearchStrategy[Case]:
    return st.one_of(cases(), cases(dataset=True))


@statement(
    "lemma-1",
    "Prompt and key-query weights: the same dynamics",
    source="Section 1, Lemma 1; Appendix A.2",
    assumptions=(),
    cases=_cases,
    kernel=calls("each step of the run and random points: its gradient against back-propagation through W", turn=4),
    survives={
        "no-maximum-subtracted": "its logits stay below 710",
        "cancelling-gradient": "the other of its two runs is textbook back-propagation, whose rounding the tolerance"
        " allows",
    },
)
def lemma_1(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Fix u ≠ 0, f_p(X) = ⟨Xv, softmax(Xp)⟩ and f_W(X) = ⟨Xv, softmax(XWᵀu)⟩, any differentiable loss.
    Gradient descent on p from p(0) with steps η_t and gradient descent on W from W(0) = u p(0)ᵀ/‖u‖² with
    steps η_t/‖u‖² satisfy W(t) = u p(t)ᵀ/‖u‖² for all t.

    Derivation. f_W depends on W through Wᵀu only, so ∇_W L = u ∇_p L(Wᵀu)ᵀ. If W = u pᵀ/‖u‖², then Wᵀu = p,
    and W − (η/‖u‖²) u ∇_p L(p)ᵀ = u (p − η∇_p L(p))ᵀ/‖u‖².

    Exact form, one step: from a common point the two updates agree up to local rounding. It is tried at
    every iterate of a run and at random points, and divided by the step size. The gradient in W is
    back-propagation through f_W as it is written, W a matrix; the gradient in p is the one under test.

    Exact form, many steps: with E_t = ‖u‖ ‖W(t) − u p(t)ᵀ/‖u‖²‖, E_{t+1} ≤ (1 + η_t L_t) E_t + r_t, where
    L_t bounds the curvature between the two points (:func:`.smoothness.local_smoothness` at p(t), a
    tenth added for the distance E_t between them) and r_t is the rounding of one step.

    The keys are the tokens themselves: those of the dataset if there is one, else the keys of the problem
    with its scores as the values Y Xv.
    """
    setting = _setting(case)
    rng = case.rng()
    problem = setting.problem
    u = case.arrays["u"] if "u" in case.arrays else _head(rng, problem.d)
    start = case.start if case.start is not None and len(case.start) == problem.d else None
    if start is None or np.linalg.norm(start) > LARGEST_LOGIT / problem.key_scale:
        start = directions(rng, 1, problem.d)[0] * float(log_uniform(rng, 1e-2, 3.0, 1)[0]) / problem.key_scale
    log_constant = log_sharp_smoothness(problem).value
    largest = np.exp(-log_constant) if np.isfinite(log_constant) else 1.0
    steps = log_uniform(rng, 1e-2, 1.0, STEPS) * largest
    points, matrices = _two_runs(setting, u, start, steps, under_test)
    yield _every_iterate(setting, u, points, matrices, steps, under_test.textbook_eps)
    norms = log_uniform(rng, 1e-3, LARGEST_LOGIT, POINTS) / problem.key_scale
    points = np.concatenate([points, directions(rng, POINTS, problem.d) * norms[:, None]])
    yield _one_step(setting, u, points, under_test)


@dataclass(frozen=True, eq=False)
class Setting:
    """Tokens, labels and values (Xv) of f_p and f_W; ``value_sizes`` = Σ_j |x_j v_j| bounds the rounding of
    Xv."""

    tokens: Float64[np.ndarray, "n T d"]
    labels: Float64[np.ndarray, "n"]
    values: Float64[np.ndarray, "n T"]
    value_sizes: Float64[np.ndarray, "n T"]
    loss: Loss
    problem: Problem


def _setting(case: Case) -> Setting:
    problem, data = case.problem, case.dataset
    if data is None:
        sizes = np.abs(problem.scores)
        return Setting(problem.keys, np.ones(problem.n), problem.scores, sizes, problem.loss, problem)
    values = np.sum(data.X * data.v, axis=-1)
    sizes = np.sum(np.abs(data.X * data.v), axis=-1)
    return Setting(data.X, data.Y, values, sizes, data.loss, Problem(data.X, data.problem.scores, data.loss))


def _head(rng: np.random.Generator, d: int) -> Float64[np.ndarray, "du"]:
    """u of norm 1e-3 … 1e3; W has as many rows as u entries, which need not be the dimension of the
    tokens."""
    length = int(rng.integers(1, d + 3))
    return np.asarray(directions(rng, 1, length)[0] * float(log_uniform(rng, 1e-3, 1e3, 1)[0]))


SLOPES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "logistic": lambda u: -1 / (1 + np.exp(u)),
        "exponential": lambda u: -np.exp(-u),
        "correlation": lambda u: -np.ones_like(u),
        "squared": lambda u: u - 1,
        "cubic": lambda u: -3 * u**2,
        "kinked": lambda u: np.where(u > 0, -0.25, -1.0),
    }
)
"""ℓ' as a textbook has it, by the name of the loss: the second path takes no derivative from :class:`Loss`."""


def weight_gradient(
    setting: Setting, W: Float64[np.ndarray, "b du d"], u: Float64[np.ndarray, "du"]
) -> Float64[np.ndarray, "b du d"]:
    """∇_W (1/n) Σ ℓ(Y_i ⟨X_i v, softmax(X_i Wᵀu)⟩) by back-propagation, one W per batch entry.

    The chain rule step by step, each step of f_W undone in its turn; no code is shared with the reference's gradient.
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
    to_mapped = to_logits[..., None] * u
    return np.asarray(np.sum(np.swapaxes(to_mapped, -1, -2) @ X, axis=1))


def gradient_rounding(
    setting: Setting, u: Float64[np.ndarray, "du"], points: Float64[np.ndarray, "b d"], eps: float
) -> Float64[np.ndarray, "b d"]:
    """Error of either path's ∇_p L: that of plain back-propagation, in which differences cancel.

    The logits Σ_k Σ_j x_j W_kj u_k of the second path take d_u more roundings: with W = u pᵀ/‖u‖², all terms
    of the sum over k have the same sign, so that they count relative to Σ_j |x_j p_j|.
    """
    at = Evaluation(setting.problem, points)
    return at.textbook_gradient_error(max(EPS, eps), setting.value_sizes, extra=len(u))


def _gradient(
    setting: Setting, points: Float64[np.ndarray, "*b d"], under_test: Implementation
) -> Float64[np.ndarray, "*b d"]:
    problem = setting.problem
    theirs = under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, points)
    return np.asarray(np.exp(theirs.log_scale)[..., None] * theirs.direction)


def _two_runs(
    setting: Setting,
    u: Float64[np.ndarray, "du"],
    start: Float64[np.ndarray, "d"],
    steps: Float64[np.ndarray, "s"],
    under_test: Implementation,
) -> tuple[Float64[np.ndarray, "t d"], Float64[np.ndarray, "t du d"]]:
    """The iterates p(t) under test and the iterates W(t); the two runs share nothing but their start."""
    squared = float(np.sum(u * u))
    points, matrices = [start], [np.outer(u, start) / squared]
    for step in steps.tolist():
        points.append(points[-1] - step * _gradient(setting, points[-1], under_test))
        matrices.append(matrices[-1] - step / squared * weight_gradient(setting, matrices[-1][None], u)[0])
    return np.stack(points), np.stack(matrices)


def _every_iterate(
    setting: Setting,
    u: Float64[np.ndarray, "du"],
    points: Float64[np.ndarray, "t d"],
    matrices: Float64[np.ndarray, "t du d"],
    steps: Float64[np.ndarray, "s"],
    eps: float,
) -> Claim:
    norm = float(np.sqrt(np.sum(u * u)))
    apart = norm * np.linalg.norm(matrices - u[:, None] * points[:, None, :] / norm**2, axis=(1, 2))
    lengths = np.linalg.norm(points, axis=1)
    curvature = 1.1 * local_smoothness(Evaluation(setting.problem, points))
    local = np.linalg.norm(gradient_rounding(setting, u, points, eps), axis=1)
    moved = np.linalg.norm(np.diff(points, axis=0), axis=1)
    allowed = [(len(u) + 6) * EPS * lengths[0]]
    for t, step in enumerate(steps.tolist()):
        rounded = EPS * ((len(u) + 6) * moved[t] + 4 * (lengths[t] + lengths[t + 1]))
        allowed.append((1 + step * curvature[t]) * allowed[-1] + step * local[t] + rounded)
    # Forming u pᵀ/‖u‖² for the comparison is rounded too.
    rounding = np.array(allowed) + (len(u) + 6) * EPS * lengths + UNDERFLOW
    return at_least(
        "same-iterates",
        Form.EXACT,
        0.0,
        apart,
        rounding=rounding,
        scale=lengths + rounding,
        why=TWO_RUNS,
        points="iterate",
    )


def _one_step(
    setting: Setting,
    u: Float64[np.ndarray, "du"],
    points: Float64[np.ndarray, "b d"],
    under_test: Implementation,
) -> Claim:
    W = u[:, None] * points[:, None, :] / np.sum(u * u)
    in_matrix = weight_gradient(setting, W, u)
    in_prompt = u[:, None] * _gradient(setting, points, under_test)[:, None, :]
    error = gradient_rounding(setting, u, points, under_test.textbook_eps)
    rounding = np.abs(u)[:, None] * error[:, None, :] + 4 * EPS * np.abs(in_prompt)
    scale = np.max(np.abs(in_matrix), axis=(1, 2), keepdims=True) + np.max(rounding, axis=(1, 2), keepdims=True)
    return at_least(
        "one-step-from-a-common-point",
        Form.EXACT,
        0.0,
        np.abs(in_matrix - in_prompt),
        rounding=rounding,
        scale=scale,
        why=AUTOGRAD,
        points="entry",
    )
