"""The scoreboard as a page of Markdown: a table, explanations of failures, and kernels that were not tested."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from attention_conformance.kernel.reproducer_file import file_of
from attention_conformance.scoreboard.entry import Entry
from attention_conformance.scoreboard.row import Cell, Row
from theorems.core.claim import Verdict

SIGNS: Mapping[Verdict, str] = {
    Verdict.UPHELD: "✓",
    Verdict.FALSIFIED: "✗",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_APPLICABLE: "–",
}
NOT_LOOKED_AT = "nobody has looked at this yet"
MARK = "\n<!-- printed -->\n"
HEAD = """# Scoreboard

Printed on {date} on a CPU, Python {python}, seed {seed}, by
`{command}`.
With the same versions it prints the same table. ✓ upheld: none of the calls (column *calls*) falsified it.
✗ falsified and ? not decided are explained below. –: the kernel has no parameter for it, or no backward pass.
`theorems show kernel-causal` says what a capability requires.
"""
LEGEND = """
## What is not green

*theirs* is a result that the documentation rules out or that no caller can want, *contract* a convention that a caller
must know, *ours* a limit of this suite or of its adapter. The call is the smallest failing call found; its test
needs the library and this package.
"""


def file_name(name: str) -> str:
    """Return the name of the file that contains the tests of the kernel ``name``."""
    return f"test_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}.py"


def tests_of(entry: Entry, row: Row) -> str:
    """Return the text of a file with a test for each capability that a kernel fails; empty if there are no tests."""
    tests = [cell.test for cell in row.cells if cell.test]
    return file_of(entry.attention, tests, file_name(row.name)) if tests else ""


def page(entries: Sequence[Entry], rows: Sequence[Row], folder: Path, **head: object) -> str:
    """Return the text of the page.

    Args:
        entries: the kernels.
        rows: the row of each kernel, in the order of ``entries``.
        folder: the folder, beside the page, that contains the files of tests.
        head: the date, the command, Python's version and the seed, which the page states at its top.
    """
    tested = [(entry, row) for entry, row in zip(entries, rows, strict=True) if row.cells]
    open_cells = [(entry, row, cell) for entry, row in tested for cell in row.cells if is_open(cell)]
    untested = [(entry, row) for entry, row in zip(entries, rows, strict=True) if not row.cells]
    text = [HEAD.format(**head), *([MARK, *_table(tested)] if tested else [])]
    if open_cells:
        table = ["| kernel | capability | whose | what | call |", "|---|---|---|---|---|"]
        text += [LEGEND, MARK, *table, *(_line_of(entry, row, cell, folder) for entry, row, cell in open_cells)]
    if untested:
        text += ["\n## Not tested\n", *(f"- {entry.name}: {row.why}" for entry, row in untested)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text)) + "\n"


def is_open(cell: Cell) -> bool:
    """Return whether the cell's verdict is falsified or inconclusive, which somebody should explain."""
    return cell.verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE)


def _table(tested: Sequence[tuple[Entry, Row]]) -> list[str]:
    names = [cell.name for cell in tested[0][1].cells]
    lines = [
        f"| kernel | version | computes in | calls | {' | '.join(names)} |",
        "|---|---|---|--:|" + ":-:|" * len(names),
    ]
    for entry, row in tested:
        numbers = row.computes_in + ("" if row.differentiable else ", no gradients")
        signs = " | ".join(SIGNS[cell.verdict] for cell in row.cells)
        lines.append(f"| {entry.name} | {entry.library} {row.version} | {numbers} | {row.examples} | {signs} |")
    return lines


def _line_of(entry: Entry, row: Row, cell: Cell, folder: Path) -> str:
    examination = entry.looked.get(cell.name)
    blamed, explanation = (examination.whose, examination.says) if examination else ("", NOT_LOOKED_AT)
    test = f" [Test]({folder.name}/{file_name(row.name)})" if cell.test else ""
    called = f"{cell.name} {SIGNS[cell.verdict]}"
    return f"| {entry.name} | {called} | {blamed} | {_plain(explanation)} | {_plain(cell.says)}{test} |"


def _plain(text: str) -> str:
    """Return a text that ends with a period, with those characters escaped that mean something in a Markdown table."""
    return re.sub(r"([|*_<])", r"\\\1", text).rstrip(".") + "."
