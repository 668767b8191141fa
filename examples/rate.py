"""Conjecture: a bound, at every step of gradient descent, on the angle to the max-margin direction, for one input.

The paper proves p(t)/‖p(t)‖ → p̄_mm for one input, without a rate.

theorems verify examples/rate.py:rate                                    the conjecture
theorems hunt examples/rate.py:rate --without every-token-supports       is its assumption needed?
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from reference_attention.risk import scaled_gradient
from theorems.api import (
    EPS,
    Assumption,
    AttentionAt,
    Case,
    Claim,
    Finding,
    Form,
    Implementation,
    MaxMargin,
    Problem,
    at_least,
    gradient_descent,
    in_floats,
    loss_named,
    max_margin,
    reason,
    statement,
)
from theorems.token_selection.global_paths.theorem_2_global_convergence import climb_bound, log_rate, reach

STEPS = 2_000

OFFSET = reason(
    "offset-rounding",
    "η Σ_s |δ∇L(p(s))| + t eps max‖p‖ + 8 m eps ‖G⁺‖ (1 + max|log w|)",
    "rounding: each step inherits the error of its gradient (twice AttentionAt's largest error at a recorded iterate)"
    " and rounds the sum; o solves an m×m system whose right side has a relative error of eps",
)


def every_token_supports(case: Case) -> Finding:
    """Check exactly that every token t but the optimal one is an SVM-neighbour with a positive dual.

    The rows k_opt − k_t have to be linearly independent, so that ATT-SVM has a single dual solution, and this solution
    has to be positive for all t.
    """
    svm = max_margin(case.problem.keys, case.chosen_tokens)
    if not isinstance(svm, MaxMargin):
        return Finding(False, "ATT-SVM is infeasible")
    others = case.problem.n * (case.problem.T - 1)
    holds = int(svm.neighbours.sum()) == others and svm.independent and svm.strictly_complementary
    return Finding(holds, f"{int((svm.duals > 0).sum())} of {others} other tokens have a positive dual")


@st.composite
def simplex_cases(draw: st.DrawFn) -> Case:
    """Draw keys with rows k_opt − k_j proportional to (1, l_j); the vectors l_j have Σ_j w_j l_j = 0 for some w_j > 0.

    Then p_mm lies along the first axis, and every token j is an SVM-neighbour with a positive dual.
    """
    m = draw(st.integers(2, 5))
    whole = st.integers(-3, 3)
    lateral = np.array(draw(st.lists(whole, min_size=m * m, max_size=m * m)), dtype=float).reshape(m, m)[:-1, :-1]
    lateral = np.tril(lateral, -1) + np.diag(draw(st.lists(st.integers(1, 3), min_size=m - 1, max_size=m - 1)))
    weights = np.array(draw(st.lists(st.sampled_from((1, 2, 8, 64)), min_size=m - 1, max_size=m - 1)))
    rows = np.column_stack([np.ones(m), np.vstack([lateral, -weights @ lateral])])
    best = np.array(draw(st.lists(whole, min_size=m, max_size=m)), dtype=float)
    keys = np.vstack([best, best - rows])[None] * 2.0 ** draw(st.integers(-2, 2))
    gap = draw(st.sampled_from((1.0, 0.5, 4.0, 2.0**-6)))
    scores = np.array([[gap, *[0.0] * m]]) + draw(st.sampled_from((0.0, -1.0, 2.0)))
    return Case(Problem(keys, scores, loss_named(draw(st.sampled_from(("logistic", "exponential", "correlation"))))))


@statement(
    "rate",
    "gradient descent from 0, n = 1: 1 − cos ≤ (‖o‖/‖p(t)‖)² ≤ C/log² t",
    source="open in the paper (Theorem 2 has no rate)",
    assumptions=(
        "well-behaved-loss",
        "single-input",
        "equal-non-optimal-scores",
        "separable",
        Assumption("every-token-supports", "every other token has a positive dual", "here", every_token_supports),
    ),
    cases=simplex_cases,
)
def rate(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let n = 1, η ≤ 1/L_p, p(0) = 0. Then the part of p(t) orthogonal to p_mm is never longer than its limit o.

    Here L_p is the smoothness constant of the risk L(p). At every t

        1 − cos(p(t), p_mm) ≤ (‖o‖/‖p(t)‖)² ≤ C / log²(1 + D²βt),    C = (‖o‖ D²/Θ)²,

    where Θ is the margin of p̄_mm, D = max_t ‖k_opt − k_t‖, β is the constant in the logarithmic growth of Theorem 2
    (`theorems show theorem-2`), the matrix G has the rows g_t = k_opt − k_t of the tokens with a dual λ_t > 0, and o is
    the part orthogonal to p_mm of a solution x of G x = −log(λ/Σλ).

    *What is known.* For the gradient flow, the part z of p orthogonal to p_mm descends the convex function
    Σ_t e^{−g_t·z} from 0 to its minimiser o, so that ‖z − o‖ ≤ ‖o‖ and ‖z‖ ≤ 2‖o‖. The conjecture is that ‖z‖ ≤ ‖o‖,
    also for finite steps.
    """
    problem = case.problem
    svm = under_test[max_margin](problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    run = gradient_descent(
        problem, np.zeros(problem.d), steps=STEPS, gradient=under_test[scaled_gradient], record_every=50
    )

    def across(p: np.ndarray) -> np.ndarray:
        return np.asarray(p - (p @ svm.direction)[..., None] * svm.direction)

    support = svm.duals[0] > 0
    rows = (problem.keys[0, problem.optimal[0]] - problem.keys[0])[support]
    logs = np.log(svm.duals[0, support] / svm.duals.sum())
    inverse = np.linalg.pinv(rows)
    limit, size = float(np.linalg.norm(across(-inverse @ logs))), np.linalg.norm(across(run.points), axis=1)
    at = AttentionAt(problem, run.points)
    error = 2 * np.exp(at.log_scale - problem.log_smoothness) * np.linalg.norm(at.gradient.error, axis=1)
    rounding = run.iterations * (error.max() + EPS * run.norms.max())
    rounding = rounding + 8 * len(rows) * EPS * np.linalg.norm(inverse, 2) * (1 + np.abs(logs).max())
    yield at_least("offset", Form.EFFECTIVE, limit, size, rounding=rounding, why=OFFSET, points="iterate recorded")
    with in_floats():
        log_beta, D = log_rate(problem, np.zeros(1)) - problem.log_smoothness, reach(problem)
        bound = climb_bound(problem, log_beta, run.iterations)[:, 0] * D**2  # log(1 + D²βt)
    constant = limit * D**2 / svm.margin
    far = bound[1:] > 0
    yield at_least(
        "rate",
        Form.EFFECTIVE,
        constant / bound[1:][far],
        np.sqrt(run.one_minus_cosine(svm.direction)[1:][far]),
        rounding=(rounding / run.norms.clip(min=1e-300))[1:][far],
        why=OFFSET,
        points="iterate recorded",
    )
