"""Results of checking statements on many cases; the results can be stored, pickled and merged."""

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
from theorems.core.statement import Statement


@dataclass(frozen=True)
class ClaimSummary:
    """Summary of a claim over many cases, with the numbers of the worst case (closest to failing or most violated).

    The slack of a claim is its left side minus its right side; the claim fails if slack < −tolerance.

    Attributes:
        name, form, why, tolerance: as in :class:`theorems.core.claim.Claim`, at the worst case.
        worst_slack: the slack at the worst case; NaN if the claim was never decided.
        verdict: falsified if the claim was falsified on any case; else inconclusive if it was inconclusive on any; else
            upheld.
        branches: the alternatives that the claim allows and that occurred, each with the number of its cases.
        cases: the number of cases on which the claim was checked.
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
        """Return in words the alternatives that occurred, each with its number of cases; empty if there are none."""
        return ", ".join(f"{branch} in {count}" for branch, count in self.branches)

    @property
    def room(self) -> float:
        """Return worst slack + tolerance: how much more slack the claim can lose; −∞ if one of them is NaN."""
        room = self.worst_slack + self.tolerance
        return -math.inf if math.isnan(room) else room

    @property
    def degenerate(self) -> bool:
        """Return whether both sides were equal, so that the case does not show how near the claim is to failing.

        For one-dimensional keys (d = 1) or two tokens (T = 2) many inequalities are identities, 0 ≥ 0, which hold with
        any tolerance.
        """
        return self.worst_slack == 0

    @property
    def nearness(self) -> str:
        """Return ``slack ≥ −tolerance (name)``, with the worst case's numbers; empty if the claim was never decided."""
        if math.isnan(self.worst_slack):
            return ""
        bound = -self.tolerance if self.tolerance else 0
        return f"{self.worst_slack:.2g} ≥ {bound:.2g} ({self.name})"

    def worse(self, other: ClaimSummary) -> ClaimSummary:
        """Merge two summaries of a claim on disjoint cases; numbers and verdict are those of the worse summary."""

        # Prefer a case with a slack to an undecided case, and a case with unequal sides to one with equal sides.
        def rank(summary: ClaimSummary) -> tuple[bool, bool, bool, float]:
            flags = math.isnan(summary.worst_slack), summary.degenerate
            return summary.verdict is not Verdict.FALSIFIED, *flags, summary.room

        verdict = next(v for v in WORST_FIRST if v in (self.verdict, other.verdict))
        branches = Counter(dict(self.branches)) + Counter(dict(other.branches))
        worst, cases = min(self, other, key=rank), self.cases + other.cases
        return replace(worst, verdict=verdict, branches=tuple(sorted(branches.items())), cases=cases)


def tightest_of(claims: Iterable[ClaimSummary]) -> ClaimSummary | None:
    """Return the claim closest to failing, in units of its tolerance; a falsified claim if there is any.

    Claims that hold with equal sides are returned only if there are no others. Return None without claims.
    """

    def closeness(claim: ClaimSummary) -> tuple[bool, bool, bool, bool, float]:
        exact = claim.tolerance == 0  # with tolerance 0, the distance from failing is not divided by the tolerance
        room = claim.room if exact else claim.room / claim.tolerance
        flags = math.isnan(claim.worst_slack), exact, claim.degenerate
        return claim.verdict is not Verdict.FALSIFIED, *flags, room

    return min(claims, key=closeness, default=None)


def summarise(claim: Claim) -> ClaimSummary:
    """Return the summary of a claim checked on one case."""
    slack = math.nan if claim.undecided else float(claim.slack)
    branches = ((claim.branch, 1),) if claim.branch else ()
    return ClaimSummary(claim.name, claim.form, slack, float(claim.tolerance), claim.why, claim.verdict, branches)


@dataclass(frozen=True)
class Failure:
    """Case on which a statement was falsified or undecided, with what went wrong.

    Attributes:
        verdict: falsified or inconclusive.
        sentence: the falsified claim with its numbers in words, or the message of the error.
        case: the case as JSON text, which ``--data`` reads from a file.
        shrunk: whether Hypothesis has made the case smaller.
        line: where an attention kernel under test is wrong, by how much, and perhaps why; empty without a kernel.
        parts: the verdict, on this case, of each part of the statement: premises, conclusion, the sharper claims of our
            own.
    """

    verdict: Verdict
    sentence: str
    case: str
    shrunk: bool = False
    line: str = ""
    parts: Parts | None = None

    @property
    def order(self) -> tuple[int, bool, int, str]:
        """Return the sorting key of failures: falsified before inconclusive, shrunk before unshrunk, then by size."""
        return WORST_FIRST.index(self.verdict), not self.shrunk, len(self.case), self.case


@dataclass(frozen=True)
class Result:
    """Result of a statement on a number of cases.

    Attributes:
        id, title: the id and title of the statement.
        counts: the number of cases with each verdict.
        claims: summaries of the claims, in the order in which they were first checked.
        reasons: the first reason for each verdict other than upheld.
        failure: a failing case; None if there is none.
        seconds: the wall-clock time of the checks.
        generated: whether the cases came from the statement's own strategy, rather than from user data.
        bad_input: the message of an InvalidInput that the user's data caused; else empty.
        interrupted: whether a signal stopped the run before the statement was finished.
        stopped: the reason why the run stopped before the statement was finished; empty if it was finished.
        touched: the names of the functions of the attention kernel under test that were called.
        not_found: the number of cases that are inconclusive only because a search of the suite found nothing.
        listed: the claims that the statement may make; empty if missing claims are not reported.
        parts: the verdict of each part of the statement, on the cases on which the statement was falsified.
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
        """Return why this cannot be the result of the statement ``id`` on ``total`` cases; an empty text if it can.

        The result may have ``total`` + 1 cases, since an error in drawing a case counts as a case.
        """
        if self.id != id:
            return f"it is the result of {self.id!r}"
        examples = self.examples
        if min(self.counts.values(), default=0) < 0 or not 0 <= self.not_found <= examples:
            return "a number of cases is negative, or larger than the number of all cases"
        if total is not None and examples > total + 1:
            return f"{examples} cases of {total}"
        names = [claim.name for claim in self.claims]
        if len(names) > len({*names}) or not all(1 <= claim.cases <= examples for claim in self.claims):
            return "a claim occurs twice, or was checked on more cases than there are"
        if not 0 <= self.seconds < math.inf:
            return f"it took {self.seconds} s"
        falsified = any(claim.verdict is Verdict.FALSIFIED for claim in self.claims)
        return "a claim is falsified, but no case is" if falsified and not self.counts.get(Verdict.FALSIFIED) else ""

    @property
    def conclusion(self) -> Parts | None:
        """Return the verdict of each part of the statement on the falsified cases; None if no case was falsified."""
        return merge_parts([self.parts, self.failure.parts if self.failure else None])

    @property
    def never_made(self) -> tuple[str, ...]:
        """Return the claims that the statement may make but made on no case; return none if no case was upheld."""
        names = {claim.name for claim in self.claims}
        return tuple(name for name in self.listed if name not in names) if self.counts.get(Verdict.UPHELD) else ()

    @property
    def examples(self) -> int:
        """Return the number of cases."""
        return sum(self.counts.values())

    @property
    def was_tried(self) -> bool:
        """Return whether the kernel under test was called, or the verdict is other than "not-applicable"."""
        return bool(self.touched) or self.verdict is not Verdict.NOT_APPLICABLE

    @property
    def was_begun(self) -> bool:
        """Return whether a case was checked; if none was, True unless the run was stopped before this statement."""
        return self.examples > 0 or not self.stopped

    @property
    def verdict(self) -> Verdict:
        """Return the first of falsified, inconclusive, upheld and not-applicable that applies to the cases.

        A strategy builds cases that satisfy the assumptions. If the statement could be checked on fewer than half of
        these cases, too little was checked, and the verdict is inconclusive rather than upheld or not-applicable. A
        generated case on which a search of the suite found nothing counts as a case to which the statement does not
        apply; on user data such a case is inconclusive.
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
        """Return the verdict, with a note if the part that failed is not the conclusion as the paper states it."""
        # If a kernel under test fails, the paper is not to blame, and no note is needed.
        note = self.conclusion.note if self.conclusion and not self.touched else ""
        return f"{self.verdict} ({note})" if note else str(self.verdict)

    @property
    def too_few(self) -> str:
        """Return a message if fewer than half of the generated cases were checked; else an empty string."""
        checked = self.counts.get(Verdict.UPHELD, 0)
        if not self.generated or not checked or 2 * checked >= self.examples:
            return ""
        return f"the conclusion was checked on only {checked} of {self.examples} examples"

    @property
    def summary(self) -> str:
        """Return the verdict, the number of cases and the time in words, for a line of progress."""
        examples = f"{self.examples} example{'' if self.examples == 1 else 's'}"
        return f"{self.verdict}, {examples}, {self.seconds:.1f} s"

    @property
    def tightest(self) -> ClaimSummary | None:
        """Return the claim closest to failing, see :func:`tightest_of`; None without claims."""
        return tightest_of(self.claims)

    @property
    def reason(self) -> str:
        """Return why some cases were not upheld or not checked; return an empty string if all cases were upheld."""
        parts = []
        for verdict in WORST_FIRST:
            count = self.counts.get(verdict, 0)
            if count and verdict in self.reasons:
                share = f"{count} of {self.examples} examples {verdict}: " if self.examples > 1 else ""
                parts.append(share + self.reasons[verdict])
        if not self.examples and not self.stopped:
            parts.append("there was no case to check")
        if self.too_few:
            parts.append(self.too_few)
        if self.stopped:
            parts.append(f"{self.stopped}, with {self.examples} example{'' if self.examples == 1 else 's'} finished")
        return "; ".join(parts)

    @property
    def complaint(self) -> str:
        """Return the falsified claim with its numbers, or else why some cases were not upheld or not checked."""
        falsified = self.verdict is Verdict.FALSIFIED and self.failure is not None
        return self.failure.sentence if falsified and self.failure else self.reason

    @property
    def decided_claims(self) -> int:
        """Return the number of claims that were decided: upheld or falsified."""
        return sum(claim.verdict is not Verdict.INCONCLUSIVE for claim in self.claims)

    def as_json(self) -> dict[str, Any]:
        """Return the result in the form written by ``--json``."""
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
            **({"conclusion": self.conclusion.as_json()} if self.conclusion else {}),
            **({"diagnosis": self.failure.line} if self.failure and self.failure.line else {}),
        }


def of_outcome(statement: Statement, outcome: Outcome, *, generated: bool) -> Result:
    """Return the result of a statement on one case, given the outcome of checking this case."""
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
        # An error on a generated case, or an error raised by a kernel, is not the user's bad input.
        bad_input=outcome.reason if outcome.error == "InvalidInput" and not (generated or outcome.touched) else "",
        touched=outcome.touched,
        not_found=int(outcome.not_found),
        parts=outcome.parts,
    )


def merge_results(results: Iterable[Result]) -> Result:
    """Merge results of one statement on disjoint sets of cases; for each verdict keep the first reason."""
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
