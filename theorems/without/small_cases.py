"""Strategies for hunts: cases of small readable numbers, with a start or with directions."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from reference_attention.losses import loss_named
from reference_attention.problem import Problem

SIZES = st.sampled_from((1.0, 1.0, 2.0, 0.5))
"""Factors by which vectors of small integers are multiplied."""


def small_vectors(d: int, *, zero: bool = False) -> SearchStrategy[Float64[np.ndarray, "d"]]:
    """Return a strategy for vectors of small integers, sometimes multiplied by 2 or ½.

    Args:
        d: the dimension of the vectors.
        zero: whether the strategy may draw the zero vector.
    """
    entries = st.lists(st.integers(-3, 3), min_size=d, max_size=d).map(lambda x: np.array(x, dtype=np.float64))
    strategy = st.tuples(entries, SIZES).map(lambda pair: pair[0] * pair[1])
    return strategy if zero else strategy.map(lambda q: q if q.any() else np.eye(d)[0])


def starts(problem: Problem) -> SearchStrategy[Float64[np.ndarray, "d"]]:
    """Return a strategy for small starts p(0), to be used as ``generators.problems.cases(start=starts)``."""
    return small_vectors(problem.d, zero=True)


@st.composite
def with_directions(draw: DrawFn, base: SearchStrategy[Case], *names: str) -> Case:
    """Draw a case from ``base``, and add to its arrays a small vector for each name."""
    case = draw(base)
    vectors = {name: draw(small_vectors(case.problem.d)) for name in names}
    return case.replace(arrays=MappingProxyType(dict(case.arrays) | vectors))


@st.composite
def plain_cases(
    draw: DrawFn,
    *,
    n: tuple[int, int] = (1, 2),
    tokens: tuple[int, int] = (2, 3),
    d: tuple[int, int] = (1, 2),
    losses: tuple[str, ...] = ("correlation", "logistic"),
) -> Case:
    """Draw keys and scores of small integers, without enforcing any assumption."""
    shape = tuple(draw(st.integers(*ends)) for ends in (n, tokens, d))
    size = int(np.prod(shape))
    keys = np.array(draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size)), dtype=np.float64).reshape(shape)
    count = shape[0] * shape[1]
    scores = np.array(draw(st.lists(st.integers(-2, 3), min_size=count, max_size=count)), dtype=np.float64)
    loss = loss_named(draw(st.sampled_from(losses)))
    return Case(Problem(keys, scores.reshape(shape[:2]), loss))


@st.composite
def flat_cases(draw: DrawFn) -> Case:
    """Draw two separable inputs with d = 2 and loss −u³; input 0 has the best score 0, where the derivative is 0."""
    assumed = ("separable", "strict-optimum")
    case = draw(cases(assumptions=assumed, n=2, tokens=2, d=2, losses=("cubic",), plain=True))
    problem = case.problem
    below = -1.0 * (np.arange(2) != problem.optimal[:, None])
    best = np.array([0.0, draw(st.sampled_from((1.0, 2.0, -1.0)))])
    return case.replace(problem=Problem(problem.keys, best[:, None] + below, problem.loss))


@st.composite
def flat_pairs(draw: DrawFn) -> Case:
    """Draw a case like :func:`flat_cases`, with prompts q and q_other that select its best tokens with margins 1 to 4.

    The differences between the best key and the other key, one for each input, form an integer matrix of determinant
    ±1, so that the prompts are integer, too.
    """
    case = draw(flat_cases())
    rows = np.array(draw(st.sampled_from(UNIMODULAR)), dtype=np.float64)
    alpha = case.problem.optimal
    keys = np.zeros((2, 2, 2))
    keys[np.arange(2), 1 - alpha] = -rows
    margins = st.lists(st.integers(1, 4), min_size=2, max_size=2)
    inverse = np.rint(np.linalg.inv(rows))
    prompts = {name: inverse @ np.array(draw(margins), dtype=np.float64) for name in ("q", "q_other")}
    problem = Problem(keys, case.problem.scores, case.problem.loss)
    return case.replace(problem=problem, arrays=MappingProxyType(prompts))


UNIMODULAR = (((1, 0), (0, 1)), ((1, 1), (0, 1)), ((1, 0), (1, 1)), ((0, 1), (1, 0)), ((1, 0), (0, -1)))
"""Integer matrices whose inverse is an integer matrix."""
