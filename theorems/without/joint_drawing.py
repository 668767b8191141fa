"""Strategies for hunts: joint problems of small integers that need not satisfy any assumption."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.numbers import integers
from reference_attention.paths.joint_risk import chosen_rows
from reference_attention.problem import Dataset
from reference_attention.svm.label_svm import label_svm
from reference_attention.svm.max_margin import Infeasible


@st.composite
def plain_joint_cases(
    draw: DrawFn,
    *,
    n: tuple[int, int] = (2, 2),
    T: int = 2,
    d: int = 2,
    zero_others: bool = False,
    key_queries: bool = False,
) -> Case:
    """Draw tokens with entries −2 … 2, α = 0 and labels ±1; the head is v_mm, so that scores are label margins.

    Args:
        draw: Hypothesis's function that draws from a strategy.
        n: least and largest number of inputs.
        T: number of tokens.
        d: dimension of tokens.
        zero_others: whether tokens other than α are zero, as in Figure 3.
        key_queries: whether a W of small integers, of any rank, is drawn as well.
    """
    size = draw(st.integers(*n))
    X = np.zeros((size, T, d))
    X[:, 0] = draw(integers((size, d), -2, 2))
    if not zero_others:
        X[:, 1:] = draw(integers((size, T - 1, d), -2, 2))
    Y = np.array(draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=size, max_size=size)))
    W = draw(integers((draw(st.integers(1, 2)), d), -1, 1)).astype(np.float64) if key_queries else None
    alpha = np.zeros(size, dtype=np.int64)
    svm = label_svm(chosen_rows(Y[:, None, None] * X, alpha))
    assume(not isinstance(svm, Infeasible))
    assert not isinstance(svm, Infeasible)
    data = Dataset(X, Y, svm.v, W)
    return Case(data.problem, dataset=data, alpha=alpha, seed=0)
