"""Strategies for numbers and sizes of data; failing cases shrink to small readable numbers.

References: Hypothesis, *Strategies that shrink*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64, Int64

from reference_attention.errors import InvalidInput

Size = int | tuple[int, int]
"""The length of an axis, or a pair of its smallest and largest allowed length."""


class Style(StrEnum):
    """The kinds of entries of keys and tokens; a failing case shrinks to the first."""

    INTEGERS = "integers"
    HALVES = "halves"
    DECIMALS = "decimals"
    """Multiples of 0.001, which floats round, so that exact ties of sums and products may be lost."""


STYLES: SearchStrategy[Style] = st.sampled_from((Style.INTEGERS, Style.INTEGERS, Style.HALVES, Style.DECIMALS))

MOST_DRAWN = 256
"""The largest number of entries of an array that are drawn one by one."""
RANGES = {Style.INTEGERS: (3, 1), Style.HALVES: (6, 2), Style.DECIMALS: (3000, 1000)}
"""For each style, the largest numerator and the denominator of entries."""


def integers(
    shape: tuple[int, ...], low: int, high: int, *, most: tuple[int, ...] | None = None
) -> SearchStrategy[Int64[np.ndarray, "..."]]:
    """Return a strategy for an array of integers from ``low`` to ``high``.

    An array of the shape ``most`` is drawn, and the corner of the shape ``shape`` of that array is returned. So the
    number of drawn entries does not depend on ``shape``, and an example can shrink in shape without shifting later
    draws. An array of more than :data:`MOST_DRAWN` entries is generated from a drawn seed, because Hypothesis cannot
    handle so many draws.
    """
    most = shape if most is None else most
    size = math.prod(most)
    if size > MOST_DRAWN:
        seeds = st.integers(0, 2**32 - 1)
        return seeds.map(lambda seed: np.random.default_rng(seed).integers(low, high + 1, size=shape))
    corner = tuple(slice(axis) for axis in shape)
    lists = st.lists(st.integers(low, high), min_size=size, max_size=size)
    return lists.map(lambda values: np.array(values, dtype=np.int64).reshape(most)[corner].copy())


def entries(
    shape: tuple[int, ...], style: Style, *, most: tuple[int, ...] | None = None
) -> SearchStrategy[Float64[np.ndarray, "..."]]:
    """Return a strategy for an array of numbers of a style, each in [−3, 3].

    See :func:`integers` for ``most``.
    """
    largest, denominator = RANGES[style]
    return integers(shape, -largest, largest, most=most).map(lambda values: values / denominator)


@dataclass(frozen=True)
class Large:
    """Ranges of large sizes, from which the sizes of one case in five are drawn.

    Attributes:
        n: the smallest and the largest number of inputs.
        tokens, d: the values of T and of d to draw from.
        entries: the largest n · T · d.
        rows: the largest n · T.
    """

    n: tuple[int, int]
    tokens: tuple[int, ...]
    d: tuple[int, ...]
    entries: int
    rows: int

    def shapes(self, *, single_input: bool = False) -> SearchStrategy[tuple[int, int, int]]:
        """Return a strategy for (n, T, d) in which all values of T and d have about equal probabilities."""
        pairs = [(T, d) for T in self.tokens for d in self.d if T * d <= self.entries and self.rows >= T]

        def with_inputs(pair: tuple[int, int]) -> SearchStrategy[tuple[int, int, int]]:
            T, d = pair
            most = 1 if single_input else min(self.n[1], self.entries // (T * d), self.rows // T)
            return st.integers(min(self.n[0], most), most).map(lambda n: (n, T, d))

        return st.sampled_from(pairs).flatmap(with_inputs)


AROUND_BLOCKS = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256)
"""Lengths that are, or differ by one from, block sizes of kernels."""
BLOCKS = Large((1, 16), AROUND_BLOCKS, AROUND_BLOCKS, entries=2**15, rows=2**12)
"""Ranges of sizes for statements that evaluate attention at given prompts."""
SOLVABLE_BLOCKS = Large((1, 16), AROUND_BLOCKS, AROUND_BLOCKS, entries=2**15, rows=129)
"""Ranges of sizes for statements that solve ATT-SVM exactly, which takes long for many tokens."""
MODERATE = Large((1, 8), tuple(range(6, 17)), tuple(range(6, 25)), entries=2**11, rows=2**7)
"""Ranges of sizes for statements that follow a regularization path or a gradient flow."""


@dataclass(frozen=True)
class Frame:
    """The sizes of one problem, and the largest sizes that the problem's strategy allows.

    The axes of arrays are named by the letters n (inputs), T (tokens) and d (dimension), as in "nT".

    Attributes:
        n, tokens, d: the sizes.
        most: the largest (n, T, d), see :func:`integers`.
    """

    n: int
    tokens: int
    d: int
    most: tuple[int, int, int]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (n, T, d)."""
        return self.n, self.tokens, self.d

    def _axes(self, axes: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        axis_numbers = ["nTd".index(letter) for letter in axes]
        return tuple(self.shape[k] for k in axis_numbers), tuple(self.most[k] for k in axis_numbers)

    def integers(self, axes: str, low: int, high: int) -> SearchStrategy[Int64[np.ndarray, "..."]]:
        """Return a strategy for an array with the given axes of integers from ``low`` to ``high``."""
        shape, most = self._axes(axes)
        return integers(shape, low, high, most=most)

    def entries(self, axes: str, style: Style) -> SearchStrategy[Float64[np.ndarray, "..."]]:
        """Return a strategy for an array with the given axes of numbers of the given style."""
        shape, most = self._axes(axes)
        return entries(shape, style, most=most)

    def values(self, axes: str, elements: SearchStrategy[Any]) -> SearchStrategy[Any]:
        """Return a strategy for an array with the given axes of any elements; the other methods are faster."""
        shape, most = self._axes(axes)
        size, corner = math.prod(most), tuple(slice(axis) for axis in shape)
        lists = st.lists(elements, min_size=size, max_size=size)
        return lists.map(lambda values: np.array(values).reshape(most)[corner].copy())

    def choices(self, axes: str, options: tuple[Any, ...]) -> SearchStrategy[Any]:
        """Return a strategy for an array with the given axes of options; each entry shrinks to the first option."""
        return self.integers(axes, 0, len(options) - 1).map(lambda indices: np.array(options)[indices])


def length(name: str, size: Size | None, default: tuple[int, int], *, smallest: int) -> tuple[int, int]:
    """Return the smallest and the largest allowed length of the axis ``name``: ``size``, or ``default`` for None.

    Raises:
        InvalidInput: lengths below ``smallest`` or in the wrong order.
    """
    low, high = default if size is None else (size, size) if isinstance(size, int) else size
    if low < smallest or high < low:
        raise InvalidInput(f"{name}: {size!r} is no range; give (smallest, largest), each at least {smallest}.")
    return low, high


def one_in(k: int) -> SearchStrategy[bool]:
    """Return a strategy that draws True with probability about 1/k, and shrinks to False."""
    return st.integers(0, k - 1).map(lambda x: x == k - 1)
