"""Figures of papers: a function that computes numbers without a drawing library, and one that draws these numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from theorems.core.implementation import REFERENCE, Implementation

Numbers = dict[str, Any]
"""Numbers, lists and texts by name, as in JSON."""


def silent(done: int) -> None:
    """Ignore the progress of a computation."""


@dataclass(frozen=True)
class Settings:
    """Settings that the numbers depend on.

    Attributes:
        trials: number of random trials per dimension, for figures of random trials.
        seed: the seed of the random trials and of the transformer's training.
        under_test: the attention whose gradient is followed.
        epochs: number of epochs of the transformer of Figures 6 and 7.
        cifar10: the folder of CIFAR-10's binary files to train the transformer on; None for handwritten digits.
        checkpoints: the folder for checkpoints of the transformer; None for no checkpoints.
        progress: function that is called with the number of steps done.
    """

    trials: int
    seed: int
    under_test: Implementation = REFERENCE
    epochs: int = 120
    cifar10: Path | None = None
    checkpoints: Path | None = None
    progress: Callable[[int], None] = silent


def at_once(settings: Settings) -> int:
    """Return 1, the number of steps of a figure that is computed in one step."""
    return 1


@dataclass(frozen=True)
class Cut:
    """Division of the computation of a figure's numbers into pieces, which different processes can compute.

    Attributes:
        pieces: returns the pieces, each as a tuple of integers.
        piece: computes one piece, whose result can be stored as JSON.
        together: computes the figure's numbers from the results of all pieces, in order.
    """

    pieces: Callable[[Settings], Sequence[tuple[int, ...]]]
    piece: Callable[[Settings, tuple[int, ...]], Numbers]
    together: Callable[[Settings, Sequence[Numbers]], Numbers]


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    Attributes:
        name: the figure's number in the paper, such as ``3b``, or a name.
        title: one line that says what the figure shows; formulas stand between dollar signs and contain no space.
        size: width and height in inches.
        numbers: computes the numbers to draw.
        draw: draws the numbers on a matplotlib Figure.
        steps: returns the number of steps of the computation.
        needs: optional modules that the computation imports.
        cut: the division of the computation into pieces, if there is one.
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
        """Return the name of the figure's files, without an ending."""
        return f"figure-{self.name}"
