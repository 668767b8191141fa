"""Data for which ∇L(W) vanishes at no W, so that gradient descent selects tokens from any start.

References: *Transformers as Support Vector Machines*, Theorem 4; Lemma 4 of *Max-Margin Token Selection*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.query_assumptions import independent_rows, label_separating_queries
from generators.query_cases import Family, query_cases
from generators.score_assumptions import equal_non_optimal_scores
from reference_attention.floats import EPS
from reference_attention.problem import Problem, log_smoothness
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import scaled_gradient
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop, gradient_descent
from reference_attention.training.flow import RELATIVE
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.att_svm import solve_att_svm
from theorems.core.claim import Claim, Form, NotANumber, Undecided, Verdict, at_least
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.key_rows import key_rows
from theorems.core.parts import Condition
from theorems.core.points import affordable, climb, probe_points
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.curves.descent import DESCENT_PREMISES, IS_A_STEP, RUN_IS_ASKED_FOR
from theorems.curves.followed_flow import FLOW_PREMISES, FollowedFlow
from theorems.rounding.attention_at import AttentionAt, Numbers, violation_of
from theorems.rounding.descent_steps import starts_claim, steps_claim
from theorems.rounding.excess_risk import log_excess_of
from theorems.token_selection.global_paths.lemma_04_descent_direction import DESCENT, lemma_4, log_climb
from theorems.transformers_as_svms.row_independence import GRADIENT_NORM, Independence

SUMMED_ROUNDING = tolerance(
    "summed-rounding",
    "the error bounds of both sides, plus Σ_k (2η‖∇L(W(k+1))‖ + ‖e_k‖)‖e_k‖, where each coordinate has the error e_k ="
    " eps (|W(k+1)| + (4 + |log η∇L|)|ηL'|) + η|δ∇L(W(k))|",
    "an error e of the iterate W − η∇L raises its risk by at most ‖∇L‖‖e‖ + L̂‖e‖²/2, and η ≤ 1/L̂",
)

POINTS = 150
SUMMED = 8 / 7
"""The bound of η Σ ‖∇L‖² in units of L(W(0)) − L_⋆; it holds because η ≤ 1/L_W ≤ 1/(4L̂).

L_W is the paper's smoothness constant of L, and L̂ the sharper one of Lemma 6.
"""
STEPS = 200
"""The number of iterations of gradient descent."""
FEASIBLE = 5
"""The number of feasible W', besides W^mm, for which the inequality of Lemma 4 is checked."""
SEPARATING = Condition(
    "the queries separate the labels", lambda case: label_separating_queries(case).holds is not False
)
EQUAL = Condition(
    "non-optimal scores are equal within each input", lambda case: equal_non_optimal_scores(case).holds is not False
)
SUMMABLE = sharper("gradients-are-summable")
HEAD_DIRECTION = sharper("head-direction")
QUERY_DESCENDS = stated_claim("separating-query-descends", when=SEPARATING)
SATURATION = sharper("saturation", when="rows are independent, an input has no ties, and ∇L is short enough at a point")
FEASIBLE_DESCENT = sharper("feasible-descent", when=EQUAL)
NORM_DIVERGES = stated_claim("norm-diverges")

Points = Float64[np.ndarray, "m d"]


def _cases() -> SearchStrategy[Case]:
    """Return a strategy for cases in which at least one of the theorem's three hypotheses holds."""
    independent, any_size = (Family.INDEPENDENT,), (Family.LABEL_SEPARATING,)
    return st.one_of(
        query_cases(families=independent, equal=True, start=True),
        query_cases(families=independent, start=True),
        query_cases(families=any_size, start=True),
        query_cases(families=independent, start=True, opposed=True),
        query_cases(families=independent, equal=True, start=True, opposed=True).map(_crowd),
    )


def _crowd(case: Case) -> Case:
    """Return the case with a non-optimal token of each input repeated, so that its rows are dependent."""
    data = case.queried
    assert data is not None
    worst = np.argmin(case.problem.scores, axis=1)
    copies = np.take_along_axis(data.X, worst[:, None, None], axis=1)
    crowded = replace(data, X=np.concatenate([data.X, copies], axis=1))
    return case.replace(problem=crowded.problem, queried=crowded)


@statement(
    "tsvm-no-stationary-point",
    "∇L(W) vanishes nowhere",
    source="T-SVM, Theorem 4 (made sharper here)",
    claims=(
        *QUERY_CLAIMS,
        *DESCENT_PREMISES,
        SUMMABLE,
        HEAD_DIRECTION,
        QUERY_DESCENDS,
        GRADIENT_NORM,
        SATURATION,
        stated_claim(DESCENT, when=EQUAL),
        FEASIBLE_DESCENT,
        *FLOW_PREMISES,
        NORM_DIVERGES,
    ),
    assumptions=("queries-given", "well-behaved-loss", "strict-optimum", "separable"),
    cases=_cases,
    kernel=calls("its gradient at every point and at every iterate of gradient descent", turn=7),
)
def tsvm_no_stationary_point(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let ATT-SVM(opt) be feasible, and one token of each input strictly best.

    L has no stationary point, and gradient descent with η ≤ 1/L_W has ‖W(k)‖_F → ∞ from every start, if at least one
    of three hypotheses holds: all non-optimal scores of an input are equal; the rows (x_iα − x_it) z_iᵀ are independent
    (almost all data with T − 1 ≤ d, n(T − 1) ≤ d²); or the queries separate the labels, Y_i qᵀz_i > 0 for some q
    (almost all data with d ≥ n, any T). We do not know which hypothesis the paper has.

    **Exact, head-direction.** At every W, for data of any kind,

        vᵀ∇L(W) = −(1/n) Σ_i |ℓ'_i| Var_i Y_i z_iᵀ,    Var_i = Σ_t s_it (γ_it − f_i)²,    f_i = Σ_t s_it γ_it.

    *Derivation.* ∇L = (1/n) Σ_i ℓ'_i Σ_t s_it (γ_it − f_i) x_it z_iᵀ and vᵀx_it = Y_i γ_it, as scores are a function
    of the tokens. Hence −⟨∇L, v qᵀ⟩ ≥ (min_i Y_i qᵀz_i/n) Σ_i |ℓ'_i| Var_i (separating-query-descends). If q separates
    the labels, this is positive at every W, and all Var_i tend to zero along gradient descent.

    **Effective, gradient-norm.** Let rows be independent. With c_it = ℓ'_i s_it (γ_it − f_i),

        ‖∇L(W)‖_F ≥ (σ/n) (Σ_i Σ_t c_it²)^½    and    ‖∇L(W)‖_F ≥ (σ_min/n) (Σ_i Σ_{t≠opt_i} c_it²)^½.

    σ_min is the least singular value of the rows G_it = x_i,opt z_iᵀ − x_it z_iᵀ, and σ the least singular value of
    c ↦ Σ c_it x_it z_iᵀ on Σ_t c_it = 0. *Derivation.* ∇L = (1/n) Σ_it c_it x_it z_iᵀ with Σ_t c_it = 0, which equals
    −(1/n) Σ_{t≠opt} c_it G_it. As the rows are independent, σ and σ_min are positive: their squares are eigenvalues of
    G Gᵀ (for σ, in the metric Σ_t c_it²), and are bounded from below over ℚ (:mod:`.row_independence`). c vanishes
    only if all scores of every input are equal, as s > 0.

    **Effective, saturation.** Let Δ_i be the least distance of two scores of input i, ε_i = n‖∇L‖_F/(σ|ℓ'_i|), and r a
    token. If ε_i < Δ_i s_ir,

        1 − s_ir ≤ √(T − 1) ε_i / (Δ_i − ε_i/s_ir).

    If r has the largest weight, s_ir ≥ 1/T. *Derivation.* Σ_t s_it² (γ_it − f_i)² ≤ ε_i² by gradient-norm; so |γ_ir −
    f_i| ≤ ε_i/s_ir, |γ_it − f_i| ≥ Δ_i − ε_i/s_ir for t ≠ r, and Σ_{t≠r} s_it |γ_it − f_i| ≤ √(T − 1) ε_i.

    **Effective, gradients-are-summable.** η Σ_{k<K} ‖∇L(W(k))‖² ≤ (8/7)(L(W(0)) − L_⋆), L_⋆ = (1/n) Σ ℓ(γ_i,opt) =
    inf L, as ATT-SVM(opt) is feasible. So min_{k<K} ‖∇L(W(k))‖² ≤ (8/7)(L(W(0)) − L_⋆)/(ηK). *Derivation.* By the
    descent lemma L(W − η∇L) ≤ L(W) − η(1 − ηL̂/2)‖∇L‖², and η ≤ 1/L_W ≤ 1/(4L̂) with the L̂ of Lemma 6. With distinct
    scores the gradients tend to zero, so that by saturation all s_it tend to 0 or 1; the tokens with weight 1 settle,
    as steps tend to zero; and so ‖W(k)‖_F → ∞.

    **Limit, norm-diverges.** The norm of the gradient flow diverges as well: ∫‖∇L‖² dt is at most L(W(0)) − L_⋆, so a
    bounded flow would have a stationary limit point. The flow from one of the starts is followed to norms of 1e6 (1e5
    or 1e4 if float64 resolves no more) in units of 1/max|key|; claims check that it is the flow of the gradient under
    test. The starts are the origin, a point near the origin, a point far from the origin, and the case's start; step
    sizes range from 1/L_W down to 0.01/L_W.

    **Effective, where non-optimal scores are equal.** For every W' with all (x_i,opt − x_it)ᵀ W' z_i ≥ m > 0, −⟨∇L(W),
    W'⟩ ≥ (m/n) Σ_i |ℓ'_i| gap_i s_i,opt (1 − s_i,opt) > 0: Lemma 4 of the first paper, whose derivation uses only that
    p_mm/m is feasible; gap_i is the score gap of input i. The inequality needs no independence, and is claimed for W^mm
    (descent) and for other feasible W'.
    """
    problem, rng = case.problem, case.rng()
    yield from premises(query_claims(case, under_test))
    independence = Independence.of(problem) if independent_rows(case).holds else None
    iterates = np.zeros((0, problem.d))
    for item in descent_run(problem, under_test, *_starts(case, rng)):
        if isinstance(item, Claim):
            yield item
        else:
            iterates = item

    def sides(points: Float64[np.ndarray, "m d"]) -> tuple[Any, Any]:
        assert independence is not None
        at = AttentionAt(problem, points, under_test.textbook_eps)
        return norm_sides(at, at.gradient_of(under_test, GRADIENT_NORM), independence)

    points = probe_points(rng, problem, m=affordable(problem, POINTS))
    if independence is not None:
        points = climb(rng, points, violation_of(sides))
    points = np.concatenate([points, iterates])
    at = AttentionAt(problem, points, under_test.textbook_eps)
    gradient = at.gradient_of(under_test, HEAD_DIRECTION)
    assert case.queried is not None, "the statement assumes queries-given"
    yield from head_direction(case.queried, at, gradient)
    if independence is not None:
        yield at_least(GRADIENT_NORM, Form.EFFECTIVE, *norm_sides(at, gradient, independence))
        yield from saturation(at, gradient, independence)
    if equal_non_optimal_scores(case).holds:
        yield from _where_scores_are_equal(case, under_test, at, gradient, rng)
    if not under_test.textbook_eps:
        yield from _diverges(case, under_test, rng)


def _where_scores_are_equal(
    case: Case, under_test: Implementation, at: AttentionAt, gradient: Numbers, rng: np.random.Generator
) -> Iterator[Claim]:
    """Yield the claims of Lemma 4 of the first paper, and the claim of its inequality for other feasible W'."""
    problem = case.problem
    yield from lemma_4.conclusion(case, under_test)
    svm = solve_att_svm(problem, problem.optimal, under_test, FEASIBLE_DESCENT, Form.EFFECTIVE)
    yield at_least(FEASIBLE_DESCENT, Form.EFFECTIVE, *feasible_sides(at, gradient, feasible_points(problem, svm, rng)))


def _diverges(case: Case, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield the claims that the flow from one of the starts reaches the largest norm that float64 resolves."""
    starts, _ = _starts(case, rng)
    start, unit = starts[int(rng.integers(len(starts)))], 1 / case.problem.key_scale
    followed = FollowedFlow.of(case.problem, under_test, start, unit, RELATIVE, rng, NORM_DIVERGES)
    yield from premises(followed)
    yield from followed.diverges()


def _starts(case: Case, rng: np.random.Generator) -> tuple[Float64[np.ndarray, "m d"], Float64[np.ndarray, "m"]]:
    """Return the starts (0, a point near 0, a point far from 0, and the case's start), and log(ηL_W) of each start.

    η is the step size, and L_W the paper's smoothness constant of L.
    """
    unit = rng.normal(size=(2, case.problem.d)) / case.problem.key_scale
    starts = [np.zeros(case.problem.d), unit[0], 10 * unit[1]]
    if case.start is not None:
        starts.append(case.start)
    return np.array(starts), np.array([0.0, *np.log(rng.uniform(0.01, 1.0, len(starts) - 1))])


def norm_sides(at: AttentionAt, gradient: Numbers, independence: Independence) -> tuple[Numbers, Numbers]:
    """Return ‖∇L‖_F and its lower bound by the statement (gradient-norm), both times n e^{−log_scale}; (b,).

    The factor e^{−log_scale}, one per point, keeps small gradients within the range of float64.
    """
    problem = at.problem
    tokens = np.arange(problem.T)
    # The coefficients c_it of an input sum to zero.
    coefficients: Any = np.where(
        tokens == at.token[..., None], -np.sum(at.coefficients, axis=-1)[..., None], at.coefficients
    )
    non_optimal: Any = np.where(tokens == problem.optimal[:, None], 0.0, coefficients)
    flat = (len(at.token), -1)
    bounds = [
        np.sqrt(exact(independence.zero_sum_squared)) * norm(coefficients.reshape(flat), axis=1),
        np.sqrt(exact(independence.rows_squared)) * norm(non_optimal.reshape(flat), axis=1),
    ]
    return problem.n * norm(gradient, axis=1), np.maximum(*bounds)


def saturation(at: AttentionAt, gradient: Numbers, independence: Independence) -> Iterator[Claim]:
    """Yield the claim of the statement's saturation bound, in logarithms, for inputs and points with ε_i < Δ_i s_ir."""
    problem, b = at.problem, len(at.token)
    ordered = np.sort(problem.scores, axis=1)
    least: Any = np.min(exact(ordered[:, 1:]) - ordered[:, :-1], axis=1)
    with np.errstate(divide="ignore"):
        log_short = np.log(problem.n * norm(gradient, axis=1) / np.sqrt(exact(independence.zero_sum_squared)))
    log_eps = (log_short + at.log_scale)[:, None] - at.log_slopes
    is_chosen = np.arange(problem.T) == at.token[..., None]
    log_own = at.log_weights[np.arange(b)[:, None], np.arange(problem.n), at.token]
    room = least - np.exp(np.minimum(log_eps - log_own, 700.0))
    speaks = np.asarray(room > 0) & (value_of(least) > 0)
    if not speaks.any():
        return
    missed = np.logaddexp.reduce(np.where(is_chosen, -np.inf, at.log_weights), axis=-1)
    allowed = np.log(with_rounding(root_of_others(problem))) + log_eps[speaks] - np.log(room[speaks])
    yield at_least(SATURATION, Form.EFFECTIVE, allowed, missed[speaks], points="input at a point")


def root_of_others(problem: Problem) -> float:
    """Return √(T − 1), which bounds Σ|c_t|/‖c‖ over all tokens except one."""
    return float(np.sqrt(problem.T - 1))


def head_direction(data: QueryDataset, at: AttentionAt, gradient: Numbers) -> Iterator[Claim]:
    """Claim vᵀ∇L(W) = −(1/n) Σ_i |ℓ'_i| Var_i Y_i z_i, (b, e), and descent along v qᵀ if a q separates the labels."""
    problem, tokens = at.problem, np.arange(at.problem.T)
    chosen_scores = np.take_along_axis(problem.scores[None], at.token[..., None], axis=2)
    # A score may be a rounded product Y vᵀx with an error bound; its difference from itself is exactly 0.
    apart = np.where(tokens == at.token[..., None], 0.0, with_rounding(problem.scores) - with_rounding(chosen_scores))
    variances: Any = np.vecdot(at.coefficients, apart)
    signed = data.Y[:, None] * data.queries
    along = np.einsum("bde,d->be", gradient.reshape(len(at.token), *data.shape), exact(data.v))
    yield equal(HEAD_DIRECTION, along, -np.einsum("bn,ne->be", variances, exact(signed)) / problem.n)
    separator = label_svm(signed)
    if isinstance(separator, LabelSvm):
        least = np.min(exact(signed) @ separator.v)
        left, right = -along @ separator.v, least * np.sum(variances, axis=1) / problem.n
        yield at_least(QUERY_DESCENDS, Form.EFFECTIVE, left, right)


def feasible_points(problem: Problem, svm: MaxMargin, rng: np.random.Generator) -> Points:
    """Return W^mm and other W whose margins are at least 1, up to rounding.

    As rows are independent, there are W with arbitrary margins ≥ 1; each W gets a random component in the kernel of G.
    """
    others = np.arange(problem.T) != problem.optimal[:, None]
    G = value_of(key_rows(problem, problem.optimal))[others]
    margins = 1 + rng.exponential(size=(FEASIBLE, len(G))) * rng.choice([0.0, 1.0, 100.0], size=(FEASIBLE, 1))
    inverse = np.linalg.pinv(G)
    free = rng.normal(size=(FEASIBLE, problem.d)) * svm.norm * rng.choice([0.0, 1.0, 30.0], size=(FEASIBLE, 1))
    return np.concatenate([svm.p[None], margins @ inverse.T + free - (free @ G.T) @ inverse.T])


def feasible_sides(at: AttentionAt, gradient: Numbers, feasible: Points) -> tuple[Numbers, Numbers]:
    """Return −⟨∇L, W'⟩ and its bound m(W') (1/n) Σ_i |ℓ'_i| gap_i s_i (1 − s_i), both times e^{−log_scale}; (b, m)."""
    problem = at.problem
    others = np.arange(problem.T) != problem.optimal[:, None]
    rows = key_rows(problem, problem.optimal)[others]
    margins = np.min(exact(feasible) @ rows.T, axis=1)
    climbs = np.sum(np.exp(log_climb(at) - at.log_scale[:, None]), axis=1)
    return -gradient @ feasible.T, climbs[:, None] * margins


def descent_run(
    problem: Problem, under_test: Implementation, starts: Points, fractions: Float64[np.ndarray, "m"]
) -> Iterator[Claim | Points]:
    """Yield the claims on gradient descent with log(ηL_W) = ``fractions``, and last an array of some iterates."""
    log_step = fractions - under_test[log_smoothness](problem)
    run = under_test[gradient_descent](
        problem, starts, steps=STEPS, log_step=log_step, gradient=under_test[scaled_gradient]
    )
    first_claim = starts_claim(RUN_IS_ASKED_FOR, run.points, starts, STEPS)
    yield first_claim
    if first_claim.verdict is Verdict.FALSIFIED:
        return
    if run.stop is Stop.OVERFLOW:
        raise Undecided(SUMMABLE, "a step of gradient descent overflows float64", Form.EFFECTIVE)
    if not np.isfinite(run.points).all():
        raise NotANumber(SUMMABLE, "an iterate of gradient descent is not finite")
    at = AttentionAt(problem, run.points.reshape(-1, problem.d), under_test.textbook_eps)
    shape = run.points.shape
    gradient = at.gradient_of(under_test, SUMMABLE).reshape(shape)
    log_scale = at.log_scale.reshape(shape[:2])
    yield steps_claim(IS_A_STEP, run.points[:-1], run.points[1:], gradient[:-1], log_scale[:-1], log_step)
    logs = exact(log_step) + log_scale
    steps = np.exp(np.minimum(logs, 700.0))[..., None] * gradient
    lengths = norm(steps, axis=-1)
    left = SUMMED * np.exp(np.minimum(log_step + log_excess_of(under_test, problem, starts, SUMMABLE), 700.0))
    step_values, sizes = value_of(steps), np.abs(value_of(logs))[..., None]
    beside = norm(
        EPS * (np.abs(run.points[1:]) + (4 + sizes[:-1]) * np.abs(step_values[:-1])) + steps.error[:-1], axis=-1
    )
    lost = np.sum((2 * value_of(lengths)[1:] + beside) * beside, axis=0)
    right = np.sum(lengths[:-1] * lengths[:-1], axis=0)
    yield at_least(SUMMABLE, Form.EFFECTIVE, left.widen(lost), right, why=SUMMED_ROUNDING, points="start")
    yield np.asarray(run.points[[1, STEPS // 2, STEPS]].reshape(-1, problem.d))
