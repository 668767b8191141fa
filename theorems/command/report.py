"""``theorems report``: from its options to a document and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from generators.user_data import load
from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, from_json, write_text
from theorems.command.verify import exit_code_of, exit_code_said
from theorems.core.exit_code import Exit
from theorems.library.results import Results
from theorems.report.content import Contents, blocks, installed_versions
from theorems.report.document import Document
from theorems.report.evidence import hunt_records, power
from theorems.report.html import html
from theorems.report.markdown import markdown
from theorems.report.record import parse, read
from theorems.run.description import Description, heading_of
from theorems.run.events import Event, Started, Stopped
from theorems.run.pool import PATIENCE
from theorems.run.progress import show_progress
from theorems.run.registry.lookup import select_statements, statement_named
from theorems.run.session import Request, Session
from theorems.run.tables import console

RENDERERS: Mapping[str, Callable[[Document], str]] = {".md": markdown, ".html": html}


@dataclass(frozen=True)
class ReportRequest:
    """The options of ``theorems report``."""

    ids: tuple[str, ...]
    examples: int
    seed: int
    data: str | None
    results: Path | None
    out: Path | None
    json: Path | None
    jobs: int
    resume: Path | None = None
    timeout: float | None = None
    patience: float = PATIENCE
    isolate: bool = True


def report_and_write(request: ReportRequest) -> int:
    """Verify, or read what was verified, and write the document; returns the exit code that verify has.

    Raises:
        InvalidInput: options that contradict each other, ids, data or files that cannot be used; before anything runs.
    """
    if request.out is not None:
        if request.out.suffix not in RENDERERS:
            raise InvalidInput(f"--out: {request.out} ends in neither .md nor .html, which say what to write.")
        check_writable(request.out)
    if request.results is not None:
        return _from_results(request)
    return _from_run(request)


def _from_results(request: ReportRequest) -> int:
    assert request.results is not None
    given = {"ID": bool(request.ids), "--data": request.data is not None, "--json": request.json is not None}
    given |= {"--resume": request.resume is not None, "--timeout": request.timeout is not None}
    for option, there in given.items():
        if there:
            raise InvalidInput(f"--from: the run is done already; leave out {option}.")
    run = read(request.results)
    every = {one.id: one for one in select_statements(())}
    chosen = [every[one.id] for one in run.statements if one.id in every]
    known = {one.id: heading_of(one) for one in chosen}
    whole = set(every) == {one.id for one in run.statements}
    _write(request, Contents(run, known, hunt_records(chosen), power(chosen), all_statements=whole))
    verdicts = {one.verdict for one in run.statements}
    return exit_code_said(console(stderr=True), verdicts, "no statement of the file is upheld")


def _from_run(request: ReportRequest) -> int:
    if request.json is not None:
        check_writable(request.json)
    given = None if request.data is None else load(request.data, request.seed)
    asked = Request(
        request.ids,
        request.examples,
        request.seed,
        given,
        jobs=request.jobs,
        timeout=request.timeout,
        patience=request.patience,
        isolate=request.isolate,
        journal=request.resume,
    )
    about, evidence = Description(), (hunt_records(()), power(()))

    def note(event: Event) -> None:
        nonlocal about, evidence
        if isinstance(event, Started):
            about = event.about
            suite = [statement_named(one.id) for one in about.statements if not one.file]
            evidence = hunt_records(suite), power(suite)

    err = console(stderr=True)
    with show_progress(err) as progress:
        last = Session(asked).run(note, progress)
    if isinstance(last, Stopped):
        err.print("theorems: interrupted; no report is written of a part of the run.", soft_wrap=True)
        return Exit.INTERRUPTED
    text = Results(last.results, request.examples, request.seed, request.data, about).to_json()
    known = {one.id: one for one in about.statements}
    failures = {result.id: result.failure for result in last.results if result.failure is not None}
    whole = not request.ids and given is None
    own = {key: one for heading in about.statements for key, one in heading.tolerances.items()}
    run = parse(from_json(text), "report")
    _write(request, Contents(run, known, *evidence, failures, about.findings, installed_versions(), whole, own))
    if request.json is not None:
        write_text(request.json, text)
    return exit_code_of(err, last.results)


def _write(request: ReportRequest, contents: Contents) -> None:
    document = blocks(contents)
    if request.out is None:
        print(markdown(document), end="")
    else:
        write_text(request.out, RENDERERS[request.out.suffix](document))
