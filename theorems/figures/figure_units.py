"""Units of work of ``theorems figures``: the numbers of a figure, or of several figures that draw the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from theorems.figures.figure import Figure, Numbers, Settings
from theorems.figures.registry import FIGURES
from theorems.run.unit_protocols import Divisible

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Computed:
    """The result of a unit of work: the numbers of figures.

    Attributes:
        id: the names of the figures that draw the numbers.
        numbers: the numbers; empty if the computation failed.
        failed: the reason why the computation failed; empty if it did not fail.
        seconds: the duration of the computation.
    """

    id: str
    numbers: Numbers = field(default_factory=dict)
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """The result in a few words, for a line of progress."""
        return self.failed or f"{self.seconds:.1f} s"


@dataclass(frozen=True)
class Sheet(Divisible[Computed]):
    """The unit of work that computes the numbers of the named figures, or one ``piece`` of these numbers."""

    names: tuple[str, ...]
    settings: Settings
    part: int = 0
    piece: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """The word ``figure`` with the names of the figures."""
        return "figure " + ", ".join(self.names)

    @property
    def total(self) -> int:
        """The number of pieces of the computation; 1 if it is not divided."""
        return len(self.parts())

    def run(self, progress: Progress) -> Computed:
        """Compute the numbers of the figures, or of the piece."""
        began = time.perf_counter()
        figure = FIGURES[self.names[0]]
        numbers = (
            {"pieces": [figure.cut.piece(self.settings, self.piece)]}
            if figure.cut and self.piece
            else figure.numbers(self.settings)
        )
        progress(self.total)
        return Computed(self.id, numbers, seconds=time.perf_counter() - began)

    def unfinished_result(self, why: str) -> Computed:
        """Return a result without numbers, with the reason ``why``."""
        return Computed(self.id, failed=why or "interrupted")

    def parts(self) -> Sequence[Sheet]:
        """Return a unit of work for each piece of the numbers, or this unit alone if the numbers are not divided."""
        cut = FIGURES[self.names[0]].cut
        pieces = [] if cut is None or self.piece else cut.pieces(self.settings)
        if len(pieces) < 2:
            return [self]
        return [replace(self, part=k, piece=piece) for k, piece in enumerate(pieces)]

    def join(self, first: Computed, then: Computed) -> Computed:
        """Join the results of two groups of pieces into one result, in this order."""
        pieces = [*first.numbers.get("pieces", ()), *then.numbers.get("pieces", ())]
        failed, seconds = first.failed or then.failed, first.seconds + then.seconds
        return Computed(self.id, {"pieces": pieces}, failed, seconds)

    def conclude(self, result: Computed) -> Computed:
        """Return the numbers of the figures, computed from the results of all pieces."""
        cut = FIGURES[self.names[0]].cut
        if result.failed or cut is None:
            return replace(result, numbers={})
        return replace(result, numbers=cut.together(self.settings, result.numbers["pieces"]))


def sheets(figures: Sequence[Figure], settings: Settings) -> list[Sheet]:
    """Return units of work for the figures; figures that draw the same numbers share a unit."""
    by_numbers: dict[object, list[str]] = {}
    for figure in figures:
        by_numbers.setdefault(figure.numbers, []).append(figure.name)
    return [Sheet(tuple(names), settings) for names in by_numbers.values()]
