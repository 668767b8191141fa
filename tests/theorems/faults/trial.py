"""The trial of one planted fault against one statement, on given cases, until a claim is falsified."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from theorems.core.check import check
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import Statement
from theorems.faults import Fault


class FaultOutcome(StrEnum):
    """The reaction of a statement to a planted fault."""

    CAUGHT = "caught"
    """A claim was falsified."""
    MISSED = "not caught"
    UNDECIDED = "inconclusive"
    """No claim was falsified, but a claim that is upheld for the right implementation could not be decided."""
    UNMOVED = "unmoved"
    """The statement calls a function that the fault replaces, but no number in any claim changes."""
    UNTOUCHED = "untouched"
    """The statement calls no function that the fault replaces."""


@dataclass(frozen=True)
class Cell:
    """An entry of the table of faults by statements: the result for one fault and one statement.

    Attributes:
        outcome: caught, or the reason why not.
        examples: the number of cases after which the fault was caught, or the number of all cases if it was not.
        claim: the name of the falsified claim; empty if there is none.
        why: the claim that could not be decided, with the reason; empty if there is none.
    """

    outcome: FaultOutcome
    examples: int
    claim: str = ""
    why: str = ""


@dataclass(frozen=True)
class Baseline:
    """The result of a statement on one case with the reference, to which results with faults are compared.

    Attributes:
        case: the case in the normalised units in which the conclusion gets it.
        verdict: the verdict with the reference.
        claims: the claims with the reference, reduced to their numbers.
        called: the functions of the reference that the statement called.
        reason: the reason for a verdict other than upheld.
    """

    case: Any
    verdict: Verdict
    claims: tuple[tuple[Any, ...], ...]
    called: frozenset[Callable[..., Any]]
    reason: str = ""


def _numbers(claims: Sequence[Claim]) -> tuple[tuple[Any, ...], ...]:
    return tuple((claim.name, repr(claim.slack), repr(claim.tolerance), claim.undecided) for claim in claims)


def _call_noted(
    replaced: Callable[..., Any], function: Any, called: set[Callable[..., Any]], *arguments: Any, **options: Any
) -> Any:
    called.add(replaced)
    return function(*arguments, **options)


class _CountingReplacements(dict[Any, Any]):
    """The replacements of an implementation, which record the functions that a statement looks up and calls."""

    def __init__(self, replaced: Mapping[Any, Any], called: set[Callable[..., Any]]) -> None:
        super().__init__(replaced)
        self._called = called

    def get(self, function: Any, default: Any = None) -> Any:
        """Return the replacement of a function, or ``default``, wrapped so that calls are recorded."""
        return partial(_call_noted, function, super().get(function, default), self._called)


def counting(implementation: Implementation) -> tuple[Implementation, set[Callable[..., Any]]]:
    """Return an implementation that records which functions are called, and the set in which it records them."""
    called: set[Callable[..., Any]] = set()
    return replace(implementation, replaced=_CountingReplacements(implementation.replaced, called)), called


def baseline(statement: Statement, case: Any) -> Baseline:
    """Check the statement on the case with the reference, and record the functions that the statement calls."""
    watched, called = counting(REFERENCE)
    outcome = check(statement, case, watched)
    normal = case if outcome.error else case.normalise()
    return Baseline(normal, outcome.verdict, _numbers(outcome.claims), frozenset(called), outcome.reason)


def try_fault(statement: Statement, fault: Fault, baselines: Sequence[Baseline]) -> Cell:
    """Try the fault on the cases on which the reference is upheld, until a claim is falsified, and return the cell."""
    changed, touched, why = False, False, ""
    replaced = frozenset(fault.implementation.replaced)
    for k, base in enumerate(baselines, start=1):
        if base.verdict is not Verdict.UPHELD:
            continue  # where the reference is not upheld, the case says nothing about a fault
        if not replaced & base.called if fault.spoil is None else not isinstance(base.case, fault.about):
            continue
        touched = True
        claims, undecided = _claims_until_falsified(statement, fault, base.case)
        if claims and claims[-1].verdict is Verdict.FALSIFIED:
            return Cell(FaultOutcome.CAUGHT, k, claims[-1].name)
        why = why or undecided
        changed = changed or _numbers(claims) != base.claims
    if changed or why:
        return Cell(FaultOutcome.UNDECIDED if why else FaultOutcome.MISSED, len(baselines), why=why)
    return Cell(FaultOutcome.UNMOVED if touched else FaultOutcome.UNTOUCHED, len(baselines))


def _claims_until_falsified(statement: Statement, fault: Fault, case: Any) -> tuple[list[Claim], str]:
    """Return the claims up to the first falsified one, and the first undecided one with its reason, as text."""
    claims: list[Claim] = []
    undecided = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for claim in _claims(statement, fault, case):
                claims.append(claim)
                if claim.verdict is Verdict.FALSIFIED:
                    break
                undecided = undecided or (f"{claim.name}: {claim.undecided}" if claim.undecided else "")
        except Exception as error:
            # An error makes the statement inconclusive, as in a run of ``theorems verify``.
            undecided = undecided or f"{type(error).__name__}: {error}"
    return claims, undecided


def _claims(statement: Statement, fault: Fault, case: Any) -> Iterator[Claim]:
    read = case if fault.spoil is None else fault.spoil(case)
    return statement.conclusion(read, fault.implementation)
