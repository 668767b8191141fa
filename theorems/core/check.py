"""One statement on one case: normalise, look at the assumptions, run the conclusion."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from generators.subject import Subject
from max_margin_theorems.papers import paper_at
from reference_attention.errors import InvalidInput
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import KERNEL_UNTOUCHED, OnKernel, Refused, bind_to_case, record_calls
from theorems.core.parts import Parts, explain_part, parts_on
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
        parts: whose claims failed, and whose did not; of a falsified case only.
    """

    verdict: Verdict
    claims: tuple[Claim, ...] = field(default=())
    reason: str = ""
    error: str = ""
    touched: tuple[str, ...] = field(default=())
    not_found: bool = False
    parts: Parts | None = None


def check(statement: Statement, case: Subject, under_test: Implementation) -> Outcome:
    """Whether the statement holds on the case. A statement that breaks down is inconclusive, never upheld."""
    with warnings.catch_warnings():
        # A NaN or overflow ends in a claim, where it is never a pass; a warning would only tear the report.
        warnings.simplefilter("ignore", RuntimeWarning)
        claims: list[Claim] = []
        made: list[Claim] = []
        calls: set[str] = set()
        try:
            own, case = case, case.normalise()
            seen, calls = record_calls(bind_to_case(under_test, case))
            missing = _missing_assumption(statement, case, own)
            if missing:
                return Outcome(Verdict.NOT_APPLICABLE, reason=missing)
            for claim in claims_of(statement.conclusion(case, seen)):
                _require_declared(statement, claim)
                made.append(claim)
                if calls or not isinstance(under_test, OnKernel) or claim.verdict is not Verdict.UPHELD:
                    claims.append(claim)  # on a kernel, only what may depend on it
            if isinstance(under_test, OnKernel) and not calls and not claims:
                return Outcome(Verdict.NOT_APPLICABLE, reason=KERNEL_UNTOUCHED)
            judged = replace(_judge(statement, case, claims, made), touched=tuple(sorted(calls)))
            names = {claim.name for claim in made}
            if judged.verdict is Verdict.UPHELD and (lost := _missing_claims(statement, case, under_test, names)):
                return replace(judged, verdict=Verdict.INCONCLUSIVE, reason=lost)
            return replace(judged, not_found=_not_found(claims) and _not_found_either(statement, case, under_test))
        except Refused as refusal:
            return Outcome(Verdict.NOT_APPLICABLE, reason=f"the kernel refuses it: {refusal}")
        except (Exception, SystemExit) as error:
            return replace(error_outcome(statement, error, tuple(claims)), touched=tuple(sorted(calls)))


def _require_declared(statement: Statement, claim: Claim) -> None:
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
    reference = REFERENCE.replace(REFERENCE.name, textbook_eps=under_test.textbook_eps)
    return claims_of(statement.conclusion(case, reference))


def _missing_claims(statement: Statement, case: Subject, under_test: Implementation, made: set[str]) -> str:
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


def error_outcome(
    statement: Statement, error: BaseException, claims: tuple[Claim, ...] = (), where: str = ""
) -> Outcome:
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
    paper = paper_at(statement.conclusion.__module__)
    foreign = statement.file or (paper.package if paper else "")
    blamed = f"{where} raised" if where else f"{foreign}:" if foreign else "internal error,"
    return Outcome(Verdict.INCONCLUSIVE, claims, f"{blamed} {kind}: {error}", kind)


def line_in(file: str, error: BaseException) -> int:
    """The line of the file that was being run when the error was raised; 0 for another file."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if file and lines else 0


def _judge(statement: Statement, case: Subject, claims: list[Claim], made: list[Claim]) -> Outcome:
    """The verdict of ``claims``; whose claim failed is judged by all that were made."""
    falsified = next((claim for claim in claims if claim.verdict is Verdict.FALSIFIED), None)
    if falsified is not None:
        states = statement.states
        due = None if states is None else {name: statement.claims[name] for name in states}
        parts = parts_on(case, made, statement.part_of, due)
        reason = sentence(falsified, whose(statement, falsified, parts))
        return Outcome(Verdict.FALSIFIED, tuple(claims), reason, parts=parts)
    open_one = next((claim for claim in claims if claim.verdict is Verdict.INCONCLUSIVE), None)
    if open_one is not None:
        reason = f"{open_one.name}: {open_one.undecided}" if open_one.undecided else sentence(open_one)
        return Outcome(Verdict.INCONCLUSIVE, tuple(claims), reason)
    if not claims:
        return Outcome(Verdict.INCONCLUSIVE, reason="the conclusion made no claim")
    return Outcome(Verdict.UPHELD, tuple(claims))


def whose(statement: Statement, claim: Claim, parts: Parts | None) -> str:
    """Whose claim it is that was falsified, and what came of the conclusion on that case; empty for a statement that
    does not say which of its claims are its conclusion.
    """
    if parts is None or not statement.says_whose:
        return ""
    source = "the statement" if statement.file else "the paper"
    return explain_part(statement.part_of(claim.name), claim.form, parts, source)


def sentence(claim: Claim, whose: str = "") -> str:
    """The claim with its numbers, for a reader; ``whose`` claim it is stands after its name."""
    detail = f"; {claim.detail}" if claim.detail else ""
    name = f"{claim.name} ({whose})" if whose else claim.name
    return f"{name}: slack {claim.slack:.6g}, tolerance {claim.tolerance:.3g} ({claim.why}){detail}"


def _missing_assumption(statement: Statement, case: Subject, own: Subject) -> str:
    """The first assumption that is not known to hold, with what decided it, in the units of ``own``; empty when all
    hold.
    """
    for id in statement.assumptions:
        finding = statement.assumption(id).check(case)
        if finding.holds is not True:
            prefix = "" if finding.holds is False else "not established: "
            said = finding if own is case else statement.assumption(id).check(own)
            return f"{id}: {prefix}{said.evidence if said.holds is finding.holds else finding.evidence}"
    return ""
