"""Verification of one statement: on cases from its own strategy, or on the cases that user data give.

:func:`verify_generated` and :func:`verify_data` are pure functions of their arguments (but for the seconds
they report): the unit of work of the command, of a sweep, of a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from hypothesis import HealthCheck, Phase
from hypothesis.errors import HypothesisException

from generators.hypothesis_driver import drive, seed_from
from generators.realistic_numbers import realistic
from generators.subject import Subject
from generators.user_data import Given, as_text, subject_of
from reference_attention.files import from_json
from theorems.core.check import Outcome, check, error_outcome, sentence, whose
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.kernel_use import KERNEL_UNTOUCHED
from theorems.core.relation_check import SAME_VERDICT, check_with_relation
from theorems.core.statement import Statement
from theorems.core.under_test import Explanation
from theorems.run.registry.lookup import statement_named
from theorems.run.result import Failure, Result, merge_results, of_outcome

PART = 250
"""Number of cases that are drawn from one seed.

Draws of Hypothesis depend on earlier draws, so more cases are drawn in parts, each from a seed of its own; that way a
part can be drawn anywhere without the parts before it.
"""
SHRINKING_CALLS, FEWER_CALLS = 300, 40
"""Number of cases tried while a failing case is made smaller: a count, because a time limit would not be repeatable.

The smaller number is for kernels, whose calls are made smaller, too, and for cases that a relation checks again.
"""


@dataclass(frozen=True)
class SoFar:
    """The result of a statement on its first cases.

    Attributes:
        tried: their result, without the falsified case.
        falsified: the result of the falsified case, if there is one.
        error: the first error that broke the statement down.
        at_error: at which case, counted from one.
    """

    tried: Result
    falsified: Result | None = None
    error: str = ""
    at_error: int = 0

    def misfit(self, id: str, total: int | None) -> str:
        """Return why it cannot belong to the unit, as :meth:`theorems.run.result.Result.misfit`."""
        return self.tried.misfit(id, total) or (self.falsified.misfit(id, total) if self.falsified else "")

    @property
    def result(self) -> Result:
        """Return the result of all of them."""
        return self.tried if self.falsified is None else merge_results([self.tried, self.falsified])


@runtime_checkable
class Progress(Protocol):
    """Callback for the progress of a unit."""

    def __call__(self, done: int, so_far: Any = None, /) -> None:
        """Note that so many steps are done; ``so_far`` is what is finished, reported if the unit never ends."""


def nothing(done: int, so_far: Any = None, /) -> None:
    """Show no progress."""


CheckCase = Callable[[Statement, Subject, Implementation], Outcome]
"""Function that checks a statement on a case: :func:`theorems.core.check.check`, or with a relation beside it."""


class _Reproduced(Exception):
    """The case at hand fails in the way that is being shrunk."""


class _ShrinkLimit(BaseException):
    """Shrinking has had its number of calls; this is not an Exception, so that Hypothesis passes it on."""


def seed_of(id: str, seed: int, part: int = 0) -> int:
    """Return the seed of one statement, or of a later part of its cases; it depends on no other statement or order."""
    return seed_from(f"{id} {seed} {part}" if part else f"{id} {seed}")


def part_sizes(examples: int) -> list[int]:
    """Return how many cases each part has."""
    return [min(PART, examples - begun) for begun in range(0, examples, PART)]


def _drive(
    statement: Statement, examples: int, seed: int, fails: Callable[[Subject], bool], every: bool | None = None
) -> None:
    """Call ``fails`` on generated cases; once it returns True, on smaller and smaller ones."""

    def visit(case: Subject) -> None:
        # Raised at one place only: to Hypothesis, an exception from another line is another bug.
        if fails(case):
            raise _Reproduced

    with realistic(every):
        drive(
            statement.cases(),
            visit,
            examples=examples,
            seed=seed,
            phases=(Phase.generate, Phase.shrink),
            # These two look at the clock or at the caller; the others find defects of a strategy and stay.
            unchecked=(HealthCheck.too_slow, HealthCheck.differing_executors),
            near_copies=False,
        )


def draw_cases(statement: Statement, examples: int, seed: int, *, every: bool | None = None) -> list[Any]:
    """Return the cases on which so many examples of a statement are tried, part after part.

    Args:
        statement: the statement.
        examples: how many cases.
        seed: the seed of the run.
        every: as in :func:`generators.realistic_numbers.realistic`.
    """
    cases: list[Any] = []

    def keep(case: Subject) -> bool:
        cases.append(case)
        return False

    for part, size in enumerate(part_sizes(examples)):
        _drive(statement, size, seed_of(statement.own_id, seed, part), keep, every)
    return cases


class _Trial:
    """Trial of a statement on case after case; it keeps the smallest case on which the same claim is falsified."""

    def __init__(
        self,
        statement: Statement,
        under_test: Implementation,
        progress: Progress,
        check_case: CheckCase,
    ) -> None:
        self.statement = statement
        self.check_case = check_case
        self.under_test = under_test
        self.progress = progress
        self.so_far = SoFar(Result(statement.id, statement.title))
        self.at_error = 0
        self._began = time.perf_counter()
        self._claim = ""
        self._calls = 0

    @property
    def result(self) -> Result:
        """Return the result of all cases tried."""
        return self.so_far.result

    @property
    def seconds(self) -> float:
        """Return the seconds spent on the trial."""
        return time.perf_counter() - self._began

    def generating(self, case: Subject) -> bool:
        """Check one example and return whether it is falsified; afterwards, whether a smaller one still is."""
        if self._claim:
            return self._shrinking(case, self._same_claim)
        outcome = self.check_case(self.statement, case, self.under_test)
        result = of_outcome(self.statement, outcome, generated=True)
        if outcome.verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE) and not outcome.not_found:
            result = replace(result, failure=failure_of(self.statement, case, outcome))
        if outcome.verdict is Verdict.FALSIFIED:
            self.so_far = replace(self.so_far, falsified=result)
            self._claim = next(c.name for c in outcome.claims if c.verdict is Verdict.FALSIFIED)
        else:
            self.so_far = replace(self.so_far, tried=merge_results([self.so_far.tried, result]))
        if outcome.error and not self.so_far.error:
            self.so_far = replace(self.so_far, error=outcome.error, at_error=self.result.examples)
        self._report_progress()
        return outcome.verdict is Verdict.FALSIFIED

    def repeating(self, case: Subject) -> bool:
        """Repeat the same examples: pass over those before the error, then shrink the error's case."""
        self.at_error += 1
        self.progress(self.result.examples)
        return self.at_error >= self.so_far.at_error and self._shrinking(case, self._same_error)

    def _report_progress(self) -> None:
        self.so_far = replace(self.so_far, tried=replace(self.so_far.tried, seconds=self.seconds))
        self.progress(self.result.examples, self.so_far)

    def _same_claim(self, outcome: Outcome) -> bool:
        return any(c.name == self._claim and c.verdict is Verdict.FALSIFIED for c in outcome.claims)

    def _same_error(self, outcome: Outcome) -> bool:
        return outcome.error == self.so_far.error

    def _shrinking(self, case: Subject, same: Callable[[Outcome], bool]) -> bool:
        self._calls += 1
        few = self.under_test.slow or self._claim == SAME_VERDICT
        if self._calls > (FEWER_CALLS if few else SHRINKING_CALLS):
            raise _ShrinkLimit
        self.progress(self.result.examples)
        outcome = self.check_case(self.statement, case, self.under_test)
        if not same(outcome):
            return False
        self._keep(failure_of(self.statement, case, outcome, self._claim, shrunk=True))
        self._report_progress()
        return True

    def _keep(self, failure: Failure) -> None:
        """Keep the failure, if it is smaller than the failure kept so far."""
        summary = self.so_far.falsified or self.so_far.tried
        if summary.failure is not None and summary.failure.order <= failure.order:
            return
        summary = replace(summary, failure=failure)
        falsified = self.so_far.falsified is not None
        self.so_far = replace(self.so_far, falsified=summary) if falsified else replace(self.so_far, tried=summary)


def failure_of(statement: Statement, case: Subject, outcome: Outcome, claim: str = "", shrunk: bool = False) -> Failure:
    """Return the failing case as a record; ``claim`` names the falsified claim to report, by default the first."""
    falsified = [c for c in outcome.claims if c.verdict is Verdict.FALSIFIED]
    named = next((c for c in falsified if c.name == claim), falsified[0] if falsified else None)
    text = as_text(case, case_of=statement.id, claim=named.name if named else "")
    reason = sentence(named, whose(statement, named, outcome.parts)) if named else outcome.reason
    return Failure(outcome.verdict, reason, text, shrunk, parts=outcome.parts)


def verify_generated(
    id: str,
    examples: int,
    seed: int,
    under_test: Implementation = REFERENCE,
    progress: Progress = nothing,
    part: int = 0,
    only_realistic: bool = False,
    relations: bool = False,
) -> Result:
    """Try a statement on cases from its strategy; the first falsified case is made small and ends the trial.

    Equal arguments give equal results, whatever else runs, in whatever order, in whichever process.

    Args:
        id: the id of the statement.
        examples: how many cases at most (a strategy may have fewer).
        seed: the seed of the cases.
        under_test: the implementation that the statement is checked on.
        progress: called with the number of cases done.
        part: which part of the cases, if there are more than :data:`PART` in all.
        only_realistic: whether only cases as users have them are drawn, see :mod:`generators.realistic_numbers`.
        relations: whether each case is checked again, changed by one of :mod:`generators.metamorphic_relations`.
    """
    statement = statement_named(id)
    if why := under_test.out_of_reach(statement.kernel):
        return _not_about(statement, why)
    outcomes = under_test.outcomes(statement, examples, seed, part)
    if outcomes is not None:
        return _verify_outcomes(statement, outcomes, under_test, progress)
    trial = _Trial(statement, under_test, progress, check_with_relation if relations else check)
    drawn_from, every = seed_of(statement.own_id, seed, part), True if only_realistic else None
    stopped = _run_to_end(statement, examples, drawn_from, trial.generating, every)
    if trial.so_far.error and not stopped and trial.so_far.falsified is None:
        _run_to_end(statement, examples, drawn_from, trial.repeating, every)
    result = trial.result
    if stopped:
        result = merge_results([result, of_outcome(statement, stopped, generated=True)])
    elif not result.examples:
        nothing_drawn = Outcome(Verdict.INCONCLUSIVE, reason="the strategy produced no case")
        result = of_outcome(statement, nothing_drawn, generated=True)
    # A statement that never called the kernel under test was not inconclusive about it.
    untouched = result.reasons.get(Verdict.NOT_APPLICABLE) == KERNEL_UNTOUCHED
    # Where calls are recorded, only claims that may depend on them are kept.
    listed = () if under_test.recorded else tuple(statement.claims)
    result = replace(result, generated=not untouched, seconds=trial.seconds, listed=listed)
    return _explain(statement, result, under_test)


def _verify_outcomes(
    statement: Statement, outcomes: Iterator[tuple[Outcome, Subject]], under_test: Implementation, progress: Progress
) -> Result:
    """Gather outcomes on cases that are not drawn from the strategy; the first falsified case ends it."""
    began = time.perf_counter()
    result = Result(statement.id, statement.title)
    for outcome, case in outcomes:
        single = of_outcome(statement, outcome, generated=True)
        if outcome.verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE):
            shrunk = outcome.verdict is Verdict.FALSIFIED
            text = as_text(case, case_of=statement.id, claim=outcome.reason.partition(":")[0] if shrunk else "")
            single = replace(single, failure=Failure(outcome.verdict, outcome.reason, text, shrunk))
        result = replace(merge_results([result, single]), seconds=time.perf_counter() - began)
        progress(result.examples, SoFar(result))
        if outcome.verdict is Verdict.FALSIFIED:
            break
    return _explain(statement, replace(result, seconds=time.perf_counter() - began), under_test)


def _not_about(statement: Statement, why: str) -> Result:
    """Return the result of a statement that says nothing about the kernel under test, so that nothing was tried."""
    return of_outcome(statement, Outcome(Verdict.NOT_APPLICABLE, reason=why), generated=False)


def _run_to_end(
    statement: Statement, examples: int, seed: int, fails: Callable[[Subject], bool], every: bool | None
) -> Outcome | None:
    """Drive to the end; return an outcome only if the strategy itself broke down."""
    try:
        _drive(statement, examples, seed, fails, every)
    except (_Reproduced, _ShrinkLimit):
        return None
    except HypothesisException as error:
        return Outcome(Verdict.INCONCLUSIVE, reason=f"the strategy, {type(error).__name__}: {_first_line(error)}")
    except Exception as error:
        return error_outcome(statement, error, where="the strategy")
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def verify_data(
    id: str,
    given: Given,
    under_test: Implementation = REFERENCE,
    progress: Progress = nothing,
    relations: bool = False,
) -> Result:
    """Check a statement on user data: on every case that it makes of them, where its assumptions hold.

    Args:
        id: the id of the statement.
        given: the data; a failing case that was written down is run exactly as it is.
        under_test: the implementation that the statement is checked on.
        progress: called with the number of cases done.
        relations: as in :func:`verify_generated`.
    """
    statement = statement_named(id)
    if why := under_test.out_of_reach(statement.kernel):
        return _not_about(statement, why)
    if not isinstance(given.case, statement.about):
        return _not_about(statement, f"is about {statement.about.noun}, and the data are {given.case.noun}")
    began = time.perf_counter()
    tried = Result(statement.id, statement.title, generated=False)
    try:
        for case in [given.case] if given.failed else statement.from_data(given.case):
            outcome = (check_with_relation if relations else check)(statement, case, under_test)
            result = of_outcome(statement, outcome, generated=False)
            if outcome.verdict is Verdict.FALSIFIED:
                result = replace(result, failure=failure_of(statement, case, outcome))
            tried = replace(merge_results([tried, result]), seconds=time.perf_counter() - began)
            progress(tried.examples, SoFar(tried))
    except Exception as error:
        tried = merge_results(
            [tried, of_outcome(statement, error_outcome(statement, error, where="from_data"), generated=False)]
        )
    return _explain(statement, replace(tried, seconds=time.perf_counter() - began), under_test)


def _explain(statement: Statement, result: Result, under_test: Implementation) -> Result:
    """Add a line and a test for a maintainer of the implementation under test."""
    failure = result.failure
    if failure is None or failure.verdict is not Verdict.FALSIFIED or not under_test.recorded:
        return result
    case = subject_of(from_json(failure.case))
    try:
        explanation = under_test.explain(statement, case)
    except Exception as error:  # an untrusted kernel is called once more
        raised = f"called again on its failing case it raised {type(error).__name__}"
        explanation = Explanation(f"{statement.id}: {raised}", no_test=raised)
    line, test, no_test = explanation
    return replace(result, failure=replace(failure, line=line, test=test, no_test=no_test))
