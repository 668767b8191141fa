"""Verification of one statement, on cases drawn from its Hypothesis strategy or derived from user data.

:func:`verify_generated` and :func:`verify_data` are pure functions of their arguments, except for the measured seconds,
so that a pool of processes or a cluster can run them.
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
from theorems.core.statement import Statement
from theorems.run.registry.lookup import statement_named
from theorems.run.result import Failure, Result, merge_results, of_outcome

PART = 250
"""Largest number of cases drawn from one seed.

Each case that Hypothesis draws depends on the cases before it. A larger number of cases is therefore drawn in parts,
each from its own seed, so that another process can draw a part without drawing the parts before it."""
SHRINKING_CALLS, FEWER_CALLS = 300, 40
"""Largest numbers of checks while a failing case is shrunk; a time limit instead would not be reproducible.

The smaller number is for kernels, which are slow, and for a claim that compares the verdicts on a case and on a changed
copy of the case."""


@dataclass(frozen=True)
class SoFar:
    """Result of a statement on the cases checked so far.

    Attributes:
        tried: the merged result on all cases that were not falsified.
        falsified: the result on the falsified case; None if there is none.
        error: the first exception that a check raised; empty if there was none.
        at_error: the number of the first case on which a check raised an exception, counted from one.
    """

    tried: Result
    falsified: Result | None = None
    error: str = ""
    at_error: int = 0

    def misfit(self, id: str, total: int | None) -> str:
        """Return why this cannot be the result of the statement ``id`` on at most ``total`` cases; empty if it can."""
        return self.tried.misfit(id, total) or (self.falsified.misfit(id, total) if self.falsified else "")

    @property
    def result(self) -> Result:
        """Return the result on all cases checked so far."""
        return self.tried if self.falsified is None else merge_results([self.tried, self.falsified])


@runtime_checkable
class Progress(Protocol):
    """Protocol of a function that is told the progress of a unit of work, such as a statement on its cases."""

    def __call__(self, done: int, so_far: Any = None, /) -> None:
        """Take the number of finished steps, and in ``so_far`` their result, to be reported if the unit is stopped."""


def nothing(done: int, so_far: Any = None, /) -> None:
    """Ignore the progress of a unit of work."""


class _Reproduced(Exception):
    """Exception that :func:`_drive` raises on a failing case; Hypothesis looks for smaller cases that raise it, too."""


class _ShrinkLimit(BaseException):
    """Exception that ends shrinking after enough checks; a BaseException, so that Hypothesis does not catch it."""


def seed_of(id: str, seed: int, part: int = 0) -> int:
    """Return the seed from which a part of a statement's cases is drawn; it depends only on these arguments."""
    return seed_from(f"{id} {seed} {part}" if part else f"{id} {seed}")


def part_sizes(examples: int) -> list[int]:
    """Return the number of cases in each part when ``examples`` cases are cut into parts of at most :data:`PART`."""
    return [min(PART, examples - begun) for begun in range(0, examples, PART)]


def _drive(
    statement: Statement, examples: int, seed: int, fails: Callable[[Subject], bool], every: bool | None = None
) -> None:
    """Call ``fails`` on generated cases; once it returns True, call it on smaller and smaller cases."""

    def visit(case: Subject) -> None:
        # Raise the exception at this line only: Hypothesis treats an exception from another line as another bug.
        if fails(case):
            raise _Reproduced

    with realistic(every):
        drive(
            statement.cases(),
            visit,
            examples=examples,
            seed=seed,
            phases=(Phase.generate, Phase.shrink),
            # These two health checks depend on the clock and the caller; the others find defects of a strategy.
            unchecked=(HealthCheck.too_slow, HealthCheck.differing_executors),
            near_copies=False,
        )


def draw_cases(statement: Statement, examples: int, seed: int, *, every: bool | None = None) -> list[Any]:
    """Return the generated cases on which a statement is checked, in the order of the parts from which they are drawn.

    Args:
        statement: the statement.
        examples: the number of cases.
        seed: the seed of the run.
        every: whether all cases (True), no case (False) or one in five (None) resembles users' data, if the strategy
            can draw such cases.
    """
    cases: list[Any] = []

    def keep(case: Subject) -> bool:
        cases.append(case)
        return False

    for part, size in enumerate(part_sizes(examples)):
        _drive(statement, size, seed_of(statement.own_id, seed, part), keep, every)
    return cases


class _Trial:
    """Checks of a statement on many cases; they keep the smallest case that falsifies the claim falsified first."""

    def __init__(
        self,
        statement: Statement,
        under_test: Implementation,
        progress: Progress,
    ) -> None:
        self.statement = statement
        self.under_test = under_test
        self.progress = progress
        self.so_far = SoFar(Result(statement.id, statement.title))
        self.at_error = 0
        self._began = time.perf_counter()
        self._claim = ""
        self._calls = 0

    @property
    def result(self) -> Result:
        """Return the result on the cases checked so far."""
        return self.so_far.result

    @property
    def seconds(self) -> float:
        """Return the seconds since the checks began."""
        return time.perf_counter() - self._began

    def generating(self, case: Subject) -> bool:
        """Check a case and return whether it is falsified.

        After a falsified case, return only whether the same claim is falsified again.
        """
        if self._claim:
            return self._shrinking(case, self._same_claim)
        outcome = check(self.statement, case, self.under_test)
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
        """Visit the cases of :meth:`generating` once more, and shrink the case that raised the first error.

        Return False before this case; from then on return whether a case raises the same error.
        """
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
        if self._calls > (FEWER_CALLS if self.under_test.slow else SHRINKING_CALLS):
            raise _ShrinkLimit
        self.progress(self.result.examples)
        outcome = check(self.statement, case, self.under_test)
        if not same(outcome):
            return False
        self._keep(failure_of(self.statement, case, outcome, self._claim, shrunk=True))
        self._report_progress()
        return True

    def _keep(self, failure: Failure) -> None:
        """Keep the failure if its case is smaller than the failing case kept so far."""
        summary = self.so_far.falsified or self.so_far.tried
        if summary.failure is not None and summary.failure.order <= failure.order:
            return
        summary = replace(summary, failure=failure)
        falsified = self.so_far.falsified is not None
        self.so_far = replace(self.so_far, falsified=summary) if falsified else replace(self.so_far, tried=summary)


def failure_of(statement: Statement, case: Subject, outcome: Outcome, claim: str = "", shrunk: bool = False) -> Failure:
    """Return the record of a failing case; ``claim`` names the falsified claim to report (by default the first)."""
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
) -> Result:
    """Check a statement on cases from its strategy; stop at the first falsified case, after shrinking it.

    Equal arguments give equal results, except for the measured seconds, in any process and in any order.

    Args:
        id: the id of the statement.
        examples: the largest number of cases; a strategy may have fewer.
        seed: the seed of the cases.
        under_test: the implementation on which the statement is checked.
        progress: function called with the number of checked cases and the result so far.
        part: the number of this part, from 0, if the run has more than :data:`PART` cases.
        only_realistic: whether only cases that resemble users' data are drawn, see :mod:`generators.realistic_numbers`.
    """
    statement = statement_named(id)
    if why := under_test.out_of_reach(statement.kernel):
        return _not_about(statement, why)
    outcomes = under_test.outcomes(statement, examples, seed, part)
    if outcomes is not None:
        return _verify_outcomes(statement, outcomes, under_test, progress)
    trial = _Trial(statement, under_test, progress)
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
    # A statement that never called the kernel under test is not applicable to it, rather than inconclusive.
    untouched = result.reasons.get(Verdict.NOT_APPLICABLE) == KERNEL_UNTOUCHED
    # With a kernel under test, claims that do not depend on its calls are dropped; missing claims then mean nothing.
    listed = () if under_test.recorded else tuple(statement.claims)
    result = replace(result, generated=not untouched, seconds=trial.seconds, listed=listed)
    return _explain(statement, result, under_test)


def _verify_outcomes(
    statement: Statement, outcomes: Iterator[tuple[Outcome, Subject]], under_test: Implementation, progress: Progress
) -> Result:
    """Merge the outcomes that the implementation under test computes itself, up to the first falsified case."""
    began = time.perf_counter()
    result = Result(statement.id, statement.title)
    for outcome, case in outcomes:
        single = of_outcome(statement, outcome, generated=True)
        # An outcome without claims and without an error says why the statement was not tried further.
        is_about_case = bool(outcome.claims or outcome.error)
        if is_about_case and outcome.verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE):
            shrunk = outcome.verdict is Verdict.FALSIFIED
            text = as_text(case, case_of=statement.id, claim=outcome.reason.partition(":")[0] if shrunk else "")
            single = replace(single, failure=Failure(outcome.verdict, outcome.reason, text, shrunk))
        result = replace(merge_results([result, single]), seconds=time.perf_counter() - began)
        progress(result.examples, SoFar(result))
        if outcome.verdict is Verdict.FALSIFIED:
            break
    return _explain(statement, replace(result, seconds=time.perf_counter() - began), under_test)


def _not_about(statement: Statement, why: str) -> Result:
    """Return the result of a statement that was not checked: "not applicable", with the reason ``why``."""
    return of_outcome(statement, Outcome(Verdict.NOT_APPLICABLE, reason=why), generated=False)


def _run_to_end(
    statement: Statement, examples: int, seed: int, fails: Callable[[Subject], bool], every: bool | None
) -> Outcome | None:
    """Run :func:`_drive`; return None, or an outcome with the error if drawing a case raised one."""
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
) -> Result:
    """Check a statement on user data: on every case that the statement derives from the data.

    Args:
        id: the id of the statement.
        given: the user data; if they are a stored failing case, this case is checked without a change.
        under_test: the implementation on which the statement is checked.
        progress: function called with the number of checked cases and the result so far.
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
            outcome = check(statement, case, under_test)
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
    """Add a diagnosis to a kernel's failure, for its maintainer."""
    failure = result.failure
    if failure is None or failure.verdict is not Verdict.FALSIFIED or not under_test.recorded:
        return result
    case = subject_of(from_json(failure.case))
    try:
        line = under_test.explain(statement, case)
    except Exception as error:  # the explanation calls the untrusted kernel once more
        line = f"{statement.id}: on a second call with the failing case it raised {type(error).__name__}"
    return replace(result, failure=replace(failure, line=line))
