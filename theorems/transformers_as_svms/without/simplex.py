"""Optimal attention for tokens that need not be orthonormal: the exact minimum of φ(s) = −h(Xᵀs) on the simplex.

The minimum is found by solving, for every support, the linear equations ∂φ/∂s_t = −μ and Σ s = 1.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from itertools import combinations

from flint import fmpq, fmpq_mat
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.margin_assumptions import Vector, dot, exact_vector
from generators.mixing_assumptions import PENALTY, penalty_of
from generators.numbers import integers
from reference_attention.query_dataset import QueryDataset


@st.composite
def plain_head_cases(draw: DrawFn) -> Case:
    """Draw one input whose tokens and head have small integers as entries, and a penalty; enforce no assumption."""
    T, d = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    X = draw(integers((1, T, d), -2, 2, most=(1, 3, 3))).astype(float)
    v = draw(integers((d,), -3, 3, most=(3,))).astype(float)
    lam = draw(integers((1,), 1, 8)) / 2.0
    data = QueryDataset(X, [[1.0]], [1.0], v, "correlation")
    return Case(data.problem, queried=data, arrays={PENALTY: lam})


def loss_at(case: Case, i: int, s: Vector) -> fmpq:
    """Return the loss φ(s) = −h(Xᵀs) of input i, exactly."""
    assert case.queried is not None
    tokens = [exact_vector(token) for token in case.queried.X[i]]
    attended = [sum((a * row[k] for a, row in zip(s, tokens, strict=True)), fmpq(0)) for k in range(len(tokens[0]))]
    return penalty_of(case) * dot(attended, attended) - dot(exact_vector(case.queried.v), attended)


def least_weights(case: Case, i: int) -> Vector | None:
    """Return the weights of input i that minimise φ; None if dependent tokens may allow several minimisers."""
    assert case.queried is not None
    tokens = [exact_vector(token) for token in case.queried.X[i]]
    head, lam, T = exact_vector(case.queried.v), penalty_of(case), len(tokens)
    gram = [[2 * lam * dot(a, b) for b in tokens] for a in tokens]
    if fmpq_mat(gram).rank() < T:
        return None
    minimisers = []
    for size in range(1, T + 1):
        for support in combinations(range(T), size):
            rows = [[gram[t][u] for u in support] + [fmpq(1)] for t in support] + [[fmpq(1)] * size + [fmpq(0)]]
            right = [[dot(tokens[t], head)] for t in support] + [[fmpq(1)]]
            inside = [row[0] for row in fmpq_mat(rows).solve(fmpq_mat(right)).tolist()][:size]
            if min(inside) >= 0:
                s = [fmpq(0)] * T
                for t, weight in zip(support, inside, strict=True):
                    s[t] = weight
                minimisers.append(s)
    return min(minimisers, key=lambda s: loss_at(case, i, s))
