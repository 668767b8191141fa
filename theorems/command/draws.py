"""``theorems drawn``: what the strategies draw, as a table, as JSON, or as Markdown for the site."""

from __future__ import annotations

from itertools import chain

from generators.shares import Drawn
from theorems.command.common import check_targets, write_report
from theorems.command.subcommands import DrawnOptions
from theorems.core.exit_code import Exit
from theorems.faults.power.table import short
from theorems.library.draws import draws, size_cells
from theorems.run.tables import column_table, console, markdown_table


def draw_and_report(options: DrawnOptions) -> int:
    """Draw, print, write; returns the exit code.

    Raises:
        InvalidInput: unknown ids, a target that cannot be used.
    """
    check_targets(options.json)
    found = list(draws(*(options.ids or ()), examples=options.examples, seed=options.seed).values())
    rows = rows_of(found)
    heads = [short(one.id) if ":" not in one.id else one.id for one in found]
    columns = ("of the cases drawn", *heads)
    if options.markdown:
        print(markdown_table(columns, rows, ["---"] + ["--:"] * len(heads)))
    else:
        console().print(column_table(*columns, rows=rows, right=heads))
    held = [one.as_json() for one in found]
    write_report(options.json, seed=options.seed, examples=options.examples, statements=held)
    return Exit.UPHELD


def rows_of(found: list[Drawn]) -> list[list[str]]:
    """Sizes, then the properties that apply to some case, a column per statement."""
    sizes = [size_cells(one) for one in found]
    rows = [[name, *(of.get(name, "") for of in sizes)] for name in dict.fromkeys(chain(*sizes))]
    for name in found[0].shares:
        if any(one.shares[name].of for one in found):
            rows.append([name, *(str(one.shares[name]) for one in found)])
    return rows
