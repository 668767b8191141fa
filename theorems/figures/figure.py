"""What a figure is: numbers, computed without a drawing library, and a drawing of nothing but those numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from theorems.core.implementation import REFERENCE, Implementation

Numbers = dict[str, Any]
"""Named numbers, lists and texts, as JSON has them."""


@dataclass(frozen=True)
class Settings:
    """What the numbers depend on.

    Attributes:
        trials: random trials per dimension, of the figures that have some.
        seed: drives them.
        under_test: the attention whose gradient is followed.
    """

    trials: int
    seed: int
    under_test: Implementation = REFERENCE


@dataclass(frozen=True)
class Figure:
    """One figure of the paper.

    Attributes:
        name: as in the paper, e.g. ``3b``.
        title: what it shows, in a line.
        size: width and height in inches.
        numbers: computes what is drawn.
        draw: (a matplotlib Figure, the numbers); draws it.
    """

    name: str
    title: str
    size: tuple[float, float]
    numbers: Callable[[Settings], Numbers]
    draw: Callable[[Any, Numbers], None]

    @property
    def stem(self) -> str:
        """The name of its files, without an ending."""
        return f"figure-{self.name}"
