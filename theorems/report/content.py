"""Content of a report as blocks, such as headings and tables; equal runs give equal content, whatever the clock."""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from max_margin_theorems.papers import papers
from theorems.core.claim import Form, Verdict
from theorems.core.parts import Parts
from theorems.core.tolerances import Tolerance
from theorems.core.version import version_of
from theorems.counterexamples.assumption_table import Status
from theorems.report.document import (
    Block,
    Code,
    Folded,
    Heading,
    Heat,
    HeatMap,
    Listing,
    Reference,
    Share,
    Table,
    Text,
    paragraph,
)
from theorems.report.evidence import HuntRecord
from theorems.report.pictures import headroom, share_of_tolerance
from theorems.report.record import RunRecord, StatementRecord
from theorems.run.description import Heading as StatementHeading
from theorems.run.findings import NamedFinding
from theorems.run.registry.suite import assumptions, statements, tolerances
from theorems.run.result import ClaimSummary, Failure, format_value
from theorems.run.tables import HOLDS

LIBRARIES = ("numpy", "scipy", "torch", "hypothesis", "python-flint")
MEANING = {
    Verdict.UPHELD: "every claim holds",
    Verdict.FALSIFIED: "a claim is violated by more than its tolerance",
    Verdict.NOT_APPLICABLE: "an assumption does not hold, or could not be established; never a pass",
    Verdict.INCONCLUSIVE: "a claim could not be decided; never a pass",
}
SIGNS = {Status.REFUTED: ("R", 4), Status.NONE_FOUND: ("0", 2), Status.NEEDED: ("S", 1), Status.HOLE: ("?", 0)}
"""For each status of the search for a counterexample to a statement without an assumption: the letter and the shade in
the report's map."""


@dataclass(frozen=True)
class Contents:
    """The data from which a report is made.

    Attributes:
        run: the results of verify.
        known: the headings (source, assumptions, …) of the run's statements that this version of the suite has, by id.
        hunted: for each statement, what hunts recorded about it without each of its assumptions; None if there are no
            records.
        failures: for each statement that failed, by id, a case on which it failed; only for ``verify --report``.
        findings: the findings whether each assumption holds on the user data; only for ``verify --report``.
        libraries: the names and versions of the libraries in use; only for ``verify --report``.
        all_statements: whether the run verified every statement of the suite.
        own_tolerances: the tolerances that users' files declare, by key; only for ``verify --report``.
    """

    run: RunRecord
    known: Mapping[str, StatementHeading]
    hunted: Sequence[HuntRecord] | None
    failures: Mapping[str, Failure] = field(default_factory=dict)
    findings: Sequence[NamedFinding] = ()
    libraries: Sequence[tuple[str, str]] = ()
    all_statements: bool = False
    own_tolerances: Mapping[str, Tolerance] = field(default_factory=dict)


def installed_versions() -> list[tuple[str, str]]:
    """Return the names and versions of Python and of the libraries on which results depend."""
    return [("python", platform.python_version()), *((name, version_of(name)) for name in LIBRARIES)]


def blocks(contents: Contents) -> list[Block]:
    """Return the blocks (headings, paragraphs, tables, …) of the document, in order."""
    run = contents.run
    return [
        Heading(1, "The theorems of Max-Margin Token Selection in Attention Mechanism: a verification report"),
        paragraph(_sentence(run), lead=True),
        *_what_was_run(contents),
        *(
            [headroom(run.statements)]
            if any(share_of_tolerance(c) is not None for statement in run.statements for c in statement.claims)
            else ()
        ),
        Heading(2, "What was verified"),
        _summary(run),
        _counts(run),
        *(_findings(contents) if contents.findings else ()),
        Heading(2, "Claims"),
        paragraph(
            "The tables give the worst slack of each claim over all examples; a claim holds if slack ≥ −tolerance."
            " Forms: exact (decided over the rationals, or an identity), effective (an inequality with explicit"
            " constants), limit (followed until the limit is visible), sharp (the next-order term, predicted). The"
            " reason of every tolerance is given below."
        ),
        *(block for statement in run.statements for block in _statement(statement, contents)),
        Heading(2, "Tolerances"),
        _tolerances(contents),
        *(_evidence(contents) if any(not statement.file for statement in contents.known.values()) else ()),
    ]


def _evidence(contents: Contents) -> Iterator[Block]:
    """Yield the recorded evidence about the suite's statements.

    The evidence consists of counterexamples to statements without an assumption.
    """
    yield Heading(2, "Why each assumption is needed")
    yield from _assumptions(contents.hunted)


def _sentence(run: RunRecord) -> str:
    """Return the sentence that states the verdict on the whole run."""
    by_verdict = {v: [statement.id for statement in run.statements if statement.verdict is v] for v in Verdict}
    where = f"on the data {run.data}" if run.data else f"on {run.examples} generated cases each"
    claims = sum(len(statement.claims) for statement in run.statements)
    total = len(run.statements)
    if len(by_verdict[Verdict.UPHELD]) == total:
        subject_upheld = f"All {total} statements are" if total > 1 else f"The statement {run.statements[0].id} is"
        return f"{subject_upheld} upheld {where}: none of the {claims} claims is violated by more than its tolerance."
    counts = []
    for verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE, Verdict.UPHELD):
        ids = by_verdict[verdict]
        if ids:
            names = f" ({', '.join(ids)})" if verdict is not Verdict.UPHELD else ""
            counts.append(f"{len(ids)} {'is' if len(ids) == 1 else 'are'} {verdict}{names}")
    subject = f"Of {total} statements" if total > 1 else "Of the one statement"
    return f"{subject}, {where}, {', '.join(counts)}.{_whose(run)}"


def _whose(run: RunRecord) -> str:
    """Return sentences on falsified statements whose failing claim is not the conclusion as the paper states it."""
    sentences = (
        (Verdict.UPHELD, "only a sharper form of this suite failed; the source's own conclusion is upheld"),
        (
            Verdict.INCONCLUSIVE,
            "the failing claim is not the source's own conclusion, which is not decided on these cases",
        ),
        (None, "the failing claim is stated by no source"),
    )
    text = ""
    for conclusion_verdict, sentence in sentences:
        ids = [
            statement.id
            for statement in run.statements
            if statement.conclusion is not None and statement.conclusion.stated is conclusion_verdict
        ]
        text += f" For {', '.join(ids)}, {sentence}." if ids else ""
    return text


def _what_was_run(contents: Contents) -> Iterator[Block]:
    run = contents.run
    options = f"--data {shlex.quote(run.data)}" if run.data else f"--examples {run.examples}"
    ids = "" if contents.all_statements else "".join(f" {shlex.quote(statement.id)}" for statement in run.statements)
    command = Code(f"theorems verify{ids} {options} --seed {run.seed}")
    yield paragraph("To repeat this run, with the same cases and verdicts: ", command, ".")
    data = f"the data {run.data}" if run.data else f"{run.examples} generated cases per statement"
    rows: list[tuple[str, str]] = [
        ("checked on", data),
        ("seed", str(run.seed)),
        ("implementation under test", run.implementation),
        ("max-margin-theorems", run.version),
        *contents.libraries,
    ]
    yield Folded("Versions and settings", (Table(("", ""), tuple(rows)),))


def _summary(run: RunRecord) -> Table:
    rows = []
    for statement in run.statements:
        claim = statement.tightest
        slack = "" if claim is None or math.isnan(claim.worst_slack) else f"{_inequality(claim)} ({claim.name})"
        rows.append(
            (Reference(statement.id), statement.verdict_in_words, statement.title, str(statement.examples), slack)
        )
    return Table(("statement", "verdict", "says", "examples", "worst slack"), tuple(rows))


def _inequality(claim: ClaimSummary) -> str:
    return f"{claim.worst_slack + 0.0:.2g} ≥ {-claim.tolerance if claim.tolerance else 0:.2g}"


def _counts(run: RunRecord) -> Block:
    verdicts = [statement.verdict for statement in run.statements]
    rows = tuple((str(verdict), str(verdicts.count(verdict)), MEANING[verdict]) for verdict in Verdict)
    return Table(("verdict", "statements", "means"), rows)


def _findings(contents: Contents) -> Iterator[Block]:
    yield Heading(2, "Assumptions on these data")
    rows = tuple((Code(id), title, HOLDS[holds][0], evidence) for id, title, holds, evidence, _ in contents.findings)
    yield Table(("assumption", "says", "", "because"), rows)


def _statement(statement: StatementRecord, contents: Contents) -> Iterator[Block]:
    yield Heading(3, f"{statement.id}: {statement.title}" if statement.title else statement.id, statement.id)
    heading = contents.known.get(statement.id)
    if heading is not None:
        yield paragraph(f"Source: {heading.source}. Assumes: {', '.join(heading.assumptions) or 'nothing'}.")
    yield paragraph(
        f"Verdict: {statement.verdict_in_words}"
        + (f" ({statement.counts_in_words})" if statement.counts_in_words else "")
        + "."
    )
    if statement.reason:
        yield paragraph(statement.reason)
    if statement.conclusion is not None:
        yield Table(("part or form", "verdict where it was falsified"), _parts(statement.conclusion))
    if statement.claims:
        yield Table(
            ("claim", "form", "verdict", "examples", "worst slack", "tolerance", "share used", "reason"),
            tuple(map(_claim, statement.claims)),
        )
    if statement.never_made:
        names = [part for name in statement.never_made for part in (", ", Code(name))][1:]
        yield paragraph(f"Never made on these {statement.examples} examples: ", *names, ".")
    if statement.not_found:
        yield paragraph(
            f"On {statement.not_found} of {statement.examples} examples a search by this suite failed."
            " These examples are inconclusive: they speak neither for nor against the statement."
        )
    for claim in statement.claims:
        if claim.branches:
            yield paragraph(Code(claim.name), f": {claim.branches_in_words} of {statement.examples}.")
    failure = contents.failures.get(statement.id)
    if failure is not None:
        kind = "The smallest failing case found" if failure.shrunk else "A failing case"
        yield paragraph(
            f"{kind}. Save it as case.json and check it again with ",
            Code(f"theorems verify {statement.id} --data case.json"),
            ".",
        )
        yield Listing(failure.case)


def _parts(conclusion: Parts) -> tuple[tuple[Text, ...], ...]:
    """Return (name, verdict) for each part of a falsified statement and for each form of claims.

    The parts are the conclusion, the premises and the sharper claims.
    """
    parts = (
        ("the conclusion as its source states it", conclusion.stated),
        ("premises", conclusion.premises),
        ("sharper forms", conclusion.sharper),
        *((f"{form} claims", conclusion.forms.get(form)) for form in Form),
    )
    return tuple((name, str(verdict)) for name, verdict in parts if verdict is not None)


def _claim(claim: ClaimSummary) -> tuple[Text, ...]:
    slack, tolerance = format_value(claim.worst_slack), format_value(claim.tolerance)
    share = share_of_tolerance(claim)
    bar = "" if share is None else Share(share)
    return (Code(claim.name), claim.form, str(claim.verdict), str(claim.cases), slack, tolerance, bar, Code(claim.why))


def _tolerances(contents: Contents) -> Table:
    """Return a table of the tolerances that the claims use: first the suite's, then those that users' files declare."""
    keys = {claim.why for statement in contents.run.statements for claim in statement.claims}
    by_key: dict[str, Tolerance] = {key: tolerance for key, tolerance in tolerances().items() if key in keys}
    by_key |= {key: tolerance for key, tolerance in contents.own_tolerances.items() if key in keys}
    rows = [(Code(key), tolerance.formula, tolerance.reason) for key, tolerance in by_key.items()]
    rows += [(Code(key), "", "not a tolerance of this version of the suite") for key in sorted(keys - set(by_key))]
    return Table(("tolerance", "formula", "reason"), tuple(rows))


def _assumptions(hunted: Sequence[HuntRecord] | None) -> Iterator[Block]:
    if hunted is None:
        yield paragraph("There is no folder of counterexamples beside this package; the repository has it.")
        return
    yield paragraph(
        "Each statement without one of its assumptions, as recorded in the folder counterexamples. R: refuted by"
        " a certified counterexample; 0: none found; S: needed to state it; ?: not hunted. ",
        Code("theorems list counterexamples"),
        " replays them and lists the claims that fail.",
    )
    dropped = [record for record in hunted if record.by_status]
    statuses = {
        (record.id, without): s for record in dropped for s, names in record.by_status.items() for without in names
    }
    rows = []
    for without in assumptions():
        signs = [
            SIGNS[statuses[record.id, without]] if (record.id, without) in statuses else None for record in dropped
        ]
        if any(signs):
            rows.append((Code(without), tuple(None if sign is None else Heat(*sign) for sign in signs)))
    yield HeatMap(("without", *(short(record.id) for record in dropped)), tuple(rows))


def short(id: str) -> str:
    """Return a short heading: T2 for ``theorem-2``, L12 for ``lemma-12``, initials for other ids.

    Initials are those of the id's words, without the paper's prefix. If two statements have the same initials, more
    letters of the last word are added for the later one.
    """
    return _headings().get(id) or _initials(id)


@cache
def _headings() -> dict[str, str]:
    headings: dict[str, str] = {}
    for id in statements():
        last = id.rpartition("-")[2]
        longer = (_initials(id) + last[1:k] for k in range(1, len(last) + 1))
        headings[id] = next((heading for heading in longer if heading not in headings.values()), id)
    return headings


def _initials(id: str) -> str:
    kind, _, rest = id.partition("-")
    if rest.isdigit():
        return kind[0].upper() + rest
    prefix = next((paper.prefix for paper in papers() if paper.prefix and id.startswith(paper.prefix)), "")
    return "".join(word[0] for word in id.removeprefix(prefix).split("-")).upper()
