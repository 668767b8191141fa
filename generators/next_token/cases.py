"""Strategies for next-token data that are separable or compatible by construction; nothing is filtered.

A context j has an embedding h_j and a support S_j, the tokens observed after the context. The kinds of data are

- *planted*: the support is S_j = argmax_v (W_d h_j)_v, and on S_j token z has probability ∝ 2^{(W_p h_j)_z}, for small
  integer matrices W_d and W_p; separable and compatible by construction, with ties, in any dimension;
- *incompatible*: supports S_j as in *planted*, with any counts;
- *over*: at least as many dimensions as contexts, with linearly independent embeddings;
- *orthogonal*: embeddings that are pairwise orthogonal;
- *random*: any embeddings and counts;
- *repeated*: contexts that have the same embedding and are followed by different tokens;
- *independent* and *dependent*: sequences for attention, whose tokens have linearly independent or dependent
  embeddings.

One case in five is realistic (:func:`generators.realistic_numbers.is_realistic`): embeddings have mixed scales, are
nearly parallel, or one is the normalised copy of another; counts go up to 10⁴; or contexts are windows of a text
(:mod:`generators.next_token.embeddings`).

Reference: derived here.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Bool, Float64

from generators.next_token.embeddings import LARGEST_COUNT, exact_argmax, realistic_rows, realistic_sizes, text_windows
from generators.next_tokens import NextTokens
from generators.numbers import integers, one_in
from generators.realistic_numbers import is_realistic
from reference_attention.next_token.attention_samples import ABSENT
from reference_attention.next_token.extended_supports import extended_supports

TOKENS = ("planted", "incompatible", "over", "orthogonal", "random", "repeated")
SEQUENCES = ("independent", "dependent")
EVERY = (*TOKENS, *SEQUENCES)
CONTEXTS, VOCABULARY, DIMENSIONS = (1, 5), (2, 5), (1, 4)
SEEDS = st.integers(0, 2**32 - 1)


def next_token_cases(kinds: Collection[str] = EVERY, *, apart: bool = False) -> SearchStrategy[NextTokens]:
    """Return a strategy for cases of the given kinds, with equal probabilities.

    Args:
        kinds: the kinds that the module's docstring describes.
        apart: whether training must rule out some token in every case; if it rules out none, a token and a coordinate
            are added.
    """
    strategy = st.sampled_from(list(kinds)).flatmap(
        lambda kind: sequences(kind) if kind in SEQUENCES else contexts(kind)
    )
    return strategy.map(with_something_apart) if apart else strategy


def cases_with_something_apart() -> SearchStrategy[NextTokens]:
    """Return a strategy for cases of every kind in which training rules out some token."""
    return next_token_cases(apart=True)


def compatible_cases() -> SearchStrategy[NextTokens]:
    """Return a strategy for separable and compatible cases in which training rules out some token."""
    return next_token_cases(("planted", "over", "orthogonal"), apart=True)


def independent_contexts() -> SearchStrategy[NextTokens]:
    """Return a strategy for cases in which the embeddings of contexts are linearly independent."""
    return next_token_cases(("over", "orthogonal"))


def finite_part_cases() -> SearchStrategy[NextTokens]:
    """Return a strategy for cases in which the subspace F, in which W has a finite limit, is not 0.

    The embeddings of contexts are linearly independent. The first context is followed by two tokens, and one more token
    follows no context.
    """
    return independent_contexts().map(_with_two_followers)


def _with_two_followers(case: NextTokens) -> NextTokens:
    assert case.counts is not None
    counts = np.hstack([case.counts, np.zeros((len(case.counts), 1), dtype=np.int64)])
    counts[0, :2] += 1
    return case.replace(counts=counts, start=None)


def independent_sequences() -> SearchStrategy[NextTokens]:
    """Return a strategy for sequences of tokens with linearly independent embeddings."""
    return next_token_cases(("independent",))


def with_something_apart(case: NextTokens) -> NextTokens:
    """Return the case; if training rules out no token, add a token that never follows, and one coordinate."""
    problem = case.problem
    if (problem.alternatives & ~extended_supports(problem).sets).any():
        return case
    if case.counts is not None:
        h = np.hstack([case.embeddings, np.ones((len(case.embeddings), 1))])
        never = np.hstack([case.counts, np.zeros((len(case.counts), 1), dtype=np.int64)])
        return case.replace(embeddings=h, counts=never, start=None)
    assert case.samples is not None
    assert case.labels is not None
    # Add a sequence of an old token, which is the label, and of the new token.
    K, d = case.embeddings.shape
    e = np.zeros((K + 1, d + 1))
    e[:K, :d], e[K, d] = case.embeddings, 1.0
    wide = max(2, case.samples.shape[1])
    samples = np.full((len(case.samples) + 1, wide), ABSENT)
    samples[:-1, : case.samples.shape[1]] = case.samples
    samples[-1, :2] = 0, K
    return case.replace(embeddings=e, samples=samples, labels=np.append(case.labels, 0), start=None)


@st.composite
def contexts(draw: DrawFn, kind: str) -> NextTokens:
    """Draw contexts with embeddings and counts of the given kind."""
    if draw(is_realistic()):
        return draw(_realistic_contexts(kind))
    m, V, d = (draw(st.integers(*sizes)) for sizes in (CONTEXTS, VOCABULARY, DIMENSIONS))
    h = draw(_embeddings(kind, m, d))
    d = h.shape[1]
    supports = draw(_supports(kind, h, V))
    if kind == "planted":
        heights = h @ draw(integers((V, d), -1, 1)).T.astype(np.float64)
        heights = np.where(supports, heights, np.inf)
        powers = np.where(supports, heights - heights.min(axis=1, keepdims=True), 0.0)
        counts = np.where(supports, 2.0**powers, 0.0).astype(np.int64)
    else:
        counts = np.where(supports, draw(integers((m, V), 1, 4)), 0)
    counts = counts * draw(integers((m, 1), 1, 3))
    start = draw(integers((V * d,), -2, 2)) if draw(one_in(3)) else None
    return NextTokens(h, counts, start=None if start is None else start.astype(np.float64), seed=draw(SEEDS))


@st.composite
def _realistic_contexts(draw: DrawFn, kind: str) -> NextTokens:
    """Draw contexts of the given kind with numbers as users have them.

    *planted* supports are the tokens with the largest logits under a small integer W, decided over the rationals, and
    have equal counts: so W separates, and W = 0 attains the log-odds. *over* and *orthogonal* embeddings are triangular
    with a nonzero diagonal.
    """
    if kind == "random" and draw(one_in(3)):
        return draw(text_windows())
    m, V, d = draw(realistic_sizes(CONTEXTS, VOCABULARY, DIMENSIONS))
    independent = kind in ("over", "orthogonal")
    m = min(m, d) if independent else m
    h = draw(realistic_rows(m, d, independent=independent, diagonal=kind == "orthogonal"))
    if kind == "repeated":
        h = h[draw(integers((m,), 0, max(0, m // 2)))]
    if kind in ("planted", "incompatible"):
        supports = exact_argmax(draw(integers((V, d), -1, 1)), h)
    else:
        supports = draw(_supports(kind, h, V))
    most = LARGEST_COUNT if draw(st.booleans()) else 4
    counts = np.where(supports, 1 if kind == "planted" else draw(integers((m, V), 1, most)), 0)
    counts = counts * draw(integers((m, 1), 1, 3 if kind != "planted" else most))
    return NextTokens(h, counts, seed=draw(SEEDS))


@st.composite
def _embeddings(draw: DrawFn, kind: str, m: int, d: int) -> Float64[np.ndarray, "m d"]:
    if kind == "orthogonal":
        sizes = draw(integers((m,), 1, 3))
        places = draw(st.permutations(range(max(m, d))))
        h = np.zeros((m, max(m, d)))
        h[np.arange(m), places[:m]] = sizes
        return h
    if kind == "over":
        wide = max(m, d)
        lower = np.tril(draw(integers((m, wide), -2, 2)), -1).astype(np.float64)
        return np.asarray(lower + np.eye(m, wide))
    h = draw(integers((m, d), -3, 3)).astype(np.float64)
    if kind == "repeated":
        h = h[draw(integers((m,), 0, max(0, m // 2)))]
    # Embeddings of kind "planted" stay integers, so that the counts 2^{(W_p h)_z} are integers.
    return h / 4 if draw(one_in(4)) and kind != "planted" else h


@st.composite
def _supports(draw: DrawFn, kind: str, h: Float64[np.ndarray, "m d"], V: int) -> Bool[np.ndarray, "m V"]:
    if kind in ("planted", "incompatible"):
        heights = h @ draw(integers((V, h.shape[1]), -1, 1)).T.astype(np.float64)
        return np.asarray(heights == heights.max(axis=1, keepdims=True))
    supports = draw(integers((len(h), V), 0, 1)).astype(bool)
    supports[np.arange(len(h)), draw(integers((len(h),), 0, V - 1))] = True
    return supports


@st.composite
def sequences(draw: DrawFn, kind: str) -> NextTokens:
    """Draw up to six sequences of at most four tokens; last tokens are only 0 and 1, so that sequences share them."""
    K, d = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    n, T = draw(st.integers(1, 6)), draw(st.integers(2, 4))
    samples = draw(integers((n, T), 0, K - 1))
    lengths = np.maximum(draw(integers((n,), 1, T)), draw(integers((n,), 1, T)))
    samples[np.arange(n), lengths - 1] = draw(integers((n,), 0, 1))
    labels = samples[np.arange(n), draw(integers((n,), 0, T - 1)) % lengths]
    samples = np.where(np.arange(T) < lengths[:, None], samples, ABSENT)
    if draw(is_realistic()):
        rows = draw(realistic_rows(K, K if kind == "independent" else d, independent=kind == "independent"))
        return NextTokens(rows, samples=samples, labels=labels, seed=draw(SEEDS))
    if kind == "independent":
        return NextTokens(draw(_independent(K)), samples=samples, labels=labels, seed=draw(SEEDS))
    e = draw(integers((K, min(d, K - 1)), -2, 2)).astype(np.float64)
    return NextTokens(e, samples=samples, labels=labels, seed=draw(SEEDS))


@st.composite
def _independent(draw: DrawFn, K: int) -> Float64[np.ndarray, "K K"]:
    """Draw linearly independent rows: the identity, or a unit lower triangular matrix."""
    if draw(st.booleans()):
        return np.asarray(np.tril(draw(integers((K, K), -1, 1)), -1).astype(np.float64) + np.eye(K))
    return np.eye(K)
