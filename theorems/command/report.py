"""``theorems report``: from its options to a document and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from generators.user_data import load
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from theorems.command.common import check_targets, complain, write_files
from theorems.command.subcommands import ReportOptions
from theorems.command.verify import exit_code_of, exit_code_said
from theorems.core.exit_code import Exit
from theorems.library.results import Results
from theorems.report.content import Contents, blocks, installed_versions
from theorems.report.document import Document
from theorems.report.evidence import hunt_records, power
from theorems.report.html import html
from theorems.report.markdown import markdown
from theorems.report.record import parse, read
from theorems.run.description import heading_of
from theorems.run.events import Event, Started, Stopped
from theorems.run.progress import show_progress
from theorems.run.registry.lookup import select_statements, statement_named
from theorems.run.session import Request, Session
from theorems.run.tables import console

RENDERERS: Mapping[str, Callable[[Document], str]] = {".md": markdown, ".html": html}


def report_and_write(options: ReportOptions) -> int:
    """Verify, or read the results of verify, write the document, and return the exit code that verify has.

    Raises:
        InvalidInput: options that contradict each other, ids, data or files that cannot be used; before anything runs.
    """
    if options.out is not None and options.out.suffix not in RENDERERS:
        raise InvalidInput(f"--out: {options.out} ends in neither .md nor .html, which say what to write.")
    check_targets(options.out)
    return _from_run(options) if options.results is None else _from_results(options, options.results)


def _from_results(options: ReportOptions, results: Path) -> int:
    for option in ("ids", "data", "resume", "timeout"):
        if getattr(options, option) not in (None, []):
            name = "ID" if option == "ids" else f"--{option}"
            raise InvalidInput(f"--from: the run is done already; leave out {name}.")
    run = read(results)
    suite = {statement.id: statement for statement in select_statements(())}
    chosen = [suite[record.id] for record in run.statements if record.id in suite]
    known = {statement.id: heading_of(statement) for statement in chosen}
    whole = set(suite) == {record.id for record in run.statements}
    unwritten = _write(options, Contents(run, known, hunt_records(chosen), power(chosen), all_statements=whole))
    complain(*unwritten)
    if unwritten:
        return Exit.BAD_INPUT
    return exit_code_said({record.verdict for record in run.statements}, "no statement of the file is upheld")


def _from_run(options: ReportOptions) -> int:
    given = None if options.data is None else load(options.data, options.seed)
    request = Request(
        tuple(options.ids or ()),
        options.examples,
        options.seed,
        given,
        jobs=options.jobs,
        timeout=options.timeout,
        patience=options.case_timeout,
        isolate=options.isolate,
        journal=options.resume,
    )
    evidence = (hunt_records(()), power(()))

    def read_evidence(event: Event) -> None:
        nonlocal evidence
        if isinstance(event, Started):
            suite = [statement_named(heading.id) for heading in event.about.statements if not heading.file]
            evidence = hunt_records(suite), power(suite)

    session = Session(request)
    with show_progress(console(stderr=True)) as progress:
        last = session.run(read_evidence, progress)
    if isinstance(last, Stopped):
        complain("interrupted; a report on a partial run is not written.")
        return Exit.INTERRUPTED
    about = session.about
    text = Results(last.results, options.examples, options.seed, options.data, about).to_json()
    known = {statement.id: statement for statement in about.statements}
    failures = {result.id: result.failure for result in last.results if result.failure is not None}
    whole = not options.ids and given is None
    own = {key: tolerance for heading in about.statements for key, tolerance in heading.tolerances.items()}
    run = parse(from_json(text), "report")
    contents = Contents(run, known, *evidence, failures, about.findings, installed_versions(), whole, own)
    unwritten = _write(options, contents)
    complain(*unwritten)
    return Exit.BAD_INPUT if unwritten else exit_code_of(last.results)


def _write(options: ReportOptions, contents: Contents) -> list[str]:
    """Write or print the document; return a sentence if its file could not be written after all."""
    document = blocks(contents)
    if options.out is None:
        print(markdown(document), end="")
        return []
    return write_files([(options.out, RENDERERS[options.out.suffix](document))])
