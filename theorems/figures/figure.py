"""Figures: numbers, computed without a drawing library, and a drawing of nothing but those numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from theorems.core.implementation import REFERENCE, Implementation

Numbers = dict[str, Any]
"""Named numbers, lists and texts, as JSON has them."""


def silent(done: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Settings:
    """Settings that the numbers depend on.

    Attributes:
        trials: random trials per dimension, for the figures that have some.
        seed: the seed of those trials.
        under_test: the attention whose gradient is followed.
        epochs: of the transformer of Figures 6 and 7.
        cifar10: the folder of CIFAR-10's binary files to train it on; without, the digits are used.
        checkpoints: the folder in which it keeps what it has reached; none without.
        progress: called with the number of steps done, for a figure that takes several.
    """

    trials: int
    seed: int
    under_test: Implementation = REFERENCE
    epochs: int = 120
    cifar10: Path | None = None
    checkpoints: Path | None = None
    progress: Callable[[int], None] = silent


def at_once(settings: Settings) -> int:
    """Return the number of steps of a figure that is computed in one go: one."""
    return 1


@dataclass(frozen=True)
class Cut:
    """Numbers that are computed piece by piece, each anywhere.

    Attributes:
        pieces: names the pieces, by whole numbers.
        piece: computes one piece; JSON keeps it.
        together: computes the numbers of the figure from those of all pieces in their order.
    """

    pieces: Callable[[Settings], Sequence[tuple[int, ...]]]
    piece: Callable[[Settings, tuple[int, ...]], Numbers]
    together: Callable[[Settings, Sequence[Numbers]], Numbers]


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    Attributes:
        name: as in the paper, e.g. ``3b``.
        title: what it shows, in a line; formulas stand between dollar signs and have no space.
        size: width and height in inches.
        numbers: computes what is drawn.
        draw: draws the figure, given a matplotlib Figure and the numbers.
        steps: how many steps its numbers take.
        needs: modules that they need and that are not always installed.
        cut: how its numbers come in pieces, if they do.
    """

    name: str
    title: str
    size: tuple[float, float]
    numbers: Callable[[Settings], Numbers]
    draw: Callable[[Any, Numbers], None]
    steps: Callable[[Settings], int] = at_once
    needs: tuple[str, ...] = ()
    cut: Cut | None = None

    @property
    def label(self) -> str:
        """Return the name as the paper writes it: ``3(b)``."""
        return re.sub("([a-c])$", r"(\1)", self.name)

    @property
    def plain_title(self) -> str:
        """Return the title as plain text."""
        plain = re.sub(r"\\bar\{(.)\}", "\\1\u0304", self.title)
        return re.sub(r"\\mathrm|[${}]", "", plain).replace(r"\|", "‖")

    @property
    def stem(self) -> str:
        """Return the name of its files, without an ending."""
        return f"figure-{self.name}"
