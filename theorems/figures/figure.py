"""Figures of papers: a function that computes the numbers of a figure, and a function that draws these numbers.

Only drawing needs a drawing library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from theorems.core.implementation import REFERENCE, Implementation

Numbers = dict[str, Any]
"""Numbers, lists and texts by name, as in JSON."""


@dataclass(frozen=True)
class Settings:
    """Settings on which the numbers of figures depend.

    Attributes:
        trials: the number of random trials per dimension, for figures of random trials.
        seed: the seed of the random trials.
        under_test: the implementation of attention whose gradient is followed.
    """

    trials: int
    seed: int
    under_test: Implementation = REFERENCE


@dataclass(frozen=True)
class Cut:
    """The division of the computation of a figure's numbers into pieces, which different processes can compute.

    Attributes:
        pieces: the function that returns the pieces, each as a tuple of integers.
        piece: the function that computes one piece; its result can be stored as JSON.
        together: the function that computes the figure's numbers from the results of all pieces, in order.
    """

    pieces: Callable[[Settings], Sequence[tuple[int, ...]]]
    piece: Callable[[Settings, tuple[int, ...]], Numbers]
    together: Callable[[Settings, Sequence[Numbers]], Numbers]


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    Attributes:
        name: the figure's number in the paper, such as ``3b``, or a name of ours.
        title: one line that says what the figure shows; formulas stand between dollar signs and contain no space.
        size: width and height in inches.
        numbers: the function that computes the numbers to draw.
        draw: the function that draws the numbers on a matplotlib Figure.
        cut: the division of the computation into pieces; None if it is not divided.
    """

    name: str
    title: str
    size: tuple[float, float]
    numbers: Callable[[Settings], Numbers]
    draw: Callable[[Any, Numbers], None]
    cut: Cut | None = None

    @property
    def label(self) -> str:
        """The figure's number as the paper writes it, such as ``3(b)``."""
        return re.sub("([a-c])$", r"(\1)", self.name)

    @property
    def plain_title(self) -> str:
        """The title as plain text, without formulas to typeset."""
        plain = re.sub(r"\\bar\{(.)\}", "\\1\u0304", self.title)
        return re.sub(r"\\mathrm|[${}]", "", plain).replace(r"\|", "‖")

    @property
    def stem(self) -> str:
        """The name of the figure's files, without an ending."""
        return f"figure-{self.name}"
