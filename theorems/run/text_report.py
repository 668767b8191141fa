"""The report of a run as plain text, for an AssertionError, a notebook or a log."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console

from theorems.run.result import Result
from theorems.run.tables import print_failures, print_reasons, results_table

WIDTH = 120


def plain_text(write: Callable[[Console], object]) -> str:
    """Return what ``write`` prints to the console that it is called with, without colours and trailing blanks."""
    buffer = io.StringIO()
    write(Console(file=buffer, width=WIDTH, markup=False, emoji=False, highlight=False, no_color=True))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def text_report(
    results: Sequence[Result],
    *,
    again: Callable[[Result], str],
    results_in_table: Sequence[Result] | None = None,
    before: str = "",
    after: Iterable[str] = (),
) -> str:
    """Return a report as text: a table, the reasons, the failing cases.

    Args:
        results: the results to report.
        again: returns a line that says how to reproduce the failing case of a result.
        results_in_table: the results for the table; by default all.
        before: a paragraph before the table.
        after: paragraphs after the failing cases.
    """

    def write(out: Console) -> None:
        if before:
            out.print(before, soft_wrap=True)
        out.print(results_table(results if results_in_table is None else results_in_table))
        print_reasons(out, results)
        print_failures(out, results, again)
        for paragraph in after:
            out.print(f"\n{paragraph}", soft_wrap=True)

    return plain_text(write)
