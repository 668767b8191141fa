"""The check of one statement on one case: normalise the case's units, decide the assumptions, run the conclusion."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from generators.subject import Subject
from max_margin_theorems.papers import paper_at
from reference_attention.errors import InvalidInput
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.kernel_use import KERNEL_UNTOUCHED
from theorems.core.parts import Parts, explain_part, parts_on
from theorems.core.statement import Statement
from theorems.core.under_test import Refused


@dataclass(frozen=True)
class Outcome:
    """The outcome of one statement on one case.

    Attributes:
        verdict: falsified if a claim is falsified; else inconclusive if a claim is inconclusive or an error was raised;
            else upheld. Not applicable if an assumption is not known to hold, or if the kernel under test refuses the
            call or is never called.
        claims: every claim that the conclusion yielded.
        reason: the falsified or undecided claim, the failing assumption with its evidence, or the error; empty if
            upheld.
        error: the type of the exception, if the conclusion (or an assumption's predicate) raised one.
        touched: the names of the functions of the attention kernel under test that were called; empty without a kernel.
        not_found: whether the case is inconclusive only because a search by the suite found nothing, both with the
            implementation under test and with the reference.
        parts: if the case is falsified, the verdicts on the statement's premises, on its conclusion as the source
            states it, and on claims that are sharper; else None.
    """

    verdict: Verdict
    claims: tuple[Claim, ...] = field(default=())
    reason: str = ""
    error: str = ""
    touched: tuple[str, ...] = field(default=())
    not_found: bool = False
    parts: Parts | None = None


def check(statement: Statement, case: Subject, under_test: Implementation) -> Outcome:
    """Check a statement on one case and return the outcome.

    A statement that raises an error is inconclusive, never upheld.
    """
    with warnings.catch_warnings():
        # NumPy's warnings would only disturb the report: a claim cannot be upheld with NaN or after an overflow.
        warnings.simplefilter("ignore", RuntimeWarning)
        claims: list[Claim] = []
        all_claims: list[Claim] = []
        calls: set[str] = set()
        try:
            original, case = case, case.normalise()
            recorded, calls = record_calls(under_test.bind_to_case(case))
            missing = _missing_assumption(statement, case, original)
            if missing:
                return Outcome(Verdict.NOT_APPLICABLE, reason=missing)
            for claim in claims_of(statement.conclusion(case, recorded)):
                _require_declared(statement, claim)
                all_claims.append(claim)
                if calls or not under_test.recorded or claim.verdict is not Verdict.UPHELD:
                    claims.append(claim)  # for a kernel, keep only claims that may depend on its calls
            if under_test.recorded and not calls and not claims:
                return Outcome(Verdict.NOT_APPLICABLE, reason=KERNEL_UNTOUCHED)
            judged = replace(_judge(statement, case, claims, all_claims), touched=tuple(sorted(calls)))
            names = {claim.name for claim in all_claims}
            if judged.verdict is Verdict.UPHELD and (lost := _missing_claims(statement, case, under_test, names)):
                return replace(judged, verdict=Verdict.INCONCLUSIVE, reason=lost)
            return replace(judged, not_found=_not_found(claims) and _not_found_either(statement, case, under_test))
        except Refused as refusal:
            return Outcome(Verdict.NOT_APPLICABLE, reason=f"the kernel refuses the call: {refusal}")
        except (Exception, SystemExit) as error:
            return replace(error_outcome(statement, error, tuple(claims)), touched=tuple(sorted(calls)))


def record_calls(under_test: Implementation) -> tuple[Implementation, set[str]]:
    """Return the implementation with recorded calls, and the set to which each call adds the function's name."""
    calls: set[str] = set()

    def recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.add(name)
            return function(*arguments)

        return call

    functions = {function: recording(name, under_test[function]) for name, function in under_test.recorded.items()}
    return (under_test.replace(under_test.name, functions) if functions else under_test), calls


def _require_declared(statement: Statement, claim: Claim) -> None:
    if statement.claims and claim.name not in statement.claims:
        raise LookupError(f"{claim.name} is not among the claims that {statement.id} lists")


def _not_found(claims: Iterable[Claim]) -> bool:
    """Return whether some claim is not upheld, and every such claim only because a search found nothing."""
    open_ones = [claim for claim in claims if claim.verdict is not Verdict.UPHELD]
    return bool(open_ones) and all(claim.not_found for claim in open_ones)


def _not_found_either(statement: Statement, case: Subject, under_test: Implementation) -> bool:
    """Return whether a search that found nothing also finds nothing with the reference implementation."""
    return under_test is REFERENCE or _not_found(_of_reference(statement, case, under_test))


def _of_reference(statement: Statement, case: Subject, under_test: Implementation) -> Iterator[Claim]:
    """Yield the statement's claims for the reference, with the tolerances (``textbook_eps``) of ``under_test``."""
    reference = REFERENCE.replace(REFERENCE.name, textbook_eps=under_test.textbook_eps)
    return claims_of(statement.conclusion(case, reference))


def _missing_claims(statement: Statement, case: Subject, under_test: Implementation, names: set[str]) -> str:
    """Return a message that names claims made for the reference but not for the implementation under test; else empty.

    Such a claim is missing, for example, if the claim is made only on solutions with a certain property, and the
    implementation reports this property wrongly.
    """
    if under_test is REFERENCE or (statement.kernel is not None and statement.kernel.capability):
        return ""
    lost = [claim.name for claim in _of_reference(statement, case, under_test) if claim.name not in names]
    return f"{', '.join(dict.fromkeys(lost))}: claimed for the reference on this case, but not here" if lost else ""


def claims_of(conclusion: object) -> Iterator[Claim]:
    """Yield the claims of a conclusion, after checking that each is a :class:`Claim`.

    Raises:
        TypeError: the conclusion yields something else.
    """
    if not isinstance(conclusion, Iterable):
        raise TypeError(f"the conclusion returned a value of type {type(conclusion).__name__}; it must yield claims")
    for claim in conclusion:
        if not isinstance(claim, Claim):
            raise TypeError(f"the conclusion yielded a value of type {type(claim).__name__}, not a Claim")
        yield claim


def error_outcome(
    statement: Statement, error: BaseException, claims: tuple[Claim, ...] = (), where: str = ""
) -> Outcome:
    """Return the inconclusive outcome of a statement whose code raised an error; for a user's file, with the line.

    Args:
        statement: the statement.
        error: the exception.
        claims: the claims made before the error.
        where: the code that raised the error, if it was not the conclusion.
    """
    kind = type(error).__name__
    line = line_in(statement.file, error)
    if line:
        reason = (
            f"{where or 'the conclusion'} raised {kind} in {statement.file}, line {line}:"
            f" {' '.join(str(error).split())}"
        )
        return Outcome(Verdict.INCONCLUSIVE, claims, reason, f"{kind} at line {line}")
    if isinstance(error, InvalidInput):
        return Outcome(Verdict.INCONCLUSIVE, claims, str(error), kind)
    paper = paper_at(statement.conclusion.__module__)
    foreign = statement.file or (paper.package if paper else "")
    blamed = f"{where} raised" if where else f"{foreign}:" if foreign else "internal error,"
    return Outcome(Verdict.INCONCLUSIVE, claims, f"{blamed} {kind}: {error}", kind)


def line_in(file: str, error: BaseException) -> int:
    """Return the innermost line of the file in the traceback of an error; 0 if the traceback does not pass the file."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if file and lines else 0


def _judge(statement: Statement, case: Subject, claims: list[Claim], all_claims: list[Claim]) -> Outcome:
    """Return the outcome that follows from ``claims``; if falsified, its ``parts`` follow from ``all_claims``."""
    falsified = next((claim for claim in claims if claim.verdict is Verdict.FALSIFIED), None)
    if falsified is not None:
        states = statement.states
        expected = None if states is None else {name: statement.claims[name] for name in states}
        parts = parts_on(case, all_claims, statement.part_of, expected)
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
    """Describe what a falsified claim is in its statement (premise, conclusion or sharper claim), for messages.

    The description includes the verdict on the statement's own conclusion.

    Returns:
        The description; empty for a statement that does not declare which of its claims are the conclusion.
    """
    if parts is None or not statement.says_whose:
        return ""
    source = "the statement" if statement.file else "the paper"
    return explain_part(statement.part_of(claim.name), claim.form, parts, source)


def sentence(claim: Claim, part: str = "") -> str:
    """Return the claim's name, ``part`` (a description of the claim's part in its statement) and numbers, as text."""
    detail = f"; {claim.detail}" if claim.detail else ""
    name = f"{claim.name} ({part})" if part else claim.name
    return f"{name}: slack {claim.slack:.6g}, tolerance {claim.tolerance:.3g} ({claim.why}){detail}"


def _missing_assumption(statement: Statement, case: Subject, original: Subject) -> str:
    """Return the first assumption that is not known to hold, with the evidence; empty if all hold.

    ``case`` is normalised; the evidence is given for ``original``, in the user's units, where both lead to the same
    finding.
    """
    if unfit := original.unfit_for(statement.assumptions):
        return unfit
    for id in statement.assumptions:
        finding = statement.assumption(id).check(case)
        if finding.holds is not True:
            prefix = "" if finding.holds is False else "not established: "
            readable = finding if original is case else statement.assumption(id).check(original)
            return f"{id}: {prefix}{readable.evidence if readable.holds is finding.holds else finding.evidence}"
    return ""
