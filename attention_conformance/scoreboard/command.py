"""The command ``theorems scoreboard``: from its options to a table, a page, files of tests and an exit code."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date

from attention_conformance.scoreboard.entry import OURS, Entry, read_entries
from attention_conformance.scoreboard.options import ScoreboardOptions
from attention_conformance.scoreboard.page import SIGNS, file_name, is_open, page, tests_of
from attention_conformance.scoreboard.row import PREFIX, Row, request_of, row_of
from reference_attention.errors import InvalidInput
from reference_attention.files import check_directory, write_in
from theorems.command.common import complain
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.run.encoding import decode, encode
from theorems.run.identity import identity, of_files
from theorems.run.journal import Journal, open_journal
from theorems.run.progress import show_progress
from theorems.run.registry.suite import capabilities
from theorems.run.tables import column_table, console


def scoreboard_and_report(options: ScoreboardOptions) -> int:
    """Run the scoreboard, write and print the results, and return the exit code.

    Raises:
        InvalidInput: the list of kernels, or a file or folder to write to, cannot be used; raised before anything runs.
    """
    entries = read_entries(options.kernels or OURS)
    check_directory(options.out, "tests of red cells")
    run = identity(
        "scoreboard",
        kernels=[
            [entry.name, entry.attention, entry.interface, entry.dtype, entry.examples, entry.version]
            for entry in entries
        ],
        examples=options.examples,
        seed=options.seed,
        **of_files(f"{entry.attention.partition(':')[0].replace('.', '/')}.py" for entry in entries),
    )
    rows: list[Row] = []
    with open_journal(options.resume, run) as journal:
        try:
            for entry in entries:
                rows.append(_row(entry, options, journal, f"[{len(rows) + 1}/{len(entries)}]"))
        except KeyboardInterrupt:
            complain(f"interrupted; {len(rows)} of {len(entries)} kernels are finished, and nothing is written.")
            return Exit.INTERRUPTED
    for entry, row in zip(entries, rows, strict=True):
        text = tests_of(entry, row)
        if text:
            write_in(options.out, file_name(row.name), text)
    day = date.today().isoformat()
    head = {"date": day, "python": platform.python_version(), "seed": options.seed}
    if options.markdown:
        print(page(entries, rows, options.out, command=_command(options), **head), end="")
    else:
        _print(entries, rows)
    return _exit_code(entries, rows)


def _row(entry: Entry, options: ScoreboardOptions, journal: Journal | None, number: str) -> Row:
    """Return the row of a kernel; if the journal of an earlier run has the row, the kernel is not run again."""
    err = console(stderr=True)
    for record in journal.records if journal else ():
        if record.get("kernel") == entry.name:
            try:
                return decode(record.get("row"), Row)
            except ValueError:
                raise InvalidInput(
                    f"--resume: {options.resume} has no row of {entry.name}; give another file."
                ) from None
    request = request_of(entry, options.examples, options.seed, options.jobs)
    with show_progress(err) as progress:
        row = row_of(entry, request, progress if err.is_terminal else lambda event: None)
    count = sum(cell.verdict is Verdict.UPHELD for cell in row.cells)
    err.print(f"{number} {entry.name}: {row.why or f'{count} upheld, {row.seconds} s'}", soft_wrap=True, markup=False)
    if journal:
        journal.append({"kernel": entry.name, "row": encode(row)})
    return row


def _print(entries: Sequence[Entry], rows: Sequence[Row]) -> None:
    """Print a table with a row for each kernel, then a line for each capability that is falsified or inconclusive."""
    out = console()
    table = column_table("kernel", "upheld", "not upheld", "no parameter for")
    for row in rows:
        by_verdict = {v: [cell.name for cell in row.cells if cell.verdict is v] for v in Verdict}
        bad = [f"{SIGNS[cell.verdict]} {cell.name}" for cell in row.cells if is_open(cell)]
        upheld = f"{len(by_verdict[Verdict.UPHELD])} of {len(row.cells) - len(by_verdict[Verdict.NOT_APPLICABLE])}"
        cells = (
            (upheld, ", ".join(bad), ", ".join(by_verdict[Verdict.NOT_APPLICABLE])) if row.cells else ("", row.why, "")
        )
        table.add_row(row.name, *cells)
    out.print(table)
    for entry, row in zip(entries, rows, strict=True):
        for cell in filter(is_open, row.cells):
            examination = entry.looked.get(cell.name)
            note = f" ({examination.whose}: {examination.says})" if examination else ""
            out.print(f"{row.name}: {cell.name}: {cell.says}{note}", soft_wrap=True, markup=False)


def _command(options: ScoreboardOptions) -> str:
    """Return the command line that prints the page of a scoreboard with the given options."""
    kernels = [] if options.kernels is None else ["--kernels", str(options.kernels)]
    rest = ["--examples", str(options.examples), "--seed", str(options.seed), "--out", str(options.out), "--markdown"]
    return " ".join(["theorems scoreboard", *kernels, *rest])


def _exit_code(entries: Sequence[Entry], rows: Sequence[Row]) -> int:
    """Return the exit code for all cells without a recorded explanation, and print which explanations are out of date.

    If no kernel could be tested, the exit code is that of an inconclusive verdict.
    """
    cells = [(entry, cell) for entry, row in zip(entries, rows, strict=True) for cell in row.cells]
    stale = [
        f"{entry.name}: {cell.name}: is upheld, but explained as {entry.looked[cell.name].whose}; look again."
        for entry, cell in cells
        if cell.name in entry.looked and cell.verdict is Verdict.UPHELD
    ]
    unknown = [
        f"{entry.name}: looked.{name}: is no capability; correct the name."
        for entry in entries
        for name in entry.looked
        if PREFIX + name not in capabilities()
    ]
    complain(*stale, *unknown)
    if not cells:
        complain("no kernel could be tested.")
    return exit_of(cell.verdict for entry, cell in cells if cell.name not in entry.looked)
