"""``theorems regime-map``: the regime map of Theorem 6 as a table, or as the document docs/regime_map.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from generators.user_data import load
from reference_attention.errors import InvalidInput
from theorems.command.common import check_targets, complain, run_units, write_report
from theorems.command.subcommands import RegimeMapOptions
from theorems.core.exit_code import Exit
from theorems.run.tables import column_table, console, markdown_table
from theorems.token_selection.joint_paths.regime_map import Regime, regimes
from theorems.token_selection.joint_paths.regime_map_document import AFTER, BEFORE, COLUMNS, cells, documented_cases


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
        case = documented_cases()[self.source] if isinstance(self.source, int) else load(self.source, 0).case
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


def regime_map_and_report(options: RegimeMapOptions) -> int:
    """Print the map, of somebody's data or of the documented ones, with the text of the document around it.

    Raises:
        InvalidInput: data that cannot be read, or that have no map; a target that cannot be written.
    """
    check_targets(options.json)
    if options.data is None:
        units = [Mapped(case.name, k) for k, case in enumerate(documented_cases())]
    else:
        units = [Mapped(load(options.data, 0).case.name, options.data)]
    found, interrupted = run_units(units, options.jobs, "data", "schedules")
    if interrupted:
        complain("interrupted; nothing is printed of a part of the map.")
        return Exit.INTERRUPTED
    schedules = [row for one in found for row in one.rows]
    rows = [cells(row) for row in schedules]
    write_report(options.json, schedules=[{**asdict(row), "ends_at": row.ends_at} for row in schedules])
    if not options.markdown:
        console().print(column_table(*COLUMNS, rows=rows, right=COLUMNS[4:], whole=COLUMNS))
    elif options.data is None:
        print(f"{BEFORE}\n{markdown_table(COLUMNS, rows)}\n\n{AFTER}", end="")
    else:
        print(markdown_table(COLUMNS, rows))
    complain(*(f"{one.id}: {one.failed}" for one in found if one.failed))
    return Exit.INCONCLUSIVE if any(one.failed for one in found) else Exit.UPHELD
