"""What a report says, as blocks. Nothing in it depends on the clock: the same run makes the same document."""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from theorems.core.claim import Form, Verdict
from theorems.core.parts import Parts
from theorems.core.tolerances import Tolerance
from theorems.core.version import version_of
from theorems.faults.power.table import short
from theorems.hunting.table import Status
from theorems.report.document import (
    Block,
    Code,
    Folded,
    Heading,
    Heat,
    HeatMap,
    Link,
    Listing,
    Reference,
    Share,
    Table,
    Text,
    paragraph,
)
from theorems.report.evidence import ASSUMPTIONS_DOCUMENT, HuntRecord, Power
from theorems.report.limits import LIMITS
from theorems.report.pictures import headroom, limit_picture, share_of_tolerance
from theorems.report.record import RunRecord, StatementRecord
from theorems.run.description import Heading as StatementHeading
from theorems.run.findings import NamedFinding
from theorems.run.registry.suite import assumptions, tolerances
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
"""What is recorded of a statement without an assumption, as a letter and a shade."""


@dataclass(frozen=True)
class Contents:
    """All that a report is made of.

    Attributes:
        run: what verify found.
        known: the headings of the statements as this version has them, by id.
        hunted: what is recorded of each without its assumptions; ``None`` if that is not at hand.
        power: which planted faults are caught; ``None`` if that is not at hand.
        failures: cases on which a statement failed, by id; of a run of this command only.
        findings: which assumptions hold on user data; of a run of this command only.
        libraries: versions; of a run of this command only.
        all_statements: whether the run is of every statement of the suite.
        own_tolerances: those that files of statements declare; of a run of this command only.
    """

    run: RunRecord
    known: Mapping[str, StatementHeading]
    hunted: Sequence[HuntRecord] | None
    power: Power | None
    failures: Mapping[str, Failure] = field(default_factory=dict)
    findings: Sequence[NamedFinding] = ()
    libraries: Sequence[tuple[str, str]] = ()
    all_statements: bool = False
    own_tolerances: Mapping[str, Tolerance] = field(default_factory=dict)


def installed_versions() -> list[tuple[str, str]]:
    """Python and the libraries that numbers come from, with their versions."""
    return [("python", platform.python_version()), *((name, version_of(name)) for name in LIBRARIES)]


def blocks(contents: Contents) -> list[Block]:
    """The document."""
    run = contents.run
    return [
        Heading(1, "The theorems of Max-Margin Token Selection in Attention Mechanism: a verification report"),
        paragraph(_sentence(run), lead=True),
        *_what_was_run(contents),
        *(
            [headroom(run.statements)]
            if any(share_of_tolerance(c) is not None for one in run.statements for c in one.claims)
            else ()
        ),
        Heading(2, "What was verified"),
        _summary(run),
        _counts(run),
        *(_findings(contents) if contents.findings else ()),
        *_limits(run),
        Heading(2, "Claims"),
        paragraph(
            "The worst slack of each claim over all examples: a claim holds when slack ≥ −tolerance. Forms: exact"
            " (decided over the rationals, or an identity), effective (an inequality with explicit constants), limit"
            " (followed to where it is visible), sharp (the next-order term, predicted). Every"
            " tolerance has its reason below."
        ),
        *(block for one in run.statements for block in _statement(one, contents)),
        Heading(2, "Tolerances"),
        _tolerances(contents),
        *(_evidence(contents) if any(not one.file for one in contents.known.values()) else ()),
    ]


def _evidence(contents: Contents) -> Iterator[Block]:
    """Of the suite's own statements; nothing is recorded of somebody's own."""
    yield Heading(2, "Why every assumption is there")
    yield from _assumptions(contents.hunted)
    yield Heading(2, "The power of the suite")
    yield from _power(contents.power, contents.known)


def _sentence(run: RunRecord) -> str:
    """The verdict in plain words."""
    by_verdict = {v: [one.id for one in run.statements if one.verdict is v] for v in Verdict}
    where = f"on the data {run.data}" if run.data else f"on {run.examples} generated cases each"
    claims = sum(len(one.claims) for one in run.statements)
    total = len(run.statements)
    if len(by_verdict[Verdict.UPHELD]) == total:
        who = f"All {total} statements are" if total > 1 else f"The statement {run.statements[0].id} is"
        return f"{who} upheld {where}: none of the {claims} claims is violated by more than its tolerance."
    said = []
    for verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE, Verdict.UPHELD):
        ids = by_verdict[verdict]
        if ids:
            names = f" ({', '.join(ids)})" if verdict is not Verdict.UPHELD else ""
            said.append(f"{len(ids)} {'is' if len(ids) == 1 else 'are'} {verdict}{names}")
    of = f"Of {total} statements" if total > 1 else "Of the one statement"
    return f"{of}, {where}, {', '.join(said)}.{_whose(run)}"


def _whose(run: RunRecord) -> str:
    """Which of the falsified statements were not falsified in the conclusion that their source states."""
    sentences = (
        (Verdict.UPHELD, "a sharper form of the suite's own failed, and the conclusion of its source is upheld"),
        (Verdict.INCONCLUSIVE, "what failed is not the conclusion of its source, which is not decided on these cases"),
        (None, "what failed is a claim that no source states"),
    )
    said = ""
    for stated, sentence in sentences:
        ids = [one.id for one in run.statements if one.conclusion is not None and one.conclusion.stated is stated]
        said += f" Of {', '.join(ids)}, {sentence}." if ids else ""
    return said


def _what_was_run(contents: Contents) -> Iterator[Block]:
    run = contents.run
    options = f"--data {shlex.quote(run.data)}" if run.data else f"--examples {run.examples}"
    ids = "" if contents.all_statements else "".join(f" {shlex.quote(one.id)}" for one in run.statements)
    command = Code(f"theorems verify{ids} {options} --seed {run.seed}")
    yield paragraph("Same seed, same cases, same verdicts: ", command, " runs it again.")
    data = f"the data {run.data}" if run.data else f"{run.examples} generated cases per statement"
    rows: list[tuple[str, str]] = [
        ("checked on", data),
        ("seed", str(run.seed)),
        ("implementation under test", run.implementation),
        ("max-margin-theorems", run.version),
        *contents.libraries,
    ]
    yield Folded("What it was run with", (Table(("", ""), tuple(rows)),))


def _summary(run: RunRecord) -> Table:
    rows = []
    for one in run.statements:
        claim = one.tightest
        slack = "" if claim is None or math.isnan(claim.worst_slack) else f"{_inequality(claim)} ({claim.name})"
        rows.append((Reference(one.id), one.verdict_in_words, one.title, str(one.examples), slack))
    return Table(("statement", "verdict", "says", "examples", "worst slack"), tuple(rows))


def _inequality(claim: ClaimSummary) -> str:
    return f"{claim.worst_slack + 0.0:.2g} ≥ {-claim.tolerance if claim.tolerance else 0:.2g}"


def _counts(run: RunRecord) -> Block:
    verdicts = [one.verdict for one in run.statements]
    rows = tuple((str(verdict), str(verdicts.count(verdict)), MEANING[verdict]) for verdict in Verdict)
    return Table(("verdict", "statements", "means"), rows)


def _findings(contents: Contents) -> Iterator[Block]:
    yield Heading(2, "Assumptions on these data")
    rows = tuple((Code(id), title, HOLDS[holds][0], evidence) for id, title, holds, evidence, _ in contents.findings)
    yield Table(("assumption", "says", "", "because"), rows)


def _limits(run: RunRecord) -> Iterator[Block]:
    """Of statements that were verified on generated cases; a report on somebody's data has no pictures of others."""
    shown = [] if run.data else [one for one in run.statements if one.id in LIMITS]
    if shown:
        yield Heading(2, "Limits, one case each")
        yield paragraph(
            "On the paper's own data: left, the curve of prompts near the origin, in the plane of its limit; right, how"
            " far it is from the line of the limit as its norm grows. Where that distance stays bounded, the direction"
            " tends to the limit."
        )
    for one in shown:
        yield limit_picture(f"{one.id}, {one.title}", LIMITS[one.id]())


def _statement(one: StatementRecord, contents: Contents) -> Iterator[Block]:
    yield Heading(3, f"{one.id}: {one.title}" if one.title else one.id, one.id)
    known = contents.known.get(one.id)
    if known is not None:
        yield paragraph(f"Source: {known.source}. Assumes: {', '.join(known.assumptions) or 'nothing'}.")
    yield paragraph(
        f"Verdict: {one.verdict_in_words}" + (f" ({one.counts_in_words})" if one.counts_in_words else "") + "."
    )
    if one.reason:
        yield paragraph(one.reason)
    if one.conclusion is not None:
        yield Table(("part or form", "verdict where it was falsified"), _parts(one.conclusion))
    if one.claims:
        yield Table(
            ("claim", "form", "verdict", "examples", "worst slack", "tolerance", "of it used", "because of"),
            tuple(map(_claim, one.claims)),
        )
    if one.never_made:
        names = [part for name in one.never_made for part in (", ", Code(name))][1:]
        yield paragraph(f"Never made on these {one.examples} examples: ", *names, ".")
    if one.not_found:
        yield paragraph(
            f"On {one.not_found} of {one.examples} examples a search of the suite's own found nothing to judge by:"
            " they are inconclusive, and say nothing for or against the statement."
        )
    for claim in one.claims:
        if claim.branches:
            yield paragraph(Code(claim.name), f": {claim.branches_in_words} of {one.examples}.")
    failure = contents.failures.get(one.id)
    if failure is not None:
        kind = "The smallest failing case found" if failure.shrunk else "A case on which this happened"
        yield paragraph(
            f"{kind}; saved as case.json it is checked again by ",
            Code(f"theorems verify {one.id} --data case.json"),
            ".",
        )
        yield Listing(failure.case)


def _parts(conclusion: Parts) -> tuple[tuple[Text, ...], ...]:
    """What the source states, premises, sharper forms of the suite's own; then the claims by their form."""
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
    """Those that the claims name, in the order of the suite's table; then those of statements of the user's."""
    used = {claim.why for one in contents.run.statements for claim in one.claims}
    found: dict[str, Tolerance] = {key: one for key, one in tolerances().items() if key in used}
    found |= {key: one for key, one in contents.own_tolerances.items() if key in used}
    rows = [(Code(key), one.formula, one.reason) for key, one in found.items()]
    rows += [(Code(key), "", "not a tolerance of this version of the suite") for key in sorted(used - set(found))]
    return Table(("tolerance", "formula", "reason"), tuple(rows))


def _assumptions(hunted: Sequence[HuntRecord] | None) -> Iterator[Block]:
    where = Link(str(ASSUMPTIONS_DOCUMENT), str(ASSUMPTIONS_DOCUMENT))
    if hunted is None:
        yield paragraph("The counterexamples are not part of an installed package; see ", where, " of the repository.")
        return
    yield paragraph(
        "What is recorded in the folder counterexamples of each statement without one of its assumptions. R: refuted by"
        " a certified counterexample; 0: none found; S: needed to state it; ?: not hunted. ",
        Code("theorems counterexamples"),
        " replays them; ",
        where,
        " says what fails.",
    )
    dropped = [one for one in hunted if one.by_status]
    found = {(one.id, without): s for one in dropped for s, names in one.by_status.items() for without in names}
    rows = []
    for without in assumptions():
        signs = [SIGNS[found[one.id, without]] if (one.id, without) in found else None for one in dropped]
        if any(signs):
            rows.append((Code(without), tuple(None if sign is None else Heat(*sign) for sign in signs)))
    yield HeatMap(("without", *(short(one.id) for one in dropped)), tuple(rows))


def _power(power: Power | None, known: Iterable[str]) -> Iterator[Block]:
    if power is None:
        yield paragraph("No table of planted faults is at hand; ", Code("theorems power"), " prints it, in an hour.")
        return
    yield paragraph(
        f"{power.caught} of {power.faults} planted faults are caught by some statement, as ",
        Code("theorems power"),
        " printed when records were last made.",
    )
    yield paragraph(
        "Of the faults of a kind that a statement was tried on and that touch it, how many it catches; empty: none"
        " touches it."
    )
    ids = [id for id in known if any(id in counts for counts in power.by_kind.values())]
    rows = tuple(
        (kind, tuple(_share_caught(*counts[id]) if id in counts else None for id in ids))
        for kind, counts in power.by_kind.items()
        if counts
    )
    yield HeatMap(("faults in", *map(short, ids)), rows)


def _share_caught(caught: int, faced: int) -> Heat:
    return Heat(f"{caught}/{faced}", math.ceil(4 * caught / faced))
