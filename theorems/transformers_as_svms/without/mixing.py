"""Attention that mixes, for tokens that are not orthonormal, or with a masked token that costs nothing to first order.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.mixing_assumptions import PENALTY, exact_scores, penalty_of, selected_sets, thresholds
from generators.numbers import integers
from reference_attention.exact import to_float, to_floats
from reference_attention.floats import EPS
from reference_attention.optimal_attention import optimal_attention
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.transformers_as_svms.without.simplex import least_weights, loss_at, plain_head_cases
from theorems.without.ball_minimum import near, path_claim
from theorems.without.noisy_excess import Excess
from theorems.without.risks import Risk
from theorems.without.weakening import weaken


@weaken(
    "tsvm-mixing",
    without="orthonormal-tokens",
    refutes="attention inside O_i tends to the projection s⋆ of γ/(2λ) on the simplex, which minimises the risk",
    cases=plain_head_cases,
)
def other_tokens(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let tokens not be orthonormal: the head depends on ‖Xᵀs‖², not ‖s‖², and other weights than s⋆ have less risk."""
    assert case.queried is not None
    attention = under_test[optimal_attention](exact_scores(case.queried), penalty_of(case))
    for i, weights in enumerate(attention.weights):
        best = least_weights(case, i)
        if best is not None:
            gap = loss_at(case, i, best) - loss_at(case, i, list(weights))
            detail = f"input {i}: ({', '.join(map(str, best))}) have less loss than ({', '.join(map(str, weights))})"
            yield Claim("attention-is-optimal", Form.EXACT, min(to_float(gap), 0.0), 0.0, EXACT, detail)


@st.composite
def _on_a_threshold(draw: DrawFn) -> Case:
    """Draw two inputs of two tokens ±e_1 and ±e_2, queries ±1, and the largest λ at which input 0 selects one token."""
    axes = [np.eye(2)[:: draw(st.sampled_from((1, -1)))] for _ in range(2)]
    X = np.stack(axes) * draw(integers((2, 2, 1), 0, 1)) * -2.0 + np.stack(axes)
    v = draw(integers((2,), -4, 4)).astype(float)
    queries = 1.0 - 2.0 * draw(integers((2, 1), 0, 1))
    data = QueryDataset(X, queries, [1.0, 1.0], v, "correlation")
    top = to_float(max(thresholds(exact_scores(data)[0])))
    return Case(data.problem, queried=data, arrays={PENALTY: np.array([top / 2 if top else 1.0])})


@weaken(
    "tsvm-mixing",
    without="decided-attention",
    refutes="W̄(R) = argmin_{‖W‖_F ≤ R} L(W) satisfies W̄(R)/R → W^mm/‖W^mm‖_F, W^mm of Gen-SVM",
    cases=_on_a_threshold,
)
def free_token(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a token of weight s cost nothing to first order: it costs 2λs², not νs, so half the margin is as cheap."""
    data, sets = case.queried, selected_sets(case)
    assert data is not None
    if (sets.sum(axis=1) > 1).any() or data.problem.d > 2 or sets.shape[1] != 2:
        return
    attention = under_test[optimal_attention](exact_scores(data), penalty_of(case))
    svm = under_test[general_svm](data.keys, sets, attention.first)
    if isinstance(svm, GeneralSvm):
        W = to_floats(svm.point)
        yield from path_claim("path-correlation", _risk(case, under_test), len(W), float(np.linalg.norm(W)), near(W))


def _risk(case: Case, under_test: Implementation) -> Risk:
    """Return the function W ↦ n(L − L_⋆) = Σ_i (ν_i s_i + 2λs_i²) for T = 2, if s⋆ selects a single token per input.

    s_i is the weight of the token that s⋆ does not select.
    """
    data, lam = case.queried, to_float(penalty_of(case))
    assert data is not None
    attention = under_test[optimal_attention](exact_scores(data), penalty_of(case))
    alpha = attention.first
    inputs = np.arange(len(alpha))
    rows = data.problem.keys[inputs, alpha] - data.problem.keys[inputs, 1 - alpha]
    nu = np.array([to_float(attention.multipliers[i][1 - a]) for i, a in enumerate(alpha.tolist())])

    def risk(points: Float64[np.ndarray, "m d"]) -> Excess:
        margins = points @ rows.T
        log_s = -np.logaddexp(0.0, margins)
        with np.errstate(divide="ignore"):
            each = log_s + np.logaddexp(np.log(nu), np.log(2 * lam) + log_s)
        total = np.logaddexp.reduce(each, axis=-1)
        error = 32 * EPS * (1 + np.abs(margins).max(axis=-1))
        return Excess(np.ones_like(total), total, total + np.log(error))

    return risk
