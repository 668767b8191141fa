"""``theorems report``: from its options to a document and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, from_json, write_text
from theorems.command.session import Request, as_json, exit_code_of, exit_code_said, journal_of, results_of
from theorems.core.exit_code import Exit
from theorems.core.statement import Statement
from theorems.registry.lookup import chosen_statements
from theorems.report.content import Contents, blocks, installed
from theorems.report.document import Document
from theorems.report.evidence import hunted, power
from theorems.report.html import html
from theorems.report.markdown import markdown
from theorems.report.record import parsed, read
from theorems.run.apart import Apart, apart, findings_of, tolerances_here
from theorems.run.crew import PATIENCE
from theorems.run.tables import console
from theorems.run.user_data import load

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
    with apart(request.jobs, request.patience) if request.isolate else nullcontext() as here:
        return _from_run(request, here)


def _from_results(request: ReportRequest) -> int:
    assert request.results is not None
    given = {"ID": bool(request.ids), "--data": request.data is not None, "--json": request.json is not None}
    given |= {"--resume": request.resume is not None, "--timeout": request.timeout is not None}
    for option, there in given.items():
        if there:
            raise InvalidInput(f"--from: the run is done already; leave out {option}.")
    run = read(request.results)
    every = {one.id: one for one in chosen_statements(())}
    known = {one.id: every[one.id] for one in run.statements if one.id in every}
    whole = set(every) == {one.id for one in run.statements}
    _write(request, Contents(run, known, hunted(known.values()), power(known.values()), all_statements=whole))
    verdicts = {one.verdict for one in run.statements}
    return exit_code_said(console(stderr=True), verdicts, "no statement of the file is upheld")


def _from_run(request: ReportRequest, here: Apart | None) -> int:
    if request.json is not None:
        check_writable(request.json)
    given = None if request.data is None else load(request.data, request.seed)
    ids = request.ids or ((given.failed,) if given and given.failed else ())
    chosen = chosen_statements(ids, subject=given.case if given else None)
    known: dict[str, Statement] = {one.id: one for one in chosen}
    evidence = hunted(chosen), power(chosen)
    err = console(stderr=True)
    # Failing cases stand in the document itself, so no folder is needed for them.
    asked = Request(
        request.ids,
        request.examples,
        request.seed,
        request.data,
        request.json,
        Path("falsified"),
        request.jobs,
        resume=request.resume,
        timeout=request.timeout,
        patience=request.patience,
    )
    journal = journal_of(asked, chosen, given)
    results, interrupted = results_of(asked, chosen, given, err, journal, here)
    if interrupted:
        err.print("theorems: interrupted; no report is written of a part of the run.", soft_wrap=True)
        return Exit.INTERRUPTED
    about_data = findings_of(given, chosen, here) if given else []
    text = as_json(asked, results, about_data)
    failures = {result.id: result.failure for result in results if result.failure is not None}
    run = parsed(from_json(text), "report")
    whole = not request.ids and given is None
    own = tolerances_here(chosen, here)
    _write(request, Contents(run, known, *evidence, failures, about_data, installed(), whole, own))
    if request.json is not None:
        write_text(request.json, text)
    return exit_code_of(err, results)


def _write(request: ReportRequest, contents: Contents) -> None:
    document = blocks(contents)
    if request.out is None:
        print(markdown(document), end="")
    else:
        write_text(request.out, RENDERERS[request.out.suffix](document))
