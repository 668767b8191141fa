"""One statement on one case: normalise, look at the assumptions, run the conclusion."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from generators.attention_call import Subject
from generators.case import Case
from reference_attention.errors import InvalidInput
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import KERNEL_UNTOUCHED, OnKernel, Refused, asked_on, watched
from theorems.core.statement import Statement


@dataclass(frozen=True)
class Outcome:
    """What a statement says about one case.

    Attributes:
        verdict: falsified if a claim is, else inconclusive if a claim is or something broke, else upheld.
        claims: every claim that the conclusion yielded.
        reason: for anything but upheld: which claim, which assumption with its evidence, or what broke.
        error: the type of the exception, if the conclusion (or an assumption's predicate) raised one.
        touched: which functions of the attention kernel under test were called; of a kernel only.
        not_found: inconclusive only because a search of the suite's own found nothing, with the reference, too.
    """

    verdict: Verdict
    claims: tuple[Claim, ...] = field(default=())
    reason: str = ""
    error: str = ""
    touched: tuple[str, ...] = field(default=())
    not_found: bool = False


def check(statement: Statement, case: Subject, under_test: Implementation) -> Outcome:
    """Whether the statement holds on the case. A statement that breaks down is inconclusive, never upheld."""
    with warnings.catch_warnings():
        # A NaN or overflow ends in a claim, where it is never a pass; a warning would only tear the report.
        warnings.simplefilter("ignore", RuntimeWarning)
        claims: list[Claim] = []
        made: set[str] = set()
        calls: set[str] = set()
        try:
            own, case = case, case.normalised()
            seen, calls = watched(asked_on(under_test, case))
            missing = _missing_assumption(statement, case, own)
            if missing:
                return Outcome(Verdict.NOT_APPLICABLE, reason=missing)
            for claim in claims_of(statement.conclusion(case, seen)):
                _known(statement, claim)
                made.add(claim.name)
                if calls or not isinstance(under_test, OnKernel) or claim.verdict is not Verdict.UPHELD:
                    claims.append(claim)  # on a kernel, only what may depend on it
            if isinstance(under_test, OnKernel) and not calls and not claims:
                return Outcome(Verdict.NOT_APPLICABLE, reason=KERNEL_UNTOUCHED)
            judged = replace(_judged(claims), touched=tuple(sorted(calls)))
            if judged.verdict is Verdict.UPHELD and (lost := _lost(statement, case, under_test, made)):
                return replace(judged, verdict=Verdict.INCONCLUSIVE, reason=lost)
            return replace(judged, not_found=_not_found(claims) and _not_found_either(statement, case, under_test))
        except Refused as refusal:
            return Outcome(Verdict.NOT_APPLICABLE, reason=f"the kernel refuses it: {refusal}")
        except (Exception, SystemExit) as error:
            return replace(broken(statement, error, tuple(claims)), touched=tuple(sorted(calls)))


def _known(statement: Statement, claim: Claim) -> None:
    if statement.claims and claim.name not in statement.claims:
        raise LookupError(f"{claim.name} is not among the claims that {statement.id} lists")


def _not_found(claims: Iterable[Claim]) -> bool:
    """Whether something is undecided, and only because it was not found."""
    open_ones = [claim for claim in claims if claim.verdict is not Verdict.UPHELD]
    return bool(open_ones) and all(claim.not_found for claim in open_ones)


def _not_found_either(statement: Statement, case: Subject, under_test: Implementation) -> bool:
    """Whether the reference does not find it, either."""
    return under_test is REFERENCE or _not_found(_of_reference(statement, case, under_test))


def _of_reference(statement: Statement, case: Subject, under_test: Implementation) -> Iterator[Claim]:
    """What is claimed of the reference on the case, with the precision of what is under test."""
    reference = REFERENCE.but(REFERENCE.name, textbook_eps=under_test.textbook_eps)
    return claims_of(statement.conclusion(case, reference))


def _lost(statement: Statement, case: Subject, under_test: Implementation, made: set[str]) -> str:
    """Claims that the reference's numbers call for and what is under test made none of: a claim that depends on a flag,
    say, which is reported wrongly. Empty if there are none.
    """
    if under_test is REFERENCE or (statement.kernel is not None and statement.kernel.capability):
        return ""
    lost = [claim.name for claim in _of_reference(statement, case, under_test) if claim.name not in made]
    return f"{', '.join(dict.fromkeys(lost))}: claimed with the reference on this case, and not here" if lost else ""


def claims_of(made: object) -> Iterator[Claim]:
    """The claims that a conclusion yields.

    Raises:
        TypeError: it yields something else.
    """
    if not isinstance(made, Iterable):
        raise TypeError(f"the conclusion returned a value of type {type(made).__name__}; it must yield claims")
    for claim in made:
        if not isinstance(claim, Claim):
            raise TypeError(f"the conclusion yielded a value of type {type(claim).__name__}, not a Claim")
        yield claim


def broken(statement: Statement, error: BaseException, claims: tuple[Claim, ...] = (), where: str = "") -> Outcome:
    """What is left to say when something raised; for a statement in somebody's own file, in which line of it.

    Args:
        claims: those made before.
        where: what raised, if not the conclusion.
    """
    kind = type(error).__name__
    line = line_in(statement.file, error)
    if line:
        said = (
            f"{where or 'the conclusion'} raised {kind} in {statement.file}, line {line}:"
            f" {' '.join(str(error).split())}"
        )
        return Outcome(Verdict.INCONCLUSIVE, claims, said, f"{kind} at line {line}")
    if isinstance(error, InvalidInput):
        return Outcome(Verdict.INCONCLUSIVE, claims, str(error), kind)
    blamed = f"{where} raised" if where else "internal error," if not statement.file else f"{statement.file}:"
    return Outcome(Verdict.INCONCLUSIVE, claims, f"{blamed} {kind}: {error}", kind)


def line_in(file: str, error: BaseException) -> int:
    """The line of the file that was being run when the error was raised; 0 for another file."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if file and lines else 0


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


def _missing_assumption(statement: Statement, case: Subject, own: Subject) -> str:
    """The first assumption that is not known to hold, with what decided it, in the units of ``own``; empty when all
    hold.
    """
    if not (isinstance(case, Case) and isinstance(own, Case)):
        return ""  # a call assumes nothing
    for id in statement.assumptions:
        finding = statement.assumption(id).check(case)
        if finding.holds is not True:
            prefix = "" if finding.holds is False else "not established: "
            said = finding if own is case else statement.assumption(id).check(own)
            return f"{id}: {prefix}{said.evidence if said.holds is finding.holds else finding.evidence}"
    return ""
