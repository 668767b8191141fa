"""Tables that the command prints: results, assumptions, failing cases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from generators.case import Case
from generators.subject import Subject, shown_array
from generators.user_data import subject_of
from reference_attention.errors import InvalidInput, printable
from reference_attention.files import from_json
from theorems.core.claim import Verdict
from theorems.run.findings import NamedFinding
from theorems.run.result import Failure, Result

STYLES = {
    Verdict.UPHELD: "green",
    Verdict.FALSIFIED: "bold red",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.INCONCLUSIVE: "yellow",
}
HOLDS = {True: ("holds", "green"), False: ("does not hold", "red"), None: ("not established", "yellow")}
LONGEST_ID = 48
"""Largest number of characters of an id on one line of a table; longer ids (paths of files) are folded."""
OFTEN = 5
"""A claim checked on at least this many calls of a kernel is not listed among the claims checked on only some calls."""
LISTED = 5
"""If more statements than this have claims checked on only some cases, these claims are counted, not listed."""
SHOWN_ROWS = 40
"""Largest number of tokens printed of a failing case; the file of the case has all tokens."""


class _Forgiving:
    """Wrapper of standard error that ignores write errors, such as those after the terminal was closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class PlainConsole(Console):
    """Console that shows control characters, which users' files may contain, as text instead of sending them."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich's console does, but with the control characters in texts made visible."""
        super().print(*(_visible(value) for value in objects), **options)


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value, lines=True)
    if isinstance(value, Text) and (plain := printable(value.plain, lines=True)) != value.plain:
        return Text(plain, value.style, no_wrap=value.no_wrap)
    return value


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints brackets and numbers as they are, and in a pipe shows control characters as text."""
    stream: Any = _Forgiving(sys.stderr) if stderr else sys.stdout
    plain: dict[str, Any] = {"file": stream, "markup": False, "emoji": False, "highlight": False}
    standard = PlainConsole(**plain)
    # In a file or pipe, rich's default width of 80 columns would break lines without need.
    return standard if standard.is_terminal else PlainConsole(**plain, width=160, no_color=True, force_terminal=False)


def column_table(
    *columns: str, rows: Iterable[Iterable[str | Text]] = (), right: Iterable[str] = (), whole: Iterable[str] = ()
) -> Table:
    """Return a table for a terminal.

    Args:
        *columns: the titles of the columns.
        rows: the rows.
        right: titles of the columns that are aligned to the right.
        whole: titles of the columns whose text is never wrapped.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        side: Any = "right" if column in right else "left"
        table.add_column(column, justify=side, overflow="fold", no_wrap=column in whole)
    for row in rows:
        table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else _visible(cell) for cell in row))
    return table


def results_table(results: Sequence[Result]) -> Table:
    """Return a table with a row for each result: statement, title, verdict, examples, worst slack, seconds."""
    rows = [
        (
            Text(result.id, no_wrap=len(result.id) <= LONGEST_ID),
            result.title,
            Text("interrupted" if result.interrupted else result.verdict_in_words, STYLES[result.verdict]),
            str(result.examples),
            result.tightest.nearness if result.tightest else "",
            f"{result.seconds:.1f}",
        )
        for result in results
    ]
    columns = ("statement", "says", "verdict", "examples", "worst slack", "seconds")
    return column_table(*columns, rows=rows, right=("examples", "seconds"))


def assumptions_table(findings: Iterable[NamedFinding]) -> Table:
    """Return a table with a row for each assumption: whether it holds on the user data, and why."""
    rows = [(finding.id, finding.title, Text(*HOLDS[finding.holds]), finding.evidence) for finding in findings]
    return column_table("assumption", "says", "", "because", rows=rows, whole=("assumption",))


def print_reasons(out: Console, results: Iterable[Result]) -> None:
    """Print, for each statement, why some of its cases were not upheld or not checked."""
    _print_lines(out, (f"{result.id}: {result.verdict}: {result.reason}" for result in results if result.reason))


def print_branches(out: Console, results: Iterable[Result]) -> None:
    """Print, for each claim that allows alternatives, which alternatives occurred and on how many cases."""
    for result in results:
        total = f" of {result.examples} examples" if result.examples > 1 else ""
        branching = (claim for claim in result.claims if claim.branches)
        _print_lines(out, (f"{result.id}: {claim.name}: {claim.branches_in_words}{total}" for claim in branching))


def print_counts(out: Console, results: Iterable[Result]) -> None:
    """Print which claims were checked on only some cases, or on none, because these claims have further hypotheses.

    Few calls of a kernel compute every gradient. For a capability of kernels, therefore, only claims checked on fewer
    than :data:`OFTEN` calls are listed. If more than :data:`LISTED` statements have claims to list, the claims are only
    counted.
    """
    seldom, never = [], []
    for result in results:
        checked = result.counts.get(Verdict.UPHELD, 0)
        least = min(checked, OFTEN) if result.id.startswith("kernel-") else checked
        rare = [f"{claim.name} on {claim.cases}" for claim in result.claims if claim.cases < least]
        if rare:
            seldom.append((result.id, checked, rare))
        if result.never_made:
            never.append(
                f"{result.id}: claims checked on none of {result.examples} examples: {', '.join(result.never_made)}"
            )
    others = [rare for id, _, rare in seldom if not id.startswith("kernel-")]
    for id, checked, rare in seldom:
        if len(others) <= LISTED or id.startswith("kernel-"):
            _print_lines(out, [f"{id}: claims checked on only some of {checked} examples: {', '.join(rare)}"])
    if len(others) > LISTED:
        count = sum(map(len, others))
        _print_lines(
            out,
            [
                f"{count} claims of {len(others)} statements have further hypotheses and were checked on only some"
                " examples; verify one statement to see on how many"
            ],
        )
    _print_lines(out, never)


def _print_lines(out: Console, lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, soft_wrap=True)


def print_failures(out: Console, results: Iterable[Result], reproduce: Callable[[Result], str]) -> None:
    """Print the failing cases as tables, each with the falsified claim and how to reproduce the failure.

    A case on which several statements fail is printed once.
    """
    printed: dict[str, str] = {}
    for result in results:
        failure = result.failure
        if failure is None:
            continue
        kind = "the smallest failing case found" if failure.shrunk else "a failing case"
        out.print()
        out.print(Text(f"{result.id} ({result.title}): {failure.verdict}, {kind}", "bold"), soft_wrap=True)
        lines = [failure.line.removeprefix(f"{result.id}: ")] if failure.line else []
        _print_lines(out, (f"  {line}" for line in (*lines, failure.sentence)))
        _print_failing_case(out, result.id, failure, printed)
        out.print(Text(f"  {reproduce(result)}"), soft_wrap=True)


def _print_failing_case(out: Console, id: str, failure: Failure, printed: dict[str, str]) -> None:
    """Print a failing case; if it is in ``printed``, print only the id of the statement under which it was printed."""
    try:
        case = subject_of(from_json(failure.case))
    except InvalidInput:  # the statement's file, which is not loaded here, defines this kind of case
        _print_lines(out, (f"  {line.strip().rstrip(',')}" for line in failure.case.splitlines()[1:-1]))
        return
    if (first := printed.setdefault(repr((table_of(case), lines_of(case))), id)) != id:
        _print_lines(out, [f"  on the same case as {first}"])
    else:
        print_case(out, case)


def print_case(out: Console, case: Subject) -> None:
    """Print a case in full: its table, then the lines about what the table leaves out."""
    columns, rows = table_of(case)
    if rows:
        out.print(column_table(*columns, rows=rows, right=("input", "token", "score")))
    _print_lines(out, (f"  {line}" for line in lines_of(case)))


def table_of(case: Subject) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles of the columns and the rows of the table in which a case is printed.

    For data of the first paper, a row is a token with its score and key. Other kinds of cases define their own table;
    calls of a kernel have an empty one.
    """
    return (CASE_COLUMNS, case_rows(case)) if isinstance(case, Case) else case.rows()


def lines_of(case: Subject) -> list[str]:
    """Return one line for each item of a case that its table leaves out."""
    return case_lines(case) if isinstance(case, Case) else case.lines()


CASE_COLUMNS = ("input", "token", "chosen", "score", "key")


def case_rows(case: Case) -> list[tuple[str, ...]]:
    """Return the rows of the table of a case of the first paper, one row per token."""
    problem = case.problem
    tokens = [(i, t) for i in range(problem.n) for t in range(problem.T)]
    rows: list[tuple[str, ...]] = [
        (
            str(i),
            str(t),
            "α" if t == case.chosen_tokens[i] else "",
            repr(float(problem.scores[i, t])),
            shown_array(problem.keys[i, t]),
        )
        for i, t in tokens[:SHOWN_ROWS]
    ]
    remaining = len(tokens) - len(rows)
    return [*rows, ("…", "…", "", "", f"{remaining} more tokens")] if remaining else rows


def case_lines(case: Case) -> list[str]:
    """Return one line each for the loss, the seed and the arrays of a case of the first paper."""
    lines = [f"loss {case.problem.loss.name}", f"seed {case.seed}"]
    if case.alpha is not None:
        lines.append(f"alpha {case.alpha.tolist()}")
    if case.start is not None:
        lines.append(f"start {shown_array(case.start)}")
    if case.dataset is not None:
        lines.append(f"made from tokens X {case.dataset.X.shape}, labels Y, head v and W")
    lines += [
        f"{name} {shown_array(value) if np.ndim(value) <= 1 else f'of shape {np.shape(value)}'}"
        for name, value in case.arrays.items()
    ]
    return lines
