"""Whether a case is a counterexample: assumptions exactly, the violation far beyond its tolerance."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

from attention.errors import InvalidInput
from attention.implementation import REFERENCE
from generators.case import Case
from generators.finding import Finding
from theorems.hunting.weakened import Weakened
from theorems.statement import Claim, Verdict

FAR = 100.0
"""A violation counts when it exceeds its tolerance so many times: no doubt about rounding decides it."""


BREAKDOWNS = (ArithmeticError, ValueError, AssertionError, IndexError, KeyError, RuntimeError, TypeError)
"""What a conclusion may raise outside its assumptions."""


@dataclass(frozen=True)
class Examined:
    """What was found on one case.

    Attributes:
        claims: of the conclusion; empty when an assumption already rules the case out.
        violated: the falsified claim that is furthest beyond its tolerance, if it is so by :data:`FAR` times.
        kept: id and finding of every assumption that must hold.
        dropped: the finding on the assumption left out.
        refusal: why this is no counterexample; empty if it is one.
        undecided: whether something could not be decided, rather than was decided against it.
        score: what the search climbs on; −inf where nothing was computed.
    """

    claims: tuple[Claim, ...] = ()
    violated: Claim | None = None
    kept: tuple[tuple[str, Finding], ...] = ()
    dropped: Finding = field(default=Finding(None, "not looked at"))
    refusal: str = ""
    undecided: bool = False
    score: float = -math.inf

    @property
    def is_counterexample(self) -> bool:
        """Assumptions hold, the one left out fails, and a claim is violated."""
        return not self.refusal


def examine(weakened: Weakened, case: Case, *, guided: bool = True, claim: str = "") -> Examined:
    """Look at one case.

    Args:
        weakened: what is to be refuted.
        case: in any units.
        guided: stop at once where the cheap measure of violation says that nothing is to be found.
        claim: only a violation of the claim of this name counts; any if empty.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a NaN ends in a claim, where it is no violation
        try:
            return _examine(weakened, case.normalised(), guided, claim)
        except InvalidInput as error:
            return Examined(refusal=str(error), undecided=True)
        except BREAKDOWNS as error:
            # A conclusion run outside its assumptions may break down; that refutes nothing.
            return Examined(refusal=f"the conclusion broke down, {type(error).__name__}: {error}", undecided=True)


def _examine(weakened: Weakened, case: Case, guided: bool, claim: str) -> Examined:
    score = -math.inf
    if guided and weakened.violation is not None:
        score = _number(weakened.violation(case))
        if not score > 0:
            return Examined(refusal="no violation in sight", score=score)
    dropped = weakened.fails(case)
    if dropped.holds is not False:
        why = f"{weakened.without} holds here ({dropped.evidence})"
        return Examined(dropped=dropped, refusal=why, undecided=dropped.holds is None, score=score)
    kept: list[tuple[str, Finding]] = []
    for id in weakened.keeps:
        finding = weakened.statement.assumption(id).check(case)
        kept.append((id, finding))
        if finding.holds is not True:
            word = "fails" if finding.holds is False else "is not established"
            why = f"{id} {word} ({finding.evidence})"
            return Examined((), None, tuple(kept), dropped, why, finding.holds is None, score)
    claims = tuple(weakened.conclusion(case, REFERENCE))
    if weakened.violation is None or not guided:
        score = max((_beyond(c) for c in claims), default=-math.inf)
    violated = _most_violated([c for c in claims if claim in ("", c.name)])
    if violated is None:
        undecided = [c for c in claims if c.undecided]
        weak = [c for c in claims if c.verdict is Verdict.FALSIFIED]
        why = (
            f"{weak[0].name} is violated, but not {FAR:g} times beyond its tolerance" if weak
            else f"{undecided[0].name}: {undecided[0].undecided}" if undecided
            else "the conclusion holds"
        )  # fmt: skip
        return Examined(claims, None, tuple(kept), dropped, why, bool(weak or undecided), score)
    return Examined(claims, violated, tuple(kept), dropped, "", False, score)


def _most_violated(claims: list[Claim]) -> Claim | None:
    far = [c for c in claims if c.verdict is Verdict.FALSIFIED and -c.slack > FAR * c.tolerance]
    return max(far, key=_beyond, default=None)


def _beyond(claim: Claim) -> float:
    """How far the claim is violated, negative where it holds."""
    return -math.inf if claim.undecided else _number(-claim.slack - claim.tolerance)


def _number(value: float) -> float:
    return -math.inf if math.isnan(value) else float(value)
