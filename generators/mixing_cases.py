"""Strategy for data whose optimal attention is a known mixture: orthonormal tokens, head vᵀx − λ‖x‖², all dyadic.

Tokens are signed unit vectors, usually mapped by dyadic reflections I − ½uuᵀ, where u has four entries ±1. The number
2λ is drawn relative to the thresholds (:func:`.thresholds`) above which a further token gets weight: between two
thresholds, very near a threshold, on a threshold, below all positive thresholds (one token gets weight) or above all
thresholds (all tokens get weight).

Queries z_i are linearly independent, so that some W attains any log-ratios of weights and separates any sets of tokens.
If the rows (x_iα − x_it) z_iᵀ are independent anyway, queries may also be the first tokens of inputs, or have fewer
than n dimensions. An input may occur twice.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

import numpy as np
from flint import fmpq, fmpq_mat
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.margin_assumptions import Vector, difference_rows
from generators.mixing_assumptions import PENALTY, exact_scores, thresholds
from generators.numbers import Frame, integers, one_in
from reference_attention.exact import rational_matrix, to_float
from reference_attention.query_dataset import QueryDataset

MOST = (3, 5, 6)
"""The largest number of inputs n, number of tokens T and dimension d."""
TOKENS = (4, 3, 5, 2)
"""The values of T; a failing case shrinks to the first, at which two tokens may get weight and two none."""
BESIDE = 2.0**-16
"""The distance between 2λ and a threshold in a near tie."""

Tokens = Float64[np.ndarray, "n T d"]


class PenaltyPlace(StrEnum):
    """The position of 2λ relative to the thresholds of tokens; a failing case shrinks to the first position."""

    BETWEEN = "between two thresholds"
    ONE = "one token is selected"
    BESIDE = "beside a threshold"
    ON = "on a threshold"
    ALL = "all tokens of an input are selected"


MIXING = (PenaltyPlace.BETWEEN, PenaltyPlace.BETWEEN, PenaltyPlace.ONE, PenaltyPlace.BESIDE)
"""The positions of 2λ at which some token gets no weight and no token is tied."""


@st.composite
def mixing_cases(
    draw: DrawFn, *, where: tuple[PenaltyPlace, ...] = tuple(PenaltyPlace), attainable: bool = False
) -> Case:
    """Draw cases with orthonormal tokens and a penalty.

    Args:
        draw: the function that Hypothesis passes.
        where: the positions that 2λ may have relative to the thresholds of the first input.
        attainable: whether 2λ must not be a threshold of any input, so that some W attains optimal attention in the
            limit.
    """
    inputs, _, dims = MOST
    n, T = draw(st.integers(1, inputs)), draw(st.sampled_from(TOKENS))
    d = draw(st.integers(T, dims))
    frame = Frame(n, T, d, MOST)
    X = draw(orthonormal_tokens(frame))
    v = draw(integers((d,), -8, 8, most=(dims,))) / draw(st.sampled_from((2.0, 1.0, 8.0)))
    if np.ptp(X[0] @ v) == 0:
        # With equal scores all thresholds are 0, so that 2λ > 0 is above them; use the scores T, …, 1 instead.
        v = v + np.arange(T, 0, -1) @ X[0]
    place = draw(st.sampled_from(where))
    twin = n > 1 and draw(one_in(6))
    if twin:
        X[1] = X[0]
    queries = separate_queries(draw, X, twin=twin)
    data = QueryDataset(X, queries, np.ones(n), v, "correlation")
    lam = draw(_penalty(exact_scores(data)[0], place))
    if attainable:
        lam = _off_thresholds(lam, data)
    arrays = MappingProxyType({PENALTY: np.array([lam])})
    return Case(data.problem, queried=data, arrays=arrays, seed=draw(st.integers(0, 2**32 - 1)))


@st.composite
def orthonormal_tokens(draw: DrawFn, frame: Frame) -> Tokens:
    """Draw orthonormal tokens: unit vectors times ±1, usually mapped by reflections with dyadic entries."""
    T, d = frame.tokens, frame.d
    axes = np.argsort(draw(frame.integers("nd", 0, 9)), axis=1, kind="stable")[:, :T]
    X = draw(frame.choices("nT", (1.0, -1.0)))[:, :, None] * np.eye(d)[axes]
    for _ in range(draw(st.integers(0, 2)) if d >= 4 else 0):
        u = draw(frame.choices("d", (1.0, -1.0)))
        u[np.argsort(draw(frame.integers("d", 0, 9)), kind="stable")[4:]] = 0.0
        X = X - 0.5 * (X @ u)[:, :, None] * u
    return np.asarray(X)


def separate_queries(draw: DrawFn, X: Tokens, *, twin: bool = False) -> Float64[np.ndarray, "n e"]:
    """Draw queries z_i such that these, or the rows (x_iα − x_it) z_iᵀ, are linearly independent.

    With ``twin`` the first two inputs are equal, and get the same query; only the other queries are independent.
    """
    n, inputs = len(X), MOST[0]
    if not twin and draw(one_in(3)) and _independent(X, X[:, 0]):
        return X[:, 0].copy()
    e = draw(st.integers(1, inputs))
    independent = draw(integers((n, e), -3, 3, most=(inputs, inputs))) / draw(st.sampled_from((1.0, 2.0)))
    if not twin and e < n and _independent(X, independent):
        return independent
    queries = np.pad(independent, ((0, 0), (0, max(n - e, 0))))
    # The query of the second of two equal inputs is copied below.
    rows = [i for i in range(n) if not (twin and i == 1)]
    shift = 0.0
    while int(rational_matrix(queries[rows]).rank()) < len(rows):
        shift += 1.0
        queries[rows, np.arange(len(rows))] += shift
    if twin:
        queries[1] = queries[0]
    return queries


def _independent(X: Tokens, queries: Float64[np.ndarray, "n e"]) -> bool:
    data = QueryDataset(X, queries, np.ones(len(X)), np.ones(X.shape[2]), "correlation")
    rows = list(difference_rows(data.keys, np.zeros(len(X), dtype=np.int64)).values())
    return len(rows) <= data.problem.d and int(fmpq_mat(rows).rank()) == len(rows)


@st.composite
def _penalty(draw: DrawFn, scores: Vector, where: PenaltyPlace) -> float:
    """Draw a dyadic λ such that 2λ > 0 has the position ``where``."""
    levels = sorted({to_float(x) for x in thresholds(scores)})
    k = 1 + draw(st.integers(1, MOST[1] - 1)) % (len(levels) - 1)
    part = draw(st.sampled_from((0.5, 0.25, 0.75)))
    if where is PenaltyPlace.ALL:
        return (levels[-1] + 4 * part) / 2
    if where is PenaltyPlace.ON:
        return levels[k] / 2
    if where is PenaltyPlace.BESIDE:
        above = draw(st.booleans()) and k + 1 < len(levels)
        return (levels[k] + (BESIDE if above else -BESIDE)) / 2
    if where is PenaltyPlace.ONE:
        k = 1
    return (levels[k - 1] + part * (levels[k] - levels[k - 1])) / 2


def _off_thresholds(lam: float, data: QueryDataset) -> float:
    """Return λ; if 2λ is a threshold of any input, reduce λ by less than the distance to the next threshold."""
    forbidden = {x / 2 for row in exact_scores(data) for x in thresholds(row)}
    step = BESIDE
    while fmpq(*lam.as_integer_ratio()) in forbidden:
        step /= 2
        lam -= step / 2
    return lam
