"""``theorems regime-map``: the regime map of Theorem 6 as a table, or as the document docs/regime_map.md."""

from __future__ import annotations

from dataclasses import asdict

from theorems.command.common import check_targets, complain, run_units, write_report
from theorems.command.subcommands import RegimeMapOptions
from theorems.core.exit_code import Exit
from theorems.regime_map.document import AFTER, BEFORE, COLUMNS, cells
from theorems.regime_map.work import data_units
from theorems.run.tables import column_table, console, markdown_table


def regime_map_and_report(options: RegimeMapOptions) -> int:
    """Print the map, of somebody's data or of the documented ones, with the text of the document around it.

    Raises:
        InvalidInput: data that cannot be read, or that have no map; a target that cannot be written.
    """
    check_targets(options.json)
    found, interrupted = run_units(data_units(options.data), options.jobs, "data", "schedules")
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
