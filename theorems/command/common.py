"""Functions of several subcommands: refuse files that cannot be written, run units with progress, write, complain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, to_json, write_text
from theorems.command.subcommands import HuntOptions, PowerOptions
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
    """Refuse files that cannot be written, before anything runs.

    Raises:
        InvalidInput: there is one.
    """
    for path in paths:
        if path is not None:
            check_writable(path)


def run_units(units: Sequence[Work[R]], jobs: int, title: str, steps: str, **options: Any) -> tuple[list[R], bool]:
    """Run units with progress on standard error, and return their results and whether a signal ended the run.

    Args:
        units: the units.
        jobs: how many processes.
        title: the plural noun for the units, as :func:`theorems.run.progress.show_progress` has it.
        steps: the plural noun for their steps.
        options: as for :func:`theorems.run.schedule.run`.
    """
    totals = {unit.id: unit.total for unit in units}
    try:
        with show_progress(console(stderr=True), totals, title=title, steps=steps) as progress:
            return run(units, jobs, progress, **options), False
    except Interrupted as stopped:
        return stopped.results, True


@contextmanager
def resumable(options: HuntOptions | PowerOptions, run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the journal of ``--resume`` and the workers of ``--engine``, for :func:`run_units`.

    Raises:
        InvalidInput: one of them cannot be used.
    """
    with open_journal(options.resume, run) as journal, coordinator(options.engine, run, options.resume) as engine:
        yield {"journal": journal, "engine": engine}


def write_files(texts: Iterable[tuple[Path, str]]) -> list[str]:
    """Write files, and return a sentence for each that could not be written after all."""
    sentences = []
    for path, text in texts:
        try:
            write_text(path, text)
        except InvalidInput as error:
            sentences.append(str(error))
    return sentences


def write_report(path: Path | None, **content: Any) -> None:
    """Write JSON, with our version, where it is asked for."""
    if path is not None:
        write_text(path, to_json({"version": version(), **content}, indent=2) + "\n")


def complain(*sentences: str) -> None:
    """Print a line per sentence on standard error."""
    for sentence in sentences:
        console(stderr=True).print(f"theorems: {sentence}", soft_wrap=True)


def exit_code_of(results: Sequence[Result]) -> int:
    """Return the exit code of the results; print a sentence on standard error where no table says why."""
    if Results(tuple(results)).exit_code is Exit.BAD_INPUT:
        bad = next(result for result in results if result.bad_input)
        complain(f"{bad.id}: {bad.bad_input}")
        return Exit.BAD_INPUT
    return exit_code_said({result.verdict for result in results}, "no statement applies to these data")


def exit_code_said(verdicts: Set[Verdict], nothing: str) -> int:
    """Return the exit code of the verdicts; where none applies, say on standard error that ``nothing`` is why."""
    if verdicts <= {Verdict.NOT_APPLICABLE}:
        complain(f"nothing was checked: {nothing}.")
    return exit_of(verdicts)
