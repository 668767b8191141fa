"""Numbers as users have them, such as pixels or tf-idf, as increasing functions of integer levels.

Each coordinate of a token is an increasing function of an integer level, rounded at most once. Levels that differ by
``Grid.least`` or more give different floats, so that levels determine exactly which of two entries is larger. A case
with such numbers is called realistic.

References: issue reports; scikit-learn, *TfidfTransformer*; PyTorch, *torch.bfloat16*.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64, Int64

from generators.numbers import Frame, one_in


class Kind(StrEnum):
    """The kinds of features; a failing case shrinks to the first."""

    SPARSE = "sparse"
    """Small counts, most of them 0."""
    ONE_HOT = "one-hot"
    """One-hot flags of one or two categorical features."""
    DECIMALS = "decimals"
    """Numbers of two or three digits after the point; sometimes a column, or all, times 1000 or 1/1000."""
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    PIXELS = "pixels"
    """Grey levels k/255, often mostly 0."""
    TF_IDF = "tf-idf"
    """Counts of terms, each times the logarithm of the term's rarity, sometimes scaled to norm 1."""


EVERY = tuple(Kind)
SHORT = (Kind.SPARSE, Kind.ONE_HOT, Kind.FLOAT16, Kind.BFLOAT16)
"""The kinds whose numbers have few bits: unless scaled, multiples of 2⁻²⁰, so that products and sums are exact."""

SCALED = (Kind.SPARSE, Kind.DECIMALS, Kind.FLOAT16, Kind.BFLOAT16)
"""The kinds that are also drawn in units a thousand times smaller or larger."""
LARGEST = 3
"""The largest absolute value of numbers before they are scaled."""
SCALES = (-3, 3)
"""The exponents of the powers of ten by which numbers are scaled."""
DOCUMENTS = 20
"""The number of documents from which the rarity of a term is computed."""


_EVERY: ContextVar[bool | None] = ContextVar("whether every case is realistic", default=None)


@contextmanager
def realistic(every: bool | None) -> Iterator[None]:
    """Set which cases are realistic, where strategies can draw such cases: all (True), none (False), 1 in 5 (None)."""
    before = _EVERY.set(every)
    try:
        yield
    finally:
        _EVERY.reset(before)


def is_realistic() -> SearchStrategy[bool]:
    """Return a strategy for whether a case is realistic: one in five is, unless :func:`realistic` changes this."""
    every = _EVERY.get()
    return one_in(5) if every is None else st.just(every)


@dataclass(frozen=True, eq=False)
class Grid:
    """An increasing function from integer levels to numbers, for each coordinate of a data set.

    Attributes:
        kind: the kind of features.
        low, high: the smallest and the largest level.
        unit: the difference of two levels whose numbers differ by about 1, before scaling.
        least: the least difference of two levels that guarantees different floats.
        factor: the number that one level adds in each coordinate, before rounding to the kind's format, as numerators
            and denominators, each of shape (d,).
        sparse: whether most entries are 0.
        unit_norm: whether tokens are finally scaled to norm 1.
    """

    kind: Kind
    low: int
    high: int
    unit: int
    least: int
    factor: tuple[Float64[np.ndarray, "d"], Float64[np.ndarray, "d"]]
    sparse: bool = False
    unit_norm: bool = False

    def values(self, levels: Int64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b d"]:
        """Return the numbers that belong to the levels."""
        numerator, denominator = self.factor
        exact = levels * numerator / denominator
        if self.kind is Kind.FLOAT16:
            return np.asarray(exact.astype(np.float16).astype(np.float64))
        return in_bfloat16(exact) if self.kind is Kind.BFLOAT16 else np.asarray(exact)


def in_bfloat16(values: Float64[np.ndarray, "*b"]) -> Float64[np.ndarray, "*b"]:
    """Round to eight significant bits, which is rounding to bfloat16 for numbers within its range."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 256) / 256, exponent))


@st.composite
def grids(draw: DrawFn, d: int, kinds: tuple[Kind, ...] = EVERY, *, scaled: bool = True) -> Grid:
    """Draw a grid for d coordinates; all kinds have equal probabilities."""
    kind = draw(st.sampled_from(kinds))
    ones = np.ones(d)
    if kind is Kind.SPARSE:
        low, high, unit, least, divisor, sparse = -LARGEST, LARGEST, 1, 1, 1, True
    elif kind is Kind.ONE_HOT:
        return Grid(kind, 0, 1, 1, 1, (ones, ones), sparse=True)
    elif kind is Kind.PIXELS:
        return Grid(kind, 0, 255, 128, 1, (ones, 255 * ones), sparse=draw(st.booleans()))
    elif kind is Kind.TF_IDF:
        having = np.array(draw(st.lists(st.integers(0, DOCUMENTS), min_size=d, max_size=d)))
        rarity = np.log((1 + DOCUMENTS) / (1 + having)) + 1
        return Grid(kind, 0, 6, 1, 1, (rarity, ones), sparse=True, unit_norm=draw(st.booleans()))
    else:
        # Below 4, neighbouring numbers of 11 significant bits are less than 0.003 apart, and those of 8 bits less than
        # 0.02.
        divisor = draw(st.sampled_from((100, 1000))) if kind is Kind.DECIMALS else 1000
        unit, least = divisor, {Kind.DECIMALS: 1, Kind.FLOAT16: 3, Kind.BFLOAT16: 20}[kind]
        low, high, sparse = -LARGEST * divisor, LARGEST * divisor, draw(one_in(3))
    powers = np.zeros(d)
    if scaled and draw(one_in(3)):
        only = draw(st.integers(-1, d - 1))
        powers[only if only >= 0 else slice(None)] = draw(st.sampled_from(SCALES))
    factor = (10.0 ** np.maximum(powers, 0), divisor * 10.0 ** np.maximum(-powers, 0))
    return Grid(kind, low, high, unit, least, factor, sparse=sparse)


@st.composite
def levels(draw: DrawFn, frame: Frame, grid: Grid) -> Int64[np.ndarray, "n T d"]:
    """Draw levels of tokens between the grid's lowest and highest level; if the grid is sparse, two of three are 0."""
    if grid.kind is Kind.ONE_HOT:
        return flags(draw, frame, draw(st.integers(1, frame.d)))
    if not grid.sparse:
        return np.asarray(draw(frame.integers("nTd", grid.low, grid.high)))
    # Two thirds of the drawn levels are mapped to 0.
    below, above = 3 * grid.low, 3 * grid.high
    integers = draw(frame.integers("nTd", below, above))
    return np.asarray(
        np.where(integers > 0, np.maximum(integers - 2 * grid.high, 0), np.minimum(integers - 2 * grid.low, 0))
    )


def flags(draw: DrawFn, frame: Frame, first: int) -> Int64[np.ndarray, "n T d"]:
    """Draw one-hot flags of a feature with ``first`` categories and, in the other coordinates, of a second feature.

    A token may have no flag for a feature, which means an unknown category.
    """
    one_hot = np.zeros(frame.shape, dtype=np.int64)
    for group in (range(first), range(first, frame.d)):
        if len(group):
            category = draw(frame.integers("nT", 0, max(frame.d, len(group)))) % (len(group) + 1)
            one_hot[:, :, group] = category[:, :, None] == np.arange(1, len(group) + 1)
    return one_hot


@st.composite
def repeated_inputs(draw: DrawFn, n: int) -> Int64[np.ndarray, "n"]:
    """Draw for each input the index of the input that it repeats: its own, or sometimes, for the last, another."""
    sources = np.arange(n)
    if n > 1 and draw(one_in(3)):
        sources[-1] = draw(st.integers(0, n - 2))
    return sources
