"""Strategies for the nuclear norm: data of every kind, and aligned data, for which ATT-SVM⋆ has several solutions.

ATT-SVM⋆ minimises the nuclear norm of W. In aligned data the row of input i is the token difference c_i e_i times the
query b_i e_i, for positive numbers c_i and b_i and axes e_i, up to a permutation of axes. The constraints fix only the
diagonal of W, and every W ⪰ 0 with this diagonal has the least nuclear norm C_⋆ = Σ 1/(c_i b_i). So with two or more
inputs there are solutions of several ranks, and the claims are about the set of solutions.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from generators.case import Case
from generators.numbers import one_in
from generators.query_cases import query_cases
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.query_dataset import QueryDataset

INPUTS, MORE_AXES = 4, 2
"""The largest number of inputs, and the largest number of axes in addition to one per input."""
LENGTHS = (1.0, 2.0, 0.5, 4.0)


@st.composite
def aligned_cases(draw: DrawFn) -> Case:
    """Draw a case of aligned data.

    Token 0 is Y_i c_i e_i and optimal; the other tokens are 0, or opposite with a larger margin. The head is (1, …, 1).
    """
    n, more, T = draw(st.integers(2, INPUTS)), draw(st.integers(0, MORE_AXES)), draw(st.integers(2, 3))
    d = n + more
    left, right = (np.array(draw(st.permutations(range(d))))[:n] for _ in range(2))
    lengths, sizes = (np.array(draw(st.lists(st.sampled_from(LENGTHS), min_size=n, max_size=n))) for _ in range(2))
    Y = np.array(draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=n, max_size=n)))
    X, queries = np.zeros((n, T, d)), np.zeros((n, d))
    X[np.arange(n), 0, left] = Y * lengths
    X[np.arange(n), T - 1, left] = -Y * lengths * (T - 2)
    queries[np.arange(n), right] = sizes
    data = QueryDataset(X, queries, Y, np.ones(d), loss_named(draw(st.sampled_from(DRAWN_LOSSES))))
    return Case(data.problem, queried=data, seed=draw(st.integers(0, 2**32 - 1)))


@st.composite
def nuclear_cases(draw: DrawFn) -> Case:
    """Draw a case of :func:`.query_cases` or, one time in six, of aligned data."""
    strategy: SearchStrategy[Case] = aligned_cases() if draw(one_in(6)) else query_cases()
    return draw(strategy)
