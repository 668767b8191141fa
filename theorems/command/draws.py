"""``theorems drawn``: what the strategies draw, as a table, as JSON, or as the document docs/drawn.md has it."""

from __future__ import annotations

from pathlib import Path

from generators.shares import Drawn
from reference_attention.files import check_writable, to_json, write_text
from theorems.core.exit_code import Exit
from theorems.core.version import version
from theorems.faults.power.table import short
from theorems.library.draws import draws, size_cells
from theorems.run.tables import column_table, console


def draw_and_report(ids: tuple[str, ...], examples: int, seed: int, json: Path | None, markdown: bool) -> int:
    """Draw, print, write; returns the exit code.

    Raises:
        InvalidInput: unknown ids, a target that cannot be used.
    """
    if json is not None:
        check_writable(json)
    found = list(draws(*ids, examples=examples, seed=seed).values())
    rows = rows_of(found)
    heads = [short(one.id) if ":" not in one.id else one.id for one in found]
    if markdown:
        print(markdown_table(["of the cases drawn", *heads], rows))
    else:
        table = column_table("of the cases drawn", *heads, right=heads)
        for row in rows:
            table.add_row(*row)
        console().print(table)
    if json is not None:
        report = {"version": version(), "seed": seed, "examples": examples, "statements": [x.as_json() for x in found]}
        write_text(json, to_json(report, indent=2) + "\n")
    return Exit.UPHELD


def rows_of(found: list[Drawn]) -> list[list[str]]:
    """Sizes, then the properties that apply to some case, a column per statement."""
    rows = [[name, *cells] for name, *cells in zip(("n", "T", "d"), *map(size_cells, found), strict=True)]
    for name in found[0].shares:
        if any(one.shares[name].of for one in found):
            rows.append([name, *(str(one.shares[name]) for one in found)])
    return rows


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """The same for a document."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
