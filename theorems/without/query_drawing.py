"""Strategies for hunts in which W is trained: cases with tokens, queries and a head of small integers."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.numbers import integers
from reference_attention.losses import loss_named
from reference_attention.query_dataset import QueryDataset


@st.composite
def plain_query_cases(
    draw: DrawFn,
    *,
    n: tuple[int, int] = (1, 2),
    tokens: tuple[int, int] = (2, 3),
    d: tuple[int, int] = (1, 2),
    e: tuple[int, int] = (1, 2),
    losses: tuple[str, ...] = ("correlation", "logistic"),
) -> Case:
    """Draw tokens (of d entries), queries (of e), labels, head and start of small integers, without any assumption."""
    inputs, T, width, query_size = (draw(st.integers(*ends)) for ends in (n, tokens, d, e))
    X, queries = draw(integers((inputs, T, width), -2, 2)), draw(integers((inputs, query_size), -2, 2))
    Y = np.array(draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=inputs, max_size=inputs)))
    v = draw(integers((width,), -2, 2)) if width > 1 else np.ones(1)
    data = QueryDataset(X, queries, Y, v, loss_named(draw(st.sampled_from(losses))))
    start = draw(integers((width * query_size,), -2, 2)).astype(np.float64)
    return Case(data.problem, queried=data, start=start)
