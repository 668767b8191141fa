"""Embeddings like those of networks: Gaussian or normalised vectors of mixed scales, some nearly equal or parallel.

Data are separable by construction: the optimal token is the token farthest along a drawn direction, and the class of a
feature is the index of the drawn row with the largest product with the feature, both decided exactly. A query on the
wrong side of a drawn hyperplane for its label is multiplied by −1.

References: issue reports.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.labelled_features import LabelledFeatures, label_cases
from generators.numbers import Frame, one_in
from generators.realistic_numbers import is_realistic
from generators.scores import optimal_scores
from reference_attention.exact import products, rational
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset

Features = Float64[np.ndarray, "m d"]
C = TypeVar("C")

MOST = (3, 5, 5)
"""The largest numbers of inputs and tokens and the largest dimension of attention data.

:data:`MOST_LABELLED` has the largest numbers of features and classes and the largest dimension of classification data.
"""
MOST_LABELLED = (6, 4, 4)
TIES = (1e-9, 1e-13, 1e-11, 1e-6, 0.0)
"""The relative differences between nearly equal embeddings; 0 gives a copy."""
SCALES = (-3.0, 3.0)
"""The smallest and the largest exponent of ten among the scales of the embeddings of one data set."""
COUNTS = 10_000
"""The largest count of a feature."""


def or_embedded(ordinary: SearchStrategy[C], embedded: SearchStrategy[C]) -> SearchStrategy[C]:
    """Return a strategy that draws from ``embedded`` in half of the realistic cases, and else from ``ordinary``."""

    @st.composite
    def either(draw: DrawFn) -> C:
        return draw(embedded if draw(is_realistic()) and draw(st.booleans()) else ordinary)

    return either()


@st.composite
def embeddings(draw: DrawFn, m: int, d: int) -> Features:
    """Draw m Gaussian vectors, sometimes normalised or each with its own scale; some are nearly equal or parallel."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vectors = rng.normal(size=(m, d))
    if draw(one_in(3)):
        vectors *= 10.0 ** rng.uniform(*SCALES, (m, 1))
    elif draw(st.booleans()):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for _ in range(draw(st.integers(0, 2))):
        first, second = rng.integers(m, size=2)
        tie, factor = draw(st.sampled_from(TIES)), draw(st.sampled_from((1.0, 1.0, 2.0, 0.3)))
        size = float(np.abs(vectors[first]).max())
        vectors[second] = factor * (vectors[first] + tie * size * rng.integers(-1, 2, size=d))
    return vectors


@st.composite
def embedded_cases(draw: DrawFn, *, single: bool = False, equal: bool = False) -> Case:
    """Draw separable problems for training a prompt, with embeddings as keys and one best token in each input.

    Args:
        draw: the function that Hypothesis passes.
        single: whether there is only one input.
        equal: whether all other tokens have the same score (Assumption B).
    """
    n, T, d = (draw(st.integers(low, high)) for low, high in _sizes(single))
    keys = draw(embeddings(n * T, d)).reshape(n, T, d)
    along = draw(embeddings(1, d))[0]
    alpha = np.array([_set_apart(tokens, along) for tokens in keys])
    scores = _best_at(draw(optimal_scores(Frame(n, T, d, (n, T, d)), equal=equal)), alpha)
    loss = loss_named(draw(st.sampled_from(DRAWN_LOSSES)))
    return Case(Problem(keys, scores, loss), seed=draw(st.integers(0, 2**32 - 1)))


@st.composite
def embedded_query_cases(draw: DrawFn, *, single: bool = False, equal: bool = False) -> Case:
    """Draw tokens and queries that are embeddings; a token's first coordinate is its score times the input's label.

    The arguments are those of :func:`embedded_cases`.
    """
    n, T, d = (draw(st.integers(low, high)) for low, high in _sizes(single))
    e = draw(st.integers(1, MOST[2]))
    X, queries = draw(embeddings(n * T, d)).reshape(n, T, d), draw(embeddings(n, e))
    Y = np.where(draw(st.lists(st.booleans(), min_size=n, max_size=n)), 1.0, -1.0)
    X[:, :, 0] = Y[:, None] * draw(optimal_scores(Frame(n, T, d, (n, T, d)), equal=equal))
    along = draw(embeddings(1, e))[0]
    exact = [rational(x) for x in along.tolist()]
    for i, query in enumerate(queries):
        side = products([[rational(x) for x in query.tolist()]], exact)[0]
        queries[i] = Y[i] * (query if side > 0 else -query if side < 0 else along)
    loss = loss_named(draw(st.sampled_from(DRAWN_LOSSES)))
    data = QueryDataset(X, queries, Y, np.eye(d)[0], loss)
    return Case(data.problem, queried=data, seed=draw(st.integers(0, 2**32 - 1)))


@st.composite
def embedded_labels(draw: DrawFn) -> LabelledFeatures:
    """Draw classification data with embeddings as features; sometimes a feature is very near a decision boundary."""
    n, k, d = (draw(st.integers(low, high)) for low, high in zip((1, 2, 1), MOST_LABELLED, strict=True))
    features = draw(embeddings(n, d))
    heads = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=(k, d))
    if draw(st.booleans()):
        i, between = draw(st.integers(0, n - 1)), heads[0] - heads[1]
        off = features[i] @ between / (between @ between)
        features[i] -= (1 - draw(st.sampled_from((1e-9, 1e-12, 1e-6)))) * off * between
    table = [[rational(x) for x in row] for row in heads.tolist()]
    labels = np.zeros(n, dtype=np.int64)
    for i, feature in enumerate(features):
        logits = products(table, [rational(x) for x in feature.tolist()])
        labels[i] = max(range(k), key=lambda v: logits[v])
        if sum(x == logits[labels[i]] for x in logits) > 1:
            labels[i] = int(np.argmax((heads * heads).sum(axis=1)))
            features[i] = heads[labels[i]]
    counts = draw(st.lists(st.integers(1, COUNTS), min_size=n, max_size=n)) if draw(one_in(3)) else [1] * n
    return LabelledFeatures(features, labels, np.array(counts), k, seed=draw(st.integers(0, 2**32 - 1)))


def label_or_embedded_cases() -> SearchStrategy[LabelledFeatures]:
    """Return a strategy for classification data, some of which have embeddings as features."""
    return or_embedded(label_cases(), embedded_labels())


def _sizes(single: bool) -> tuple[tuple[int, int], ...]:
    """Return the smallest and largest n, the smallest and largest T, and the smallest and largest d."""
    return ((1, 1 if single else MOST[0]), (2, MOST[1]), (1, MOST[2]))


def _set_apart(tokens: Features, along: Float64[np.ndarray, "d"]) -> int:
    """Return the index of the token farthest along a direction, decided exactly; move tied tokens back in place."""
    exact = [rational(x) for x in along.tolist()]
    places = products([[rational(x) for x in token] for token in tokens.tolist()], exact)
    best = max(range(len(tokens)), key=lambda t: places[t])
    for t in range(len(tokens)):
        step = 1e-9
        while t != best and not places[t] < places[best]:
            tokens[t] = tokens[best] - step * float(np.abs(tokens[best]).max() + 1e-9) * np.sign(along)
            places[t] = products([[rational(x) for x in tokens[t].tolist()]], exact)[0]
            step *= 1e3
    return best


def _best_at(scores: Float64[np.ndarray, "n T"], alpha: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "n T"]:
    """Return scores in which the best score of each input i is exchanged with the score of token α_i."""
    exchanged, every, best = scores.copy(), np.arange(len(alpha)), scores.argmax(axis=1)
    exchanged[every, alpha], exchanged[every, best] = scores[every, best], scores[every, alpha]
    return exchanged
