"""Strategies for hunts: joint problems of small integers that need not satisfy any assumption.

In a joint problem head and prompt are trained.
"""

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
    """Draw tokens with entries −2 … 2 and labels ±1; token 0 of each input is chosen (α = 0).

    The head is v_mm, the max-margin head of the chosen tokens, so that the scores are label margins.

    Args:
        draw: Hypothesis's function that draws from a strategy.
        n: the smallest and the largest number of inputs.
        T: the number of tokens per input.
        d: the dimension of the tokens.
        zero_others: whether all tokens that are not chosen are zero, as in Figure 3.
        key_queries: whether a key-query matrix W of small integers, of any rank, is drawn, too.
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
