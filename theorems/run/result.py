"""Results of trying statements on many cases: they can be stored, pickled and merged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from theorems.core.check import Outcome
from theorems.core.claim import WORST_FIRST, Claim, Form, Verdict
from theorems.core.parts import Parts, merge_parts
from theorems.core.relation_check import DIFFERS, SAME_VERDICT
from theorems.core.statement import Statement


def format_value(value: float) -> str:
    """Format a slack or a tolerance for a reader, to three digits; NaN is undecided."""
    return "undecided" if math.isnan(value) else f"{value + 0.0:.3g}"


@dataclass(frozen=True)
class ClaimSummary:
    """Summary of a claim at the case where it was closest to failing (or failed worst).

    Attributes:
        name, form, why, tolerance: as in :class:`theorems.core.claim.Claim`, at that case.
        worst_slack: the slack there; NaN when the claim was never decided.
        verdict: falsified if it ever was, else inconclusive if it ever was, else upheld.
        branches: which of the possibilities that the statement leaves open occurred, and in how many cases.
        cases: on how many cases it was made.
    """

    name: str
    form: Form
    worst_slack: float
    tolerance: float
    why: str
    verdict: Verdict
    branches: tuple[tuple[str, int], ...] = ()
    cases: int = 1

    @property
    def branches_in_words(self) -> str:
        """Return the branches in words; empty if there are none."""
        return ", ".join(f"{branch} in {count}" for branch, count in self.branches)

    @property
    def room(self) -> float:
        """Return how much further the slack may fall, slack + tolerance; −∞ when a number is missing."""
        room = self.worst_slack + self.tolerance
        return -math.inf if math.isnan(room) else room

    @property
    def degenerate(self) -> bool:
        """Return whether both sides were the same number, so that the case tells nothing about nearness to failing.

        Such a case holds whatever is allowed. Where d = 1 or T = 2 many an inequality is an identity, and 0 ≥ 0 is all
        that it says.
        """
        return self.worst_slack == 0

    @property
    def nearness(self) -> str:
        """Return how near to failing it was, ``slack ≥ −tolerance`` and the name; empty when it was never decided."""
        if math.isnan(self.worst_slack):
            return ""
        bound = -self.tolerance if self.tolerance else 0
        return f"{self.worst_slack:.2g} ≥ {bound:.2g} ({self.name})"

    def worse(self, other: ClaimSummary) -> ClaimSummary:
        """Merge two summaries of the same claim on disjoint cases: the worse summary, with the worse verdict."""

        # A number counts before none: where the claim was undecided there is no slack. And a case that tells something
        # before one on which both sides are the same.
        def rank(summary: ClaimSummary) -> tuple[bool, bool, bool, float]:
            flags = math.isnan(summary.worst_slack), summary.degenerate
            return summary.verdict is not Verdict.FALSIFIED, *flags, summary.room

        verdict = next(v for v in WORST_FIRST if v in (self.verdict, other.verdict))
        branches = Counter(dict(self.branches)) + Counter(dict(other.branches))
        worst, cases = min(self, other, key=rank), self.cases + other.cases
        return replace(worst, verdict=verdict, branches=tuple(sorted(branches.items())), cases=cases)


def tightest_of(claims: Iterable[ClaimSummary]) -> ClaimSummary | None:
    """Return the claim closest to failing, in units of its tolerance; a falsified one if there is any.

    Claims on degenerate cases come last.
    """

    def closeness(claim: ClaimSummary) -> tuple[bool, bool, bool, bool, float]:
        exact = claim.tolerance == 0  # decided, not close to anything
        room = claim.room if exact else claim.room / claim.tolerance
        flags = math.isnan(claim.worst_slack), exact, claim.degenerate
        return claim.verdict is not Verdict.FALSIFIED, *flags, room

    return min(claims, key=closeness, default=None)


def summarise(claim: Claim) -> ClaimSummary:
    """Return the summary of a claim at one case."""
    slack = math.nan if claim.undecided else float(claim.slack)
    branches = ((claim.branch, 1),) if claim.branch else ()
    return ClaimSummary(claim.name, claim.form, slack, float(claim.tolerance), claim.why, claim.verdict, branches)


@dataclass(frozen=True)
class Failure:
    """Case on which a statement did not hold, as the text of a JSON file that ``--data`` reads.

    Attributes:
        verdict: falsified or inconclusive.
        sentence: the claim with its numbers, or what broke.
        case: JSON text.
        shrunk: whether a smaller failing case was looked for.
        line: for a capability of an attention kernel: where it is wrong, by how much, perhaps why.
        test: the source of a test function that fails for it.
        no_test: why there is no such test.
        parts: which parts' claims failed on it, and which did not.
    """

    verdict: Verdict
    sentence: str
    case: str
    shrunk: bool = False
    line: str = ""
    test: str = ""
    no_test: str = ""
    parts: Parts | None = None

    @property
    def order(self) -> tuple[int, bool, int, str]:
        """Return the key by which failures are sorted: falsified first, then shrunk ones, then the smaller case."""
        return WORST_FIRST.index(self.verdict), not self.shrunk, len(self.case), self.case


@dataclass(frozen=True)
class Result:
    """Result of a statement on a number of cases.

    Attributes:
        id, title: of the statement.
        counts: number of cases by verdict.
        claims: in the order in which they were first made.
        reasons: the first reason for each verdict other than upheld.
        failure: a case to look at, when there is one.
        seconds: wall-clock time.
        generated: whether the cases came from the statement's own strategy.
        bad_input: the sentence of an InvalidInput that the data caused.
        interrupted: whether a signal stopped it before the end.
        stopped: what stopped it before the end, a signal or something else; empty if nothing did.
        touched: which functions of the attention kernel under test were called; only for a kernel.
        not_found: how many of the inconclusive cases are so only because a search of the suite had no success.
        listed: the claims that the statement may make, where missing claims are reported.
        parts: which parts' claims failed, and which did not, on the cases on which it was falsified.
    """

    id: str
    title: str
    counts: dict[Verdict, int] = field(default_factory=dict)
    claims: tuple[ClaimSummary, ...] = ()
    reasons: dict[Verdict, str] = field(default_factory=dict)
    failure: Failure | None = None
    seconds: float = 0.0
    generated: bool = True
    bad_input: str = ""
    interrupted: bool = False
    stopped: str = ""
    touched: tuple[str, ...] = ()
    not_found: int = 0
    listed: tuple[str, ...] = ()
    parts: Parts | None = None

    def misfit(self, id: str, total: int | None) -> str:
        """Return why this cannot be the result of the unit with that id and so many cases; empty if it can.

        One case more than the unit has is allowed: a strategy that broke down counts as a case.
        """
        if self.id != id:
            return f"it is of {self.id!r}"
        examples = self.examples
        if min(self.counts.values(), default=0) < 0 or not 0 <= self.not_found <= examples:
            return "a number of cases is negative, or larger than all of them"
        if total is not None and examples > total + 1:
            return f"{examples} cases of {total}"
        names = [claim.name for claim in self.claims]
        if len(names) > len({*names}) or not all(1 <= claim.cases <= examples for claim in self.claims):
            return "a claim is there twice, or was made on more cases than were tried"
        if not 0 <= self.seconds < math.inf:
            return f"it took {self.seconds} s"
        falsified = any(claim.verdict is Verdict.FALSIFIED for claim in self.claims)
        return "a claim is falsified, and no case" if falsified and not self.counts.get(Verdict.FALSIFIED) else ""

    @property
    def conclusion(self) -> Parts | None:
        """Return which parts' claims failed and which did not; None where the statement was not falsified.

        The cases that count are those on which it was falsified and the smallest case made of them.
        """
        return merge_parts([self.parts, self.failure.parts if self.failure else None])

    @property
    def never_made(self) -> tuple[str, ...]:
        """Return the claims that the statement may make and never made, where its conclusion was checked at all."""
        names = {claim.name for claim in self.claims}
        return tuple(name for name in self.listed if name not in names) if self.counts.get(Verdict.UPHELD) else ()

    @property
    def examples(self) -> int:
        """Return the number of cases tried."""
        return sum(self.counts.values())

    @property
    def was_tried(self) -> bool:
        """Return whether the kernel under test was called, or the verdict is anything but not-applicable."""
        return bool(self.touched) or self.verdict is not Verdict.NOT_APPLICABLE

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: falsified, inconclusive, upheld or not-applicable, in this order of precedence.

        A strategy builds cases that satisfy the assumptions; if fewer than half of them did, next to nothing was tried,
        and the verdict is inconclusive rather than upheld or not-applicable. Generated cases on which a search of the
        suite's own had no success are counted as cases that do not apply; on somebody's data they are inconclusive.
        """
        if self.counts.get(Verdict.FALSIFIED):
            return Verdict.FALSIFIED
        open_ones = self.counts.get(Verdict.INCONCLUSIVE, 0) - (self.not_found if self.generated else 0)
        if open_ones or self.stopped or self.too_few:
            return Verdict.INCONCLUSIVE
        if self.counts.get(Verdict.UPHELD):
            return Verdict.UPHELD
        return Verdict.INCONCLUSIVE if self.generated else Verdict.NOT_APPLICABLE

    @property
    def verdict_in_words(self) -> str:
        """Return the verdict, with the part that failed if it was not the conclusion as its source states it."""
        # Of an attention kernel nobody blames the paper.
        note = self.conclusion.note if self.conclusion and not self.touched else ""
        return f"{self.verdict} ({note})" if note else str(self.verdict)

    @property
    def too_few(self) -> str:
        """Return a sentence if the conclusion was checked on fewer than half of the generated cases; else empty."""
        checked = self.counts.get(Verdict.UPHELD, 0)
        if not self.generated or not checked or 2 * checked >= self.examples:
            return ""
        return f"the conclusion was checked on {checked} of {self.examples} examples only"

    @property
    def summary(self) -> str:
        """Return verdict, number of cases and time, for a line of progress."""
        examples = f"{self.examples} example{'' if self.examples == 1 else 's'}"
        return f"{self.verdict}, {examples}, {self.seconds:.1f} s"

    @property
    def tightest(self) -> ClaimSummary | None:
        """Return the claim closest to failing, as :func:`tightest_of` finds it."""
        return tightest_of(self.claims)

    @property
    def reason(self) -> str:
        """Return why the verdict is not a plain upheld; empty when it is."""
        parts = []
        for verdict in WORST_FIRST:
            count = self.counts.get(verdict, 0)
            if count and verdict in self.reasons:
                share = f"{count} of {self.examples} examples {verdict}: " if self.examples > 1 else ""
                parts.append(share + self.reasons[verdict])
        if not self.examples and not self.stopped:
            parts.append("no case to try it on")
        if self.too_few:
            parts.append(self.too_few)
        if self.stopped:
            parts.append(f"{self.stopped}, with {self.examples} example{'' if self.examples == 1 else 's'} finished")
        return "; ".join(parts)

    @property
    def complaint(self) -> str:
        """Return the claim that failed, with its numbers; or why the verdict is not a plain upheld."""
        falsified = self.verdict is Verdict.FALSIFIED and self.failure is not None
        return self.failure.sentence if falsified and self.failure else self.reason

    @property
    def relations(self) -> dict[str, dict[str, int]]:
        """Return counts of cases by relation: cases checked again, cases that differed, and searches without success.

        ``cases`` counts the cases on which the statement was checked again, ``differing`` those on which it said
        something else, and ``not_found`` those on which a search of the suite's own had success on only one of the two.
        """
        counts: dict[str, dict[str, int]] = {}
        for claim in self.claims:
            for branch, count in claim.branches if claim.name == SAME_VERDICT else ():
                name, _, end = branch.partition(" ")
                counts_of_relation = counts.setdefault(name, {"cases": 0, "differing": 0, "not_found": 0})
                counts_of_relation["cases"] += count
                if end:
                    counts_of_relation["differing" if end == DIFFERS else "not_found"] += count
        return counts

    @property
    def decided_claims(self) -> int:
        """Return how many claims were checked and decided."""
        return sum(claim.verdict is not Verdict.INCONCLUSIVE for claim in self.claims)

    def as_json(self) -> dict[str, Any]:
        """Return the result for ``--json``."""
        return {
            "id": self.id,
            "title": self.title,
            "verdict": str(self.verdict),
            "examples": self.examples,
            "counts": {str(verdict): self.counts.get(verdict, 0) for verdict in Verdict},
            "seconds": round(self.seconds, 3),
            "claims": [
                {
                    "name": claim.name,
                    "form": str(claim.form),
                    "verdict": str(claim.verdict),
                    "worst_slack": None if math.isnan(claim.worst_slack) else claim.worst_slack,
                    "tolerance": None if math.isnan(claim.tolerance) else claim.tolerance,
                    "why": claim.why,
                    "cases": claim.cases,
                    **({"branches": dict(claim.branches)} if claim.branches else {}),
                }
                for claim in self.claims
            ],
            "not_found": self.not_found,
            "never_made": list(self.never_made),
            "reason": self.reason,
            **({"relations": self.relations} if self.relations else {}),
            **({"conclusion": self.conclusion.as_json()} if self.conclusion else {}),
            **({"diagnosis": self.failure.line} if self.failure and self.failure.line else {}),
            **({"no_test": self.failure.no_test} if self.failure and self.failure.no_test else {}),
        }


def of_outcome(statement: Statement, outcome: Outcome, *, generated: bool) -> Result:
    """Return the result of one case."""
    claims: dict[str, ClaimSummary] = {}
    for claim in map(summarise, outcome.claims):
        claims[claim.name] = replace(claim.worse(claims[claim.name]), cases=1) if claim.name in claims else claim
    reasons = {outcome.verdict: outcome.reason} if outcome.reason else {}
    return Result(
        statement.id,
        statement.title,
        {outcome.verdict: 1},
        tuple(claims.values()),
        reasons,
        generated=generated,
        # Generated cases and what a kernel makes of its arguments are nobody's bad input.
        bad_input=outcome.reason if outcome.error == "InvalidInput" and not (generated or outcome.touched) else "",
        touched=outcome.touched,
        not_found=int(outcome.not_found),
        parts=outcome.parts,
    )


def merge_results(results: Iterable[Result]) -> Result:
    """Merge results of one statement on disjoint sets of cases; the first reason of each kind is kept."""
    return reduce(_merge_two, results)


def _merge_two(a: Result, b: Result) -> Result:
    claims = {claim.name: claim for claim in a.claims}
    for claim in b.claims:
        claims[claim.name] = claims[claim.name].worse(claim) if claim.name in claims else claim
    failures = [failure for failure in (a.failure, b.failure) if failure]
    return replace(
        a,
        counts={v: a.counts.get(v, 0) + b.counts.get(v, 0) for v in Verdict if v in a.counts or v in b.counts},
        claims=tuple(claims.values()),
        reasons={**b.reasons, **a.reasons},
        failure=min(failures, key=lambda failure: failure.order, default=None),
        seconds=a.seconds + b.seconds,
        generated=a.generated and b.generated,
        bad_input=a.bad_input or b.bad_input,
        interrupted=a.interrupted or b.interrupted,
        stopped=a.stopped or b.stopped,
        touched=tuple(sorted({*a.touched, *b.touched})),
        not_found=a.not_found + b.not_found,
        parts=merge_parts([a.parts, b.parts]),
    )
