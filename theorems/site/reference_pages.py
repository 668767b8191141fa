"""Reference pages of the site: statements, definitions, assumptions, tolerances, and a page for each derivation."""

from __future__ import annotations

import inspect
from functools import partial

from max_margin_theorems.papers import Paper
from theorems.report.document import Block, Code, Heading, Link, Table, Text, paragraph
from theorems.report.markdown import markdown
from theorems.report.record import RunRecord
from theorems.run.registry.suite import assumptions, definitions, paper_of, statements, tolerances
from theorems.site.derivations import Derivation
from theorems.site.docstring import html
from theorems.site.links import anchor, link_from, source_link


def statements_page(measured: RunRecord | None) -> str:
    """Return the page with tables of the statements, with verdicts and worst slacks in the recorded run."""
    by_id = {record.id: record for record in measured.statements} if measured else {}
    rows: dict[Paper | None, list[tuple[Text, ...]]] = {}
    for statement in statements().values():
        record = by_id.get(statement.id)
        tightest = record.tightest if record else None
        verdict = str(record.verdict) if record else "not measured"
        rows.setdefault(paper_of(statement), []).append(
            (
                Link(statement.id, f"{statement.id}.md"),
                statement.title,
                statement.source,
                verdict,
                tightest.nearness if tightest else "",
            )
        )
    origin = (
        f"Verdict and worst slack are those of `theorems verify --examples {measured.examples} --seed {measured.seed}`;"
        if measured
        else "There is no recorded run of verify;"
    )
    head = markdown([Heading(1, "The statements")])
    blocks: list[Block] = []
    for paper, rows_of_paper in rows.items():
        if paper is not None:
            provider = f", of {paper.place}" if paper.package else ""
            blocks += [Heading(2, paper.title), paragraph(f"Source: {paper.source}{provider}.")]
        blocks.append(Table(("statement", "says", "source", "verdict", "worst slack"), tuple(rows_of_paper)))
    return f"{head}\n{origin} [verify](../docs/verify.md) says how to read them.\n\n{markdown(blocks)}"


def definitions_page() -> str:
    """Return the page of the definitions, each with the names of the Python objects that compute it."""
    blocks: list[Block] = [Heading(1, "Definitions")]
    for definition in definitions().values():
        blocks += [Heading(2, definition.id), paragraph(f"{definition.title} ({definition.source}). {definition.text}")]
        blocks.append(
            Table(
                ("in code", "file"),
                tuple((Code(name), source_link(name.partition(":")[0])) for name in definition.objects),
            )
        )
    return markdown(blocks)


def assumptions_page() -> str:
    """Return the page of the assumptions: what each of them states, how it is decided, and which statements make it."""
    parts = [markdown([Heading(1, "Assumptions")])]
    for assumption in assumptions().values():
        users = [id for id, statement in statements().items() if assumption.id in statement.assumptions]
        place = assumption.check.__module__
        text = inspect.getdoc(assumption.check) or ""
        parts += [
            markdown([Heading(2, assumption.id), paragraph(f"{assumption.title} ({assumption.source}).")]),
            f'<div class="theory">\n{html(text, partial(link_from, place))}\n</div>\n',
            f"Assumed by {', '.join(f'[{id}]({id}.md)' for id in users) or 'no statement'}.\n",
        ]
    return "\n".join(parts)


def tolerances_page() -> str:
    """Return the page of the tolerances, each with its formula and reason."""
    blocks: list[Block] = [
        Heading(1, "Tolerances"),
        paragraph("By how much a claim may miss, and why; ", Code("theorems list tolerances"), " prints these."),
    ]
    for key, tolerance in tolerances().items():
        blocks += [Heading(2, key), paragraph(f"{tolerance.formula}: {tolerance.reason}.")]
    return markdown(blocks)


def derivation_page(derivation: Derivation) -> str:
    """Return the page of a derivation: docstrings of its module, and of the objects to which other docstrings refer."""
    source, place = source_link(derivation.module), derivation.module
    title, _, body = derivation.text().partition("\n\n")

    def theory(text: str) -> str:
        return f'<div class="theory">\n{html(text, partial(link_from, place))}\n</div>\n'

    parts = [markdown([Heading(1, " ".join(title.split()).rstrip(".")), paragraph("Source: ", source, ".")])]
    if body:
        parts.append(theory(body))
    for name in derivation.objects:
        parts += [f"({anchor(name)})=\n\n## `{name}`\n", theory(derivation.text(name))]
    return "\n".join(parts)
