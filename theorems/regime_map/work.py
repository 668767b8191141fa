"""The work of ``theorems regime-map``, cut into units that can be sent to other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from generators.case import Case
from generators.datasets import DATASETS
from generators.user_data import attention_case, load
from reference_attention.errors import InvalidInput
from theorems.token_selection.joint_paths.regime_map import Regime, generate_case, regimes


@dataclass(frozen=True)
class Followed:
    """The schedules of one data set."""

    id: str
    rows: tuple[Regime, ...] = ()
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """For a line of progress."""
        return self.failed or f"{len(self.rows)} schedules, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Mapped:
    """One data set, to be followed along every schedule: somebody's, or a documented one by its number."""

    id: str
    source: str | int

    @property
    def total(self) -> int | None:
        """Not known."""
        return None

    def run(self, progress: Callable[[int], None]) -> Followed:
        """The rows."""
        began = time.perf_counter()
        case = documented_cases()[self.source] if isinstance(self.source, int) else attention_case(load(self.source, 0))
        rows: list[Regime] = []
        try:
            with np.errstate(over="ignore"):  # a line search tries a step that is too long, and takes it back
                for row in regimes(case):
                    rows.append(row)
                    progress(len(rows))
        except ValueError as error:
            raise InvalidInput(f"--data: {case.name} has no regime map: {error}.") from None
        return Followed(self.id, tuple(rows), seconds=time.perf_counter() - began)

    def unfinished_result(self, why: str) -> Followed:
        """None."""
        return Followed(self.id, failed=why or "interrupted")


def documented_cases() -> list[Case]:
    """Figure 3(b) and three generate_case datasets."""
    return [DATASETS["figure-3b"](), *(generate_case(seed) for seed in range(3))]


def data_units(data: str | None) -> list[Mapped]:
    """The units of somebody's data, or of the documented ones."""
    if data is not None:
        return [Mapped(attention_case(load(data, 0)).name, data)]
    return [Mapped(case.name, k) for k, case in enumerate(documented_cases())]
