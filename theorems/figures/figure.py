"""Figures of papers: a function that computes the numbers of a figure, and a function that draws these numbers.

Only drawing needs a drawing library.
"""

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
    """Settings on which the numbers of figures depend.

    Attributes:
        trials: the number of random trials per dimension, for figures of random trials.
        seed: the seed of the random trials and of the transformer's training.
        under_test: the implementation of attention whose gradient is followed.
        epochs: the number of epochs for which the transformer of Figures 6 and 7 is trained.
        cifar10: the folder of CIFAR-10's binary files to train the transformer on; None for handwritten digits.
        checkpoints: the folder for checkpoints of the transformer; None for no checkpoints.
        progress: the function that is called with the number of steps done.
    """

    trials: int
    seed: int
    under_test: Implementation = REFERENCE
    epochs: int = 120
    cifar10: Path | None = None
    checkpoints: Path | None = None
    progress: Callable[[int], None] = silent


def at_once(settings: Settings) -> int:
    """Return 1, the number of steps of a computation that is not divided into steps."""
    return 1


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
        steps: the function that returns the number of steps of the computation, for the display of progress.
        needs: optional modules that the computation imports.
        cut: the division of the computation into pieces; None if it is not divided.
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
