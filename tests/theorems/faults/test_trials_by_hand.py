"""Trials of a fault on the cases of a statement: outcomes, the smallest size that is caught, and progress of
the run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.risk import risk, softmax_weights
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import Statement
from theorems.core.tolerances import EXACT
from theorems.faults.fault import Fault, Kind
from theorems.faults.power.power_tables import markdown, power_of_ten, size_rows, sizes_table
from theorems.faults.power.power_units import Column, FaultTrials, Smallest
from theorems.faults.power.trial import Baseline, FaultOutcome, smallest_caught, try_fault
from theorems.run.registry.lookup import statement_named

CASE = Case(Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]])))
CLAIM = ("sum", "1.0", "0.0", "")
"""The claim that the reference makes: name, slack, tolerance and reason."""


def risk_of(size: float) -> Implementation:
    return REFERENCE.replace("", {risk: lambda *arguments: np.float64(1 - size)})


def fault(size: float = 0.5, smallest: float = 1e-6) -> Fault:
    return Fault("smaller", Kind.RISK, "", "", risk_of, size=size, unit="1", smallest=smallest)


def base(verdict: Verdict = Verdict.UPHELD, called: Collection[Callable[..., Any]] = (risk,)) -> Baseline:
    return Baseline(CASE, verdict, (CLAIM,), frozenset(called))


def statement(slack: Callable[[float], float]) -> Statement:
    """Return a statement with one claim, whose slack is a function of the risk under test."""

    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        yield Claim("sum", Form.EXACT, slack(float(under_test[risk]())), 0.0, EXACT)  # type: ignore[call-arg]

    return replace(statement_named("lemma-3"), conclusion=conclusion)


NEVER = statement(lambda risk: 1.0)
OTHER_NUMBERS = statement(lambda risk: risk)
BELOW = statement(lambda risk: risk - 0.99)


@pytest.mark.parametrize(
    ("of", "bases", "found"),
    [
        (NEVER, [base()], FaultOutcome.UNMOVED),
        (OTHER_NUMBERS, [base()], FaultOutcome.MISSED),
        (BELOW, [base()], FaultOutcome.CAUGHT),
        (BELOW, [base(called=(softmax_weights,))], FaultOutcome.UNTOUCHED),
        (BELOW, [base(Verdict.INCONCLUSIVE)], FaultOutcome.UNTOUCHED),
        (BELOW, [], FaultOutcome.UNTOUCHED),
        (statement(lambda risk: float("nan")), [base()], FaultOutcome.MISSED),
    ],
)
def test_a_trial_reports_the_outcome_of_a_fault(of: Statement, bases: list[Baseline], found: FaultOutcome) -> None:
    assert try_fault(of, fault(), bases).outcome is found


def test_cases_that_cannot_show_the_fault_are_skipped() -> None:
    """Only the fourth case shows the fault: on the first three it is not called, or the reference is not upheld."""
    idle = [base(Verdict.NOT_APPLICABLE), base(Verdict.FALSIFIED), base(called=())]
    cell = try_fault(BELOW, fault(), [*idle, base(), base()])
    assert (cell.outcome, cell.examples, cell.claim) == (FaultOutcome.CAUGHT, 4, "sum")


def test_the_smallest_caught_size_is_found_in_steps_of_ten() -> None:
    """The claim fails with the fault of size 0.1 and holds with size 0.01."""
    assert smallest_caught(BELOW, fault(1.0), [base()]) == pytest.approx(0.1)
    assert smallest_caught(statement(lambda risk: risk - 1 + 2e-5), fault(1.0), [base()]) == pytest.approx(1e-4)
    assert smallest_caught(statement(lambda risk: -1.0), fault(1.0), [base()]) == pytest.approx(1e-6)
    assert smallest_caught(statement(lambda risk: risk - 0.8), fault(0.5), [base()]) == 0.5
    assert smallest_caught(NEVER, fault(0.5), [base()]) is None
    assert smallest_caught(BELOW, fault(0.1, smallest=0.05), [base()]) == pytest.approx(0.1)


def test_the_trials_of_a_statement_report_the_fault_that_they_are_at() -> None:
    cells: dict[str, Any] = {"a": try_fault(BELOW, fault(), [base()]), "b": try_fault(NEVER, fault(), [base()])}
    column = Column("lemma-3", cells=cells, seconds=1.25)
    assert column.summary == "catches 1 of 2 faults, 1.2 s"
    assert replace(column, failed="it died").summary == "it died"
    faced = FaultTrials("lemma-3", ("a", "b", "c"), 3, 0, column)
    assert faced.where(3) == "at the fault c"
    assert faced.where(None) == "before the first fault"
    assert replace(faced, faults=("a", "b")).where(3) == "before the first fault"
    assert replace(faced, so_far=None).where(1) == "at the fault a"


def test_progress_counts_the_reference_as_one_step_and_each_fault_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("theorems.faults.power.power_units.draw_cases", lambda *arguments, every: [CASE])
    monkeypatch.setattr("theorems.faults.power.power_units.baseline", lambda *arguments: base())
    monkeypatch.setattr("theorems.faults.power.power_units.fault_named", lambda name: fault())
    monkeypatch.setattr("theorems.faults.power.power_units.statement_named", lambda id: BELOW)
    told: list[int] = []
    column = FaultTrials("lemma-3", ("a", "b"), 1, 0).run(lambda done, so_far=None: told.append(done))
    assert told == [1, 2, 3]
    assert (column.reference, column.cases, column.falsified, set(column.cells)) == (1, 1, "", {"a", "b"})


def test_sizes_are_tried_from_the_planted_one_down() -> None:
    """The sizes between the planted and the smallest one are powers of ten."""
    sizes: list[float] = []

    def noting(size: float) -> Implementation:
        sizes.append(size)
        return risk_of(size)

    for size in (1.0, 1e-3):
        sizes.clear()
        assert smallest_caught(NEVER, replace(fault(size, size / 1e3), made=noting), [base()]) is None
        assert sizes[0] == pytest.approx(size)


def test_tables_of_sizes_have_a_row_for_each_fault() -> None:
    result = [Smallest("temperature", {"lemma-3": 1e-3, "lemma-5": 1e-4}), Smallest("gradient-too-long")]
    rows = size_rows(result)
    assert [(row[0], *row[3:]) for row in rows] == [
        ("temperature", power_of_ten(1e-4), "lemma-5"),
        ("gradient-too-long", "", "none"),
    ]
    assert sizes_table(result).row_count == 2
    unit, planted = rows[0][1:3]
    table = markdown([], [Column("lemma-3")], result, "command", {})
    assert f"| `temperature` | {unit} | {planted} | {power_of_ten(1e-4)} | `lemma-5` |" in table
