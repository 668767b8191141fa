"""The pages that statements link to: their table, definitions, assumptions, tolerances, and derivations."""

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
    """A table of the statements of each paper, with what the kept run found."""
    found = {one.id: one for one in measured.statements} if measured else {}
    rows: dict[Paper | None, list[tuple[Text, ...]]] = {}
    for one in statements().values():
        record = found.get(one.id)
        tightest = record.tightest if record else None
        verdict = str(record.verdict) if record else "not measured"
        rows.setdefault(paper_of(one), []).append(
            (Link(one.id, f"{one.id}.md"), one.title, one.source, verdict, tightest.nearness if tightest else "")
        )
    said = (
        f"Verdict and worst slack are those of `theorems verify --examples {measured.examples} --seed {measured.seed}`;"
        if measured
        else "No measurement is kept here;"
    )
    head = markdown([Heading(1, "The statements")])
    blocks: list[Block] = []
    for paper, own in rows.items():
        if paper is not None:
            of = f", of {paper.place}" if paper.package else ""
            blocks += [Heading(2, paper.title), paragraph(f"Source: {paper.source}{of}.")]
        blocks.append(Table(("statement", "says", "source", "verdict", "worst slack"), tuple(own)))
    return f"{head}\n{said} [verify](../docs/verify.md) says how to read them.\n\n{markdown(blocks)}"


def definitions_page() -> str:
    """Definitions 1 to 3, with the objects that embody them."""
    blocks: list[Block] = [Heading(1, "Definitions")]
    for one in definitions().values():
        blocks += [Heading(2, one.id), paragraph(f"{one.title} ({one.source}). {one.text}")]
        blocks.append(
            Table(("in code", "file"), tuple((Code(name), source_link(name.partition(":")[0])) for name in one.objects))
        )
    return markdown(blocks)


def assumptions_page() -> str:
    """Every assumption: what it says, how it is decided, who makes it."""
    parts = [markdown([Heading(1, "Assumptions")])]
    for one in assumptions().values():
        users = [id for id, statement in statements().items() if one.id in statement.assumptions]
        place = one.check.__module__
        said = inspect.getdoc(one.check) or ""
        parts += [
            markdown([Heading(2, one.id), paragraph(f"{one.title} ({one.source}).")]),
            f'<div class="theory">\n{html(said, partial(link_from, place))}\n</div>\n',
            f"Assumed by {', '.join(f'[{id}]({id}.md)' for id in users) or 'no statement'}.\n",
        ]
    return "\n".join(parts)


def tolerances_page() -> str:
    """Every tolerance: formula and reason."""
    blocks: list[Block] = [
        Heading(1, "Tolerances"),
        paragraph("By how much a claim may miss, and why by no more; ", Code("theorems tolerances"), " prints these."),
    ]
    for key, one in tolerances().items():
        blocks += [Heading(2, key), paragraph(f"{one.formula}: {one.reason}.")]
    return markdown(blocks)


def derivation_page(derivation: Derivation) -> str:
    """The docstring of a module, and those of its objects that are referred to."""
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
