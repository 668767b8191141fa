"""Embeddings of contexts and tokens as users have them, and windows of texts; see :mod:`generators.realistic_numbers`.

References: issue reports; sentence embeddings (Gaussian, normalised to norm 1), bag-of-words features, byte-level
corpora.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64, Int64

from generators.next_tokens import NextTokens
from generators.numbers import Style, entries, integers, one_in
from reference_attention.exact import products, rational

LARGEST_COUNT = 10**4
MOST_CONTEXTS, MOST_TOKENS = 12, 12
MOST_ENTRIES = 36
"""The largest number of entries of W; the time of exact decisions grows fast with this number."""
LOOKS = ("decimals", "gaussian", "scaled", "columns", "unit", "unit beside", "near", "float32")
"""The kinds of embeddings (rows), in the order of this list: decimals; Gaussian entries; rows, or columns, whose units
differ by up to 10⁶; rows of norm 1; a last row that is the normalised first row; a last row that is parallel to the
first up to a relative 0.1 to 1e-13; entries rounded to float32.
"""
TEXTS = (
    "to be or not to be that is the question",
    "the cat sat on the mat",
    "abababababab",
    "abcabcabcabc",
    "aab aab aab",
    "she sells sea shells",
)


@st.composite
def realistic_sizes(
    draw: DrawFn, contexts: tuple[int, int], tokens: tuple[int, int], dimensions: tuple[int, int]
) -> tuple[int, int, int]:
    """Draw the numbers of contexts, tokens and dimensions; one time in five, up to 12 contexts and 12 tokens."""
    m, V, d = draw(st.integers(*contexts)), draw(st.integers(*tokens)), draw(st.integers(*dimensions))
    if draw(one_in(5)):
        m, V = draw(st.integers(1, MOST_CONTEXTS)), draw(st.integers(2, MOST_TOKENS))
    return m, V, max(1, min(d, MOST_ENTRIES // V))


@st.composite
def realistic_rows(
    draw: DrawFn, m: int, d: int, *, independent: bool = False, diagonal: bool = False
) -> Float64[np.ndarray, "m d"]:
    """Draw m rows of d entries of one kind of :data:`LOOKS`.

    With ``independent``, which needs m ≤ d, the rows are linearly independent: lower triangular with a nonzero
    diagonal, up to the order of coordinates. With ``independent`` and ``diagonal`` all off-diagonal entries are 0.
    """
    look = draw(st.sampled_from(LOOKS))
    rows = draw(entries((m, d), Style.DECIMALS))
    if look != "decimals" and draw(st.booleans()):
        rows = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=(m, d))
    near = 10.0 ** -draw(st.integers(1, 13))
    if look == "unit beside" and m > 1:
        rows[-1] = rows[0]
    if look == "near" and m > 1:
        rows[-1] = rows[0] * (1 if independent else 1 + near * rows[-1])
    if independent:
        size = np.abs(np.diagonal(rows)) + 0.5
        rows = np.zeros((m, d)) if diagonal else np.tril(rows, -1)
        rows[np.arange(m), np.arange(m)] = size
        if look == "near":
            rows[-1, m - 1] *= near
    if look == "scaled":
        rows = rows * 10.0 ** draw(integers((m, 1), -3, 3))
    if look == "columns":
        rows = rows * 10.0 ** draw(integers((1, d), -3, 3))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths > 0, lengths, 1.0)
    if look == "unit":
        rows = unit
    if look == "unit beside":
        rows[-1] = unit[-1]
    if look == "float32":
        rows = rows.astype(np.float32).astype(np.float64)
    return np.asarray(rows[:, draw(st.permutations(range(d)))])


def exact_argmax(W: Int64[np.ndarray, "V d"], h: Float64[np.ndarray, "m d"]) -> Bool[np.ndarray, "m V"]:
    """Return the mask (m, V) of the tokens v with the largest logit (W h_j)_v, decided over the rationals."""
    rows = [[rational(w) for w in row] for row in W.astype(np.float64).tolist()]
    heights = [products(rows, [rational(x) for x in row]) for row in h.tolist()]
    return np.array([[height == max(logits) for height in logits] for logits in heights]).reshape(len(h), len(W))


@st.composite
def text_windows(draw: DrawFn) -> NextTokens:
    """Draw windows of one or two characters from the beginning of an English or a periodic text."""
    text, window = draw(st.sampled_from(TEXTS)), draw(st.integers(1, 2))
    length = draw(st.integers(4, 12 if window == 1 else 8))
    return NextTokens.of_corpus(text[:length], window, seed=draw(st.integers(0, 2**32 - 1)))
