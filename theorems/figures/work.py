"""The work of ``theorems figures``: the numbers of one figure, or of several that draw the same ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from theorems.figures.figure import Figure, Numbers, Settings
from theorems.figures.registry import FIGURES

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Computed:
    """Numbers.

    Attributes:
        id: the names of the figures that draw them.
        numbers: empty if there are none.
        failed: why there are none.
    """

    id: str
    numbers: Numbers = field(default_factory=dict)
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """For a line of progress."""
        return self.failed or f"{self.seconds:.1f} s"


@dataclass(frozen=True)
class Sheet:
    """Figures that draw the same numbers, by their names."""

    names: tuple[str, ...]
    settings: Settings

    @property
    def id(self) -> str:
        """Their names."""
        return "figure " + ", ".join(self.names)

    @property
    def total(self) -> int:
        """Epochs of a training, otherwise one."""
        return FIGURES[self.names[0]].steps(self.settings)

    def run(self, progress: Progress) -> Computed:
        """The numbers."""
        began = time.perf_counter()
        numbers = FIGURES[self.names[0]].numbers(replace(self.settings, progress=progress))
        progress(self.total)
        return Computed(self.id, numbers, seconds=time.perf_counter() - began)

    def unfinished(self, why: str) -> Computed:
        """None."""
        return Computed(self.id, failed=why or "interrupted")


def sheets(figures: Sequence[Figure], settings: Settings) -> list[Sheet]:
    """The figures by the numbers that they draw."""
    by_numbers: dict[object, list[str]] = {}
    for one in figures:
        by_numbers.setdefault(one.numbers, []).append(one.name)
    return [Sheet(tuple(names), settings) for names in by_numbers.values()]
