"""One statement on one case: normalise, look at the assumptions, run the conclusion."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from attention.errors import InvalidInput
from attention.implementation import Implementation
from generators.case import Case
from theorems.statement import Claim, Statement, Verdict


@dataclass(frozen=True)
class Outcome:
    """What a statement says about one case.

    Attributes:
        verdict: falsified if a claim is, else inconclusive if a claim is or something broke, else upheld.
        claims: every claim that the conclusion yielded.
        reason: for anything but upheld: which claim, which assumption with its evidence, or what broke.
        error: the type of the exception, if the conclusion (or an assumption's predicate) raised one.
    """

    verdict: Verdict
    claims: tuple[Claim, ...] = field(default=())
    reason: str = ""
    error: str = ""


def check(statement: Statement, case: Case, under_test: Implementation) -> Outcome:
    """Whether the statement holds on the case. A statement that breaks down is inconclusive, never upheld."""
    with warnings.catch_warnings():
        # A NaN or overflow ends in a claim, where it is never a pass; a warning would only tear the report.
        warnings.simplefilter("ignore", RuntimeWarning)
        claims: list[Claim] = []
        try:
            case = case.normalised()
            missing = _missing_assumption(statement, case)
            if missing:
                return Outcome(Verdict.NOT_APPLICABLE, reason=missing)
            claims.extend(statement.conclusion(case, under_test))
        except InvalidInput as error:
            return Outcome(Verdict.INCONCLUSIVE, tuple(claims), str(error), InvalidInput.__name__)
        except Exception as error:
            kind = type(error).__name__
            return Outcome(Verdict.INCONCLUSIVE, tuple(claims), f"internal error, {kind}: {error}", kind)
    return _judged(claims)


def _judged(claims: list[Claim]) -> Outcome:
    for verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE):
        for claim in claims:
            if claim.verdict is verdict:
                reason = f"{claim.name}: {claim.undecided}" if claim.undecided else sentence(claim)
                return Outcome(verdict, tuple(claims), reason)
    if not claims:
        return Outcome(Verdict.INCONCLUSIVE, reason="the conclusion made no claim")
    return Outcome(Verdict.UPHELD, tuple(claims))


def sentence(claim: Claim) -> str:
    """The claim with its numbers, for a reader."""
    detail = f"; {claim.detail}" if claim.detail else ""
    return f"{claim.name}: slack {claim.slack:.6g}, tolerance {claim.tolerance:.3g} ({claim.why}){detail}"


def _missing_assumption(statement: Statement, case: Case) -> str:
    """The first assumption that is not known to hold, with what decided it; empty when all hold."""
    from generators.assumptions import assumption_named

    for id in statement.assumptions:
        finding = assumption_named(id).check(case)
        if finding.holds is not True:
            prefix = "" if finding.holds is False else "not established: "
            return f"{id}: {prefix}{finding.evidence}"
    return ""
