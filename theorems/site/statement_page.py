"""Page of a statement: text and derivation, claims with their worst recorded slack, assumptions, planted faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reference_attention.files import read_named_values
from theorems.core.recorded_files import RECORDED
from theorems.core.statement import Statement
from theorems.core.tolerances import Tolerance
from theorems.counterexamples.assumption_table import Status
from theorems.counterexamples.record import load
from theorems.counterexamples.weakened_statements import droppable
from theorems.faults import FAULTS
from theorems.report.document import Block, Code, Heading, Link, Listing, Paragraph, Table, Text, paragraph
from theorems.report.evidence import COUNTEREXAMPLES, status_of
from theorems.report.markdown import markdown
from theorems.report.record import RunRecord, StatementRecord
from theorems.run.registry.suite import folder_of, paper_of, tolerances, tolerances_of
from theorems.run.result import format_value
from theorems.run.tables import lines_of, table_of
from theorems.site.derivations import texts_of
from theorems.site.docstring import html
from theorems.site.links import link_from, source_link


@dataclass(frozen=True)
class Evidence:
    """Recorded evidence about the statements.

    Attributes:
        measured: the recorded run of ``theorems verify`` whose slacks are shown; None if there is none.
        root: the folder that contains the records.
    """

    measured: RunRecord | None
    root: Path = RECORDED


def statement_page(statement: Statement, evidence: Evidence) -> str:
    """Return the page of a statement as Markdown."""
    parts = [
        markdown([Heading(1, f"{statement.id}: {statement.title}"), *_where(statement)]),
        _statement_text(statement),
        markdown([*_assumptions(statement, evidence.root), *_claims(statement, evidence.measured)]),
        markdown([*_tolerances(statement, evidence.measured), *_faults(statement)]),
    ]
    return "\n".join(part for part in parts if part.strip())


def _where(statement: Statement) -> Iterator[Block]:
    source, paper = source_link(statement.conclusion.__module__), paper_of(statement)
    title = f"{paper.title}, " if paper else ""
    origin = f", of {paper.place}" if paper and paper.package else ""
    also = f" Also called {', '.join(statement.aliases)}." if statement.aliases else ""
    yield paragraph(f"Paper: {title}{statement.source}{origin}.{also} Source: ", source, ".")
    yield Listing(f"$ theorems show {statement.id}\n$ theorems verify {statement.id}", "console")


def _statement_text(statement: Statement) -> str:
    """Return as HTML the docstring of the statement's module without its first line, then the statement's."""
    module, text = texts_of(statement.id)
    place = statement.conclusion.__module__
    results = "\n\n".join(part for part in module.split("\n\n")[1:] if not part.startswith("References"))
    derivation = html(text, partial(link_from, place))
    head = [html(results, partial(link_from, place))] if results else []
    return "\n\n".join(["## Statement and derivation", *head, f'<div class="theory">\n{derivation}\n</div>']) + "\n"


def _assumptions(statement: Statement, root: Path) -> Iterator[Block]:
    yield Heading(2, "Assumptions, and why each is there")
    folder = folder_of(statement, root / COUNTEREXAMPLES)
    pairs = [(id, status_of(folder, statement, id)) for id in droppable(statement)]
    if not pairs:
        yield paragraph("It has none.")
        return
    rows = []
    for id, status in pairs:
        assumption = statement.assumption(id)
        assumed = "" if id in statement.assumptions else "; a hypothesis within the statement"
        rows.append(
            (_assumption(id), assumption.title + assumed, assumption.source, _row(statement.id, id, str(status)))
        )
    yield Table(("assumption", "that is", "source", "without it"), tuple(rows))
    for id, status in pairs:
        yield Heading(3, f"Without {id}")
        yield from _without(statement, id, status, root)


def _assumption(id: str) -> Text:
    return Link(id, f"assumptions.md#{id}")


def _row(id: str, without: str, text: str) -> Link:
    """Return a link, shown as ``text``, to the section about statement ``id`` without the assumption ``without``."""
    return Link(text, f"{id}.md#without-{without}")


def _without(statement: Statement, id: str, status: Status, root: Path) -> Iterator[Block]:
    if status is Status.NEEDED:
        yield paragraph(f"The statement cannot be formulated without this assumption: {statement.needs[id]}.")
        return
    if status is Status.HOLE:
        yield paragraph("Not hunted.")
        return
    name = f"{statement.id}-without-{id}.json"
    folder = folder_of(statement, root / COUNTEREXAMPLES)
    path = folder / name
    content = read_named_values(path)
    yield paragraph(_sentence(content["why"]) if content["why"] else "The record does not describe the mechanism.")
    if status is Status.NONE_FOUND:
        effort = content["none_found"]
        met = f", on {effort['met']} of which only this assumption fails" if "met" in effort else ""
        yield paragraph(f"No counterexample was found in {effort['cases']} cases{met}; that proves nothing.")
        return
    ours = folder == root / COUNTEREXAMPLES
    file = _file(name) if ours else Code(name)
    yield paragraph(f"Refuted: {_sentence(content['refutes'])} The smallest counterexample found, ", file, ":")
    case = load(path).case
    columns, rows = table_of(case)
    if rows:
        yield Table(columns, tuple(rows))
    yield paragraph("; ".join(lines_of(case)) + f". Violated: {content['violation']}.")
    if ours:
        yield Listing(f"$ theorems replay {COUNTEREXAMPLES}/{name}", "console")


def _file(name: str) -> Link:
    return Link(name, f"../{COUNTEREXAMPLES}/{name}")


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith(".") else f"{text}."


def _record(statement: Statement, measured: RunRecord | None) -> StatementRecord | None:
    return next((record for record in measured.statements if record.id == statement.id), None) if measured else None


def _claims(statement: Statement, measured: RunRecord | None) -> Iterator[Block]:
    yield Heading(2, "Claims")
    record = _record(statement, measured)
    if record is None or measured is None:
        yield paragraph("There is no recorded run of this statement.")
        yield Table(
            ("claim", "is", "made"),
            tuple((Code(name), statement.part_of(name).words, when) for name, when in statement.claims.items()),
        )
        return
    yield paragraph(
        f"On {record.examples} generated cases (seed {measured.seed}): {record.counts_in_words}. A claim holds when"
        " slack ≥ −tolerance; the table shows the worst slack, among cases whose sides differ, and the number of"
        " examples on which each claim was made."
    )
    by_name = {claim.name: claim for claim in record.claims}
    rows: list[tuple[Text, ...]] = []
    for name in dict.fromkeys([*statement.claims, *by_name]):
        when, claim, part = statement.claims.get(name, ""), by_name.get(name), statement.part_of(name).words
        if claim is None:
            rows.append((Code(name), part, "", when, "0", "never made", "", ""))
            continue
        numbers = (format_value(claim.worst_slack), format_value(claim.tolerance), _tolerance(claim.why))
        rows.append((Code(name), part, str(claim.form), when, str(claim.cases), *numbers))
    yield Table(("claim", "is", "form", "made", "examples", "worst slack", "tolerance", "because of"), tuple(rows))
    for claim in record.claims:
        if claim.branches:
            yield paragraph(Code(claim.name), f": {claim.branches_in_words}.")


def _tolerance(key: str) -> Link:
    return Link(key, f"tolerances.md#{key}")


def _tolerances(statement: Statement, measured: RunRecord | None) -> Iterator[Block]:
    """Yield the tolerances of the claims in the recorded run; without one, those that the statement's modules use."""
    record = _record(statement, measured)
    tolerances_by_key = tolerances()
    by_key: Mapping[str, Tolerance] = tolerances_of(statement)
    if record is not None:
        by_key = {
            key: tolerances_by_key[key]
            for key in sorted({claim.why for claim in record.claims})
            if key in tolerances_by_key
        }
    yield Heading(2, "Tolerances")
    rows = tuple((_tolerance(key), tolerance.formula, tolerance.reason) for key, tolerance in by_key.items())
    yield Table(("tolerance", "formula", "why no larger"), rows)


def _faults(statement: Statement) -> Iterator[Block]:
    yield Heading(2, "Planted faults")
    catching = tuple((Code(name), fault.says) for name, fault in FAULTS.items() if fault.caught_by == statement.id)
    yield Paragraph((f"{len(catching)} faults are recorded as caught by this statement. ", _kernel(statement)))
    if catching:
        yield Table(("caught", "is"), catching)


def _kernel(statement: Statement) -> str:
    if statement.kernel is None:
        return ""
    on = "With an attention kernel under test" if statement.kernel.called else "It calls no attention kernel under test"
    return f"{on}: {statement.kernel.says}."
