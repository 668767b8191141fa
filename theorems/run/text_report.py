"""Report of a run as plain text, for an AssertionError, a notebook or a log."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console

from theorems.run.result import Result
from theorems.run.tables import print_failures, print_reasons, results_table

WIDTH = 120


def plain_text(write: Callable[[Console], object]) -> str:
    """Call ``write`` with a console and return the text that it prints there, without colours and trailing blanks."""
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
    """Return a report as text: a table of results, why cases were not upheld, and the failing cases.

    Args:
        results: the results to report.
        again: function of a result that returns a line saying how to reproduce its failing case.
        results_in_table: the results to show in the table; by default all.
        before: a paragraph to print before the table.
        after: paragraphs to print after the failing cases.
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
