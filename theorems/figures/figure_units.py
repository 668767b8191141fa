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
    """Numbers of figures, as the result of a unit of work.

    Attributes:
        id: the names of the figures that draw the numbers.
        numbers: the numbers; empty if the computation failed.
        failed: why the computation failed; empty if it did not.
        seconds: the duration of the computation.
    """

    id: str
    numbers: Numbers = field(default_factory=dict)
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """Return a summary for a line of progress."""
        return self.failed or f"{self.seconds:.1f} s"


@dataclass(frozen=True)
class Sheet(Divisible[Computed]):
    """The unit that computes the numbers of figures, given by name, or one ``piece`` of these numbers."""

    names: tuple[str, ...]
    settings: Settings
    part: int = 0
    piece: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """Return the names of the figures."""
        return "figure " + ", ".join(self.names)

    @property
    def total(self) -> int:
        """Return the number of steps: epochs of a training, pieces, or otherwise 1."""
        return FIGURES[self.names[0]].steps(self.settings) if len(parts := self.parts()) == 1 else len(parts)

    def run(self, progress: Progress) -> Computed:
        """Compute the numbers."""
        began = time.perf_counter()
        figure, settings = FIGURES[self.names[0]], replace(self.settings, progress=progress)
        numbers = (
            {"pieces": [figure.cut.piece(settings, self.piece)]}
            if figure.cut and self.piece
            else figure.numbers(settings)
        )
        progress(self.total)
        return Computed(self.id, numbers, seconds=time.perf_counter() - began)

    def unfinished_result(self, why: str) -> Computed:
        """Return a result without numbers."""
        return Computed(self.id, failed=why or "interrupted")

    def parts(self) -> Sequence[Sheet]:
        """Return a unit per piece, if the numbers are computed in pieces."""
        cut = FIGURES[self.names[0]].cut
        pieces = [] if cut is None or self.piece else cut.pieces(self.settings)
        if len(pieces) < 2:
            return [self]
        return [replace(self, part=k, piece=piece) for k, piece in enumerate(pieces)]

    def join(self, first: Computed, then: Computed) -> Computed:
        """Join the pieces of both results."""
        pieces = [*first.numbers.get("pieces", ()), *then.numbers.get("pieces", ())]
        failed, seconds = first.failed or then.failed, first.seconds + then.seconds
        return Computed(self.id, {"pieces": pieces}, failed, seconds)

    def conclude(self, result: Computed) -> Computed:
        """Return the numbers computed from all pieces."""
        cut = FIGURES[self.names[0]].cut
        if result.failed or cut is None:
            return replace(result, numbers={})
        return replace(result, numbers=cut.together(self.settings, result.numbers["pieces"]))


def sheets(figures: Sequence[Figure], settings: Settings) -> list[Sheet]:
    """Group the figures by the numbers that they draw."""
    by_numbers: dict[object, list[str]] = {}
    for figure in figures:
        by_numbers.setdefault(figure.numbers, []).append(figure.name)
    return [Sheet(tuple(names), settings) for names in by_numbers.values()]
