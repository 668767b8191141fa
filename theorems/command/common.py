"""Functions that several subcommands share: checks of output files, runs with progress, output, exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, to_json, write_text
from theorems.command.subcommands import HuntOptions
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.core.version import version
from theorems.library.results import Results
from theorems.run.engines.coordinator import coordinator
from theorems.run.journal import open_journal
from theorems.run.progress import show_progress
from theorems.run.result import Result
from theorems.run.schedule import Interrupted, run
from theorems.run.tables import console
from theorems.run.unit_protocols import R, Work


def check_targets(*paths: Path | None) -> None:
    """Check, before anything runs, that the output files can be written; a path may be None.

    Raises:
        InvalidInput: one of the files cannot be written.
    """
    for path in paths:
        if path is not None:
            check_writable(path)


def run_units(units: Sequence[Work[R]], jobs: int, title: str, steps: str, **options: Any) -> tuple[list[R], bool]:
    """Run units of work, show progress on standard error, and return the results and whether a signal ended the run.

    Args:
        units: the units of work.
        jobs: the number of processes.
        title: the plural noun for the units, for the progress bars.
        steps: the plural noun for the steps of a unit, for the progress bars.
        options: further arguments of :func:`theorems.run.schedule.run_stepwise`.
    """
    totals = {unit.id: unit.total for unit in units}
    try:
        with show_progress(console(stderr=True), totals, title=title, steps=steps) as progress:
            return run(units, jobs, progress, **options), False
    except Interrupted as error:
        return error.results, True


@contextmanager
def resumable(options: HuntOptions, run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments for :func:`run_units`: the journal of ``--resume`` and the workers of ``--engine``.

    Raises:
        InvalidInput: the journal or the engine cannot be used.
    """
    with open_journal(options.resume, run) as journal, coordinator(options.engine, run, options.resume) as engine:
        yield {"journal": journal, "engine": engine}


def write_files(texts: Iterable[tuple[Path, str]]) -> list[str]:
    """Write the texts to the files, and return an error message for each file that could not be written."""
    sentences = []
    for path, text in texts:
        try:
            write_text(path, text)
        except InvalidInput as error:
            sentences.append(str(error))
    return sentences


def write_report(path: Path | None, **content: Any) -> None:
    """Write the content and our version to a JSON file; do nothing if the path is None."""
    if path is not None:
        write_text(path, to_json({"version": version(), **content}, indent=2) + "\n")


def complain(*sentences: str) -> None:
    """Print the sentences on standard error, each on a line."""
    for sentence in sentences:
        console(stderr=True).print(f"theorems: {sentence}", soft_wrap=True)


def exit_code_of(results: Sequence[Result]) -> int:
    """Return the exit code for results; print the reason on standard error if the tables do not show it."""
    if Results(tuple(results)).exit_code is Exit.BAD_INPUT:
        bad = next(result for result in results if result.bad_input)
        complain(f"{bad.id}: {bad.bad_input}")
        return Exit.BAD_INPUT
    verdicts = {result.verdict for result in results}
    if verdicts <= {Verdict.NOT_APPLICABLE}:
        complain("nothing was checked: no statement applies to these data.")
    return exit_of(verdicts)
