"""The report of a run as a document: the option ``theorems verify --report`` and the subcommand ``theorems report``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from theorems.command.common import check_targets, complain, exit_code_of_verdicts, write_files
from theorems.command.subcommands import ReportOptions
from theorems.core.exit_code import Exit
from theorems.library.results import Results
from theorems.report.content import Contents, blocks, installed_versions
from theorems.report.document import Document
from theorems.report.evidence import HuntRecord, hunt_records
from theorems.report.html import html
from theorems.report.markdown import markdown
from theorems.report.record import parse, read
from theorems.run.description import Description, heading_of
from theorems.run.registry.lookup import select_statements, statement_named

RENDERERS: Mapping[str, Callable[[Document], str]] = {".md": markdown, ".html": html}
Evidence = list[HuntRecord] | None


def check_document(option: str, path: Path | None, *others: str) -> None:
    """Check that a document can be written, and that its name ends in .md, .html or one of ``others``.

    A path of None means no document.

    Raises:
        InvalidInput: the check fails; the message names the option.
    """
    endings = (*RENDERERS, *others)
    if path is not None and path.suffix not in endings:
        raise InvalidInput(f"{option}: {path} does not end in {', '.join(endings[:-1])} or {endings[-1]}; rename it.")
    check_targets(path)


def evidence_about(about: Description) -> Evidence:
    """Return the recorded counterexamples that concern the statements of a run."""
    suite = [statement_named(heading.id) for heading in about.statements if not heading.file]
    return hunt_records(suite)


def text_of_run(path: Path, results: Results, evidence: Evidence, *, all_statements: bool) -> str:
    """Return the document of a run, in the format that the ending of ``path`` names.

    Args:
        path: the file for the document.
        results: the results of the run.
        evidence: the counterexamples for the run's statements, from :func:`evidence_about`.
        all_statements: whether the run verified every statement of the suite.
    """
    about = results.about
    failures = {result.id: result.failure for result in results.results if result.failure is not None}
    contents = Contents(
        parse(from_json(results.to_json()), "report"),
        {statement.id: statement for statement in about.statements},
        evidence,
        failures,
        about.findings,
        installed_versions(),
        all_statements,
        {key: tolerance for heading in about.statements for key, tolerance in heading.tolerances.items()},
    )
    return RENDERERS[path.suffix](blocks(contents))


def report_and_write(options: ReportOptions) -> int:
    """Read the results that ``verify --json`` wrote, write them as a document, and return verify's exit code.

    Raises:
        InvalidInput: the results cannot be read, or the document cannot be written.
    """
    check_document("--out", options.out)
    run = read(options.results)
    suite = {statement.id: statement for statement in select_statements(())}
    chosen = [suite[record.id] for record in run.statements if record.id in suite]
    headings = {statement.id: heading_of(statement) for statement in chosen}
    whole = set(suite) == {record.id for record in run.statements}
    document = blocks(Contents(run, headings, hunt_records(chosen), all_statements=whole))
    if options.out is None:
        print(markdown(document), end="")
    elif unwritten := write_files([(options.out, RENDERERS[options.out.suffix](document))]):
        complain(*unwritten)
        return Exit.BAD_INPUT
    return exit_code_of_verdicts({record.verdict for record in run.statements}, "no statement of the file is upheld")
