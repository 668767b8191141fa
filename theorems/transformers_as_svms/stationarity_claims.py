"""The claims of :mod:`.no_stationary_point`: how long ∇L(W) is at least, and what a short one says of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, NotANumber, Undecided, Verdict, at_least
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.excess import log_excess_of
from theorems.rounding.steps import starts_claim, steps_claim
from theorems.token_selection.global_paths.lemma_04_descent_direction import log_climb
from theorems.transformers_as_svms.row_independence import (
    certified_eigenvalue,
    difference_gram,
    identity,
    zero_sum_metric,
)

SUMMED_ROUNDING = tolerance(
    "summed-rounding",
    "what both sides carry, and Σ_k (2η‖∇L(W(k+1))‖ + ‖e_k‖)‖e_k‖, e_k = eps (|W(k+1)| + (4 + |log η∇L|)|ηL'|)"
    " + η|δ∇L(W(k))| by coordinate",
    "an iterate that lies e beside W − η∇L has a risk higher by at most ‖∇L‖‖e‖ + L̂‖e‖²/2, and η ≤ 1/L̂",
)

STEPS = 200
"""Iterations of gradient descent."""
FEASIBLE = 5
"""Feasible W' besides W^mm."""

Points = Float64[np.ndarray, "m d"]


@dataclass(frozen=True)
class Independence:
    """Certified lower bounds of singular values; floats taken as exact.

    Attributes:
        rows_squared: of the rows G_it, t ≠ opt_i.
        zero_sum_squared: of c ↦ Σ_it c_it k_it where Σ_t c_it = 0 for each i.
    """

    rows_squared: float
    zero_sum_squared: float

    @classmethod
    def of(cls, problem: Problem) -> Independence:
        """Of the keys of a problem.

        Raises:
            Undecided: neither is known to be positive.
        """
        gram = difference_gram(problem, problem.optimal)
        rows = certified_eigenvalue(gram, identity(gram.nrows()))
        zero_sum = certified_eigenvalue(gram, zero_sum_metric(problem.n, problem.T))
        if not rows > 0 or not zero_sum > 0:
            why = "no positive lower bound of the singular values was certified: the rows are all but dependent"
            raise Undecided("gradient-norm", why, Form.EFFECTIVE)
        return cls(rows, zero_sum)


def norm_sides(at: AttentionAt, gradient: Numbers, independence: Independence) -> tuple[Numbers, Numbers]:
    """‖∇L‖_F and its lower bound, both times n e^{−log_scale}; (b,)."""
    problem = at.problem
    tokens = np.arange(problem.T)
    # Coefficients of an input sum to zero.
    kept: Any = np.where(tokens == at.token[..., None], -np.sum(at.coefficients, axis=-1)[..., None], at.coefficients)
    rest: Any = np.where(tokens == problem.optimal[:, None], 0.0, kept)
    flat = (len(at.token), -1)
    bounds = [
        np.sqrt(exact(independence.zero_sum_squared)) * norm(kept.reshape(flat), axis=1),
        np.sqrt(exact(independence.rows_squared)) * norm(rest.reshape(flat), axis=1),
    ]
    return problem.n * norm(gradient, axis=1), np.maximum(*bounds)


def saturation(at: AttentionAt, gradient: Numbers, independence: Independence) -> Iterator[Claim]:
    """(4c), wherever it says something; in logarithms."""
    problem, b = at.problem, len(at.token)
    ordered = np.sort(problem.scores, axis=1)
    least: Any = np.min(exact(ordered[:, 1:]) - ordered[:, :-1], axis=1)
    with np.errstate(divide="ignore"):
        log_short = np.log(problem.n * norm(gradient, axis=1) / np.sqrt(exact(independence.zero_sum_squared)))
    log_eps = (log_short + at.log_scale)[:, None] - at.log_slopes
    own = np.arange(problem.T) == at.token[..., None]
    log_own = at.log_weights[np.arange(b)[:, None], np.arange(problem.n), at.token]
    room = least - np.exp(np.minimum(log_eps - log_own, 700.0))
    speaks = np.asarray(room > 0) & (value_of(least) > 0)
    if not speaks.any():
        return
    missed = np.logaddexp.reduce(np.where(own, -np.inf, at.log_weights), axis=-1)
    allowed = np.log(exact(problem.T - 1)) + log_eps[speaks] - np.log(room[speaks])
    yield at_least("saturation", Form.EFFECTIVE, allowed, missed[speaks], points="input at a point")


def head_direction(data: QueryDataset, at: AttentionAt, gradient: Numbers) -> Iterator[Claim]:
    """vᵀ∇L(W), (b, e), is −(1/n) Σ_i |ℓ'_i| Var_i Y_i z_i; and the descent along v qᵀ where q separates the labels."""
    problem, tokens = at.problem, np.arange(at.problem.T)
    own = np.take_along_axis(problem.scores[None], at.token[..., None], axis=2)
    # A score may be the rounded product Y vᵀx; that of the token itself differs from itself by nothing.
    apart = np.where(tokens == at.token[..., None], 0.0, with_rounding(problem.scores) - with_rounding(own))
    variances: Any = np.vecdot(at.coefficients, apart)
    signed = data.Y[:, None] * data.queries
    along = np.einsum("bde,d->be", gradient.reshape(len(at.token), *data.shape), exact(data.v))
    yield equal("head-direction", along, -np.einsum("bn,ne->be", variances, exact(signed)) / problem.n)
    separator = label_svm(signed)
    if isinstance(separator, LabelSvm):
        least = np.min(exact(signed) @ separator.v)
        left, right = -along @ separator.v, least * np.sum(variances, axis=1) / problem.n
        yield at_least("separating-query-descends", Form.EFFECTIVE, left, right)


def feasible_points(problem: Problem, svm: MaxMargin, rng: np.random.Generator) -> Points:
    """W^mm and others whose margins are 1 and more, up to rounding: any margins by independence, and ker G."""
    others = np.arange(problem.T) != problem.optimal[:, None]
    G = value_of(key_rows(problem, problem.optimal))[others]
    margins = 1 + rng.exponential(size=(FEASIBLE, len(G))) * rng.choice([0.0, 1.0, 100.0], size=(FEASIBLE, 1))
    inverse = np.linalg.pinv(G)
    free = rng.normal(size=(FEASIBLE, problem.d)) * svm.norm * rng.choice([0.0, 1.0, 30.0], size=(FEASIBLE, 1))
    return np.concatenate([svm.p[None], margins @ inverse.T + free - (free @ G.T) @ inverse.T])


def feasible_sides(at: AttentionAt, gradient: Numbers, feasible: Points) -> tuple[Numbers, Numbers]:
    """−⟨∇L, W'⟩ and m(W') (1/n) Σ_i |ℓ'_i| gap_i s_i (1 − s_i), in units of e^{log_scale}; (b, feasible)."""
    problem = at.problem
    others = np.arange(problem.T) != problem.optimal[:, None]
    rows = key_rows(problem, problem.optimal)[others]
    margins = np.min(exact(feasible) @ rows.T, axis=1)
    climbs = np.sum(np.exp(log_climb(at) - at.log_scale[:, None]), axis=1)
    return -gradient @ feasible.T, climbs[:, None] * margins


def descent_run(
    problem: Problem, under_test: Implementation, starts: Points, fractions: Float64[np.ndarray, "m"]
) -> Iterator[Claim | Points]:
    """Gradient descent with η ≤ 1/L_W, log ηL_W given; its claims, then some of its iterates."""
    log_step = fractions - under_test.log_smoothness(problem)
    run = under_test.gradient_descent(
        problem, starts, steps=STEPS, log_step=log_step, gradient=under_test.scaled_gradient
    )
    asked = starts_claim("run-is-the-one-asked-for", run.points, starts, STEPS)
    yield asked
    if asked.verdict is Verdict.FALSIFIED:
        return
    if run.stop is Stop.OVERFLOW:
        raise Undecided("gradients-are-summable", "a step of gradient descent overflows float64", Form.EFFECTIVE)
    if not np.isfinite(run.points).all():
        raise NotANumber("gradients-are-summable", "an iterate of gradient descent is not finite")
    at = AttentionAt(problem, run.points.reshape(-1, problem.d), under_test.textbook_eps)
    shape = run.points.shape
    gradient = at.gradient_of(under_test, "gradients-are-summable").reshape(shape)
    log_scale = at.log_scale.reshape(shape[:2])
    yield steps_claim("iterate-is-a-step", run.points[:-1], run.points[1:], gradient[:-1], log_scale[:-1], log_step)
    logs = exact(log_step) + log_scale
    steps = np.exp(np.minimum(logs, 700.0))[..., None] * gradient
    lengths = norm(steps, axis=-1)
    left = 2 * np.exp(
        np.minimum(log_step + log_excess_of(under_test, problem, starts, "gradients-are-summable"), 700.0)
    )
    taken, sizes = value_of(steps), np.abs(value_of(logs))[..., None]
    beside = norm(EPS * (np.abs(run.points[1:]) + (4 + sizes[:-1]) * np.abs(taken[:-1])) + steps.error[:-1], axis=-1)
    lost = np.sum((2 * value_of(lengths)[1:] + beside) * beside, axis=0)
    right = np.sum(lengths[:-1] * lengths[:-1], axis=0)
    yield at_least(
        "gradients-are-summable", Form.EFFECTIVE, left.widen(lost), right, why=SUMMED_ROUNDING, points="start"
    )
    yield np.asarray(run.points[[1, STEPS // 2, STEPS]].reshape(-1, problem.d))
