"""The check that a case is a counterexample: assumptions decided exactly, a claim violated far beyond its tolerance."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

from generators.finding import Finding
from generators.subject import Subject
from reference_attention.errors import InvalidInput
from theorems.core.check import claims_of, line_in
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE
from theorems.without.weakening import Weakened

FAR = 100.0
"""Multiple of the tolerance that a violation must exceed to count, so that rounding cannot be its cause."""


@dataclass(frozen=True)
class CaseCheck:
    """The outcome of the check on one case.

    Attributes:
        claims: the claims that the conclusion made; empty if the conclusion was not run, because the case was ruled out
            before.
        violated: the falsified claim that is furthest beyond its tolerance, if its violation exceeds :data:`FAR`
            tolerances.
        kept: for every assumption that must hold and was checked, its id and the finding (whether it holds, and why).
        dropped: the finding on the assumption left out.
        refusal: why the case is not a counterexample; empty if it is one.
        undecided: whether the case is refused only because something could not be decided.
        score: the measure of violation that the search maximises; −inf if it was not computed.
        met: whether the conclusion was run, which needs the omitted assumption to fail and all others to hold.
    """

    claims: tuple[Claim, ...] = ()
    violated: Claim | None = None
    kept: tuple[tuple[str, Finding], ...] = ()
    dropped: Finding = field(default=Finding(None, "not checked"))
    refusal: str = ""
    undecided: bool = False
    score: float = -math.inf
    met: bool = False

    @property
    def is_counterexample(self) -> bool:
        """Return whether kept assumptions hold, the assumption left out fails, and a claim is violated far enough."""
        return not self.refusal


def examine(weakened: Weakened, case: Subject, *, guided: bool = True, claim: str = "") -> CaseCheck:
    """Examine whether a case is a counterexample.

    Args:
        weakened: the statement to be refuted.
        case: the case, with keys of any scale.
        guided: whether to refuse the case at once if ``weakened.violation``, a cheap measure of how far the conclusion
            fails, is not positive.
        claim: the name of the only claim whose violation counts; any if empty.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of NaN, but a claim with NaN is undecided anyway
        try:
            return _examine(weakened, case.normalise(), guided, claim)
        except InvalidInput as error:
            return CaseCheck(refusal=str(error), undecided=True)
        except (Exception, SystemExit) as error:
            return CaseCheck(refusal=_breakdown(weakened, error, "an assumption"), undecided=True)


def in_own_units(weakened: Weakened, case: Subject, examined: CaseCheck) -> CaseCheck:
    """Examine a counterexample again without normalising its keys, so that claims report numbers in its own units.

    If rounding in these units hides the violation, ``examined`` is returned.
    """
    if examined.violated is None or case.normalise() is case:
        return examined
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            again = _examine(weakened, case, False, examined.violated.name)
        except (Exception, SystemExit):
            return examined
    return again if again.is_counterexample else examined


def _breakdown(weakened: Weakened, error: BaseException, place: str = "the conclusion") -> str:
    """Describe an exception in a sentence; for a statement in a user's file, the sentence names file and line."""
    file = weakened.statement.file
    line = line_in(file, error)
    where = f" in {file}, line {line}" if line else ""
    return f"{place} raised {type(error).__name__}{where}: {' '.join(str(error).split())}"


def _examine(weakened: Weakened, case: Subject, guided: bool, claim: str) -> CaseCheck:
    score = -math.inf
    if guided and weakened.violation is not None:
        score = _number(weakened.violation(case))
        if not score > 0:
            return CaseCheck(refusal="the measure of violation is not positive", score=score)
    dropped = weakened.fails(case)
    if dropped.holds is not False:
        why = f"{weakened.without} holds here ({dropped.evidence})"
        return CaseCheck(dropped=dropped, refusal=why, undecided=dropped.holds is None, score=score)
    findings: list[tuple[str, Finding]] = []
    for id in weakened.keeps:
        finding = weakened.statement.assumption(id).check(case)
        findings.append((id, finding))
        if finding.holds is not True:
            word = "fails" if finding.holds is False else "is not established"
            why = f"{id} {word} ({finding.evidence})"
            return CaseCheck((), None, tuple(findings), dropped, why, finding.holds is None, score)
    try:
        claims = tuple(claims_of(weakened.conclusion(case, REFERENCE)))
    except InvalidInput as error:
        return CaseCheck((), None, tuple(findings), dropped, str(error), True, score, met=True)
    except (Exception, SystemExit) as error:
        # Outside its assumptions a conclusion may raise an error, which refutes nothing.
        return CaseCheck((), None, tuple(findings), dropped, _breakdown(weakened, error), True, score, met=True)
    if weakened.violation is None or not guided:
        score = max((_beyond(c) for c in claims), default=-math.inf)
    counted = [c for c in claims if claim in ("", c.name)]
    violated = _most_violated(counted)
    if violated is None:
        why, undecided = _why_not(claims, counted, claim)
        return CaseCheck(claims, None, tuple(findings), dropped, why, undecided, score, met=True)
    return CaseCheck(claims, violated, tuple(findings), dropped, "", False, score, met=True)


def _why_not(claims: tuple[Claim, ...], counting: list[Claim], claim: str) -> tuple[str, bool]:
    """Return why none of the claims ``counting`` is violated, and whether this leaves the case undecided.

    Only violations of these claims count; ``claim`` is their name, if only one name counts.
    """
    if not claims:
        return "the conclusion made no claim", True
    if not counting:
        return f"{claim} is not claimed on this case, only {', '.join(c.name for c in claims)}", True
    weak = [c for c in counting if c.verdict is Verdict.FALSIFIED]
    if weak:
        return f"{weak[0].name} is violated, but not {FAR:g} times beyond its tolerance", True
    undecided = [c for c in counting if c.verdict is Verdict.INCONCLUSIVE]
    if undecided:
        return f"{undecided[0].name}: {undecided[0].undecided or 'its tolerance is infinite'}", True
    other = _most_violated([c for c in claims if c not in counting])
    if other is not None:
        return f"{claim} holds here, but {other.name} is violated", True
    return "the conclusion holds", False


def _most_violated(claims: list[Claim]) -> Claim | None:
    candidates = [c for c in claims if c.verdict is Verdict.FALSIFIED and -c.slack > FAR * c.tolerance]
    return max(candidates, key=_beyond, default=None)


def _beyond(claim: Claim) -> float:
    """Return the violation of a claim minus its tolerance: negative if the claim holds, −inf if it is undecided."""
    return -math.inf if claim.undecided else _number(-claim.slack - claim.tolerance)


def _number(value: float) -> float:
    return -math.inf if math.isnan(value) else float(value)
