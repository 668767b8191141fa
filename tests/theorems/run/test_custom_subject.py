"""A paper that is not about keys and scores is verified, falsified, hunted and replayed like any other."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import theorems.counterexamples.weakened_statements
import theorems.run.registry.lookup
import theorems.run.verify
import theorems.without.weakening
from generators.case_statistics import drawn_shares
from generators.user_data import Given, load, subject_of
from reference_attention.files import from_json
from tests.theorems.custom_subject import FAULT, SPOILED, STATEMENTS, Logits, log_sum_exp, true_one
from tests.theorems.faults.trial import FaultOutcome, baseline, try_fault
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.implementation import REFERENCE
from theorems.counterexamples.record import load as load_record
from theorems.counterexamples.search import Hunt
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.faults.data_faults import FAULTS as DATA_FAULTS
from theorems.library.hunt import Hunted
from theorems.run.findings import findings
from theorems.run.registry.lookup import select_statements
from theorems.run.registry.suite import statements
from theorems.run.tables import print_failures
from theorems.run.verify import draw_cases, verify_data, verify_generated


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {**statements(), **STATEMENTS}
    monkeypatch.setattr(theorems.run.registry.lookup, "statements", lambda: both)


def test_a_statement_about_a_custom_subject_is_upheld_on_generated_cases() -> None:
    result = verify_generated("test-lse", 30, 0)
    assert (result.verdict, result.counts) == (Verdict.UPHELD, {Verdict.UPHELD: 30})


def test_a_falsified_custom_subject_is_shrunk_written_replayed_and_printed() -> None:
    result = verify_generated("test-lse", 200, 0, FAULT.implementation)
    assert result.verdict is Verdict.FALSIFIED
    assert result.failure is not None
    assert result.failure.shrunk
    case = subject_of(from_json(result.failure.case))
    assert isinstance(case, Logits)
    assert (case.values.tolist(), case.counts.tolist()) == ([0.0], [2])
    again = verify_data("test-lse", Given(case, "test-lse"), FAULT.implementation)
    assert again.verdict is Verdict.FALSIFIED
    assert verify_data("test-lse", Given(case, "test-lse")).verdict is Verdict.UPHELD
    stream = io.StringIO()
    print_failures(Console(file=stream, width=200), [result], lambda one: "again")
    assert "counts (2.0)" in stream.getvalue()


def test_statements_about_attention_do_not_apply_to_a_custom_subject() -> None:
    case = Logits(np.zeros(2), np.ones(2, dtype=np.int64))
    result = verify_data("lemma-5", Given(case))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason == "is about a problem, and the data are logits"
    other = verify_data("test-lse", load("figure-1a", 0))
    assert other.reason == "is about logits, and the data are a problem"
    assert [statement.id for statement in select_statements((), subject=case)] == [*STATEMENTS]
    assert not {*STATEMENTS} & {statement.id for statement in select_statements((), subject=load("figure-1a", 0).case)}
    assert {*STATEMENTS} <= {statement.id for statement in select_statements(())}


def test_an_assumption_about_a_custom_subject_is_decided_and_reported() -> None:
    case = Logits(np.zeros(2), np.array([1, 2]))
    (result,) = findings(Given(case), [STATEMENTS["test-small"]])
    assert (result.id, result.holds, result.evidence) == ("each-once", False, "counts [1, 2]")
    assert verify_data("test-small", Given(case)).reason == "each-once: counts [1, 2]"


def test_a_counterexample_with_a_custom_subject_is_shrunk_and_recorded(tmp_path: Path) -> None:
    hunt = Hunt(weakened_named("test-small", "each-once"), 0, math.inf, cases=200)
    hunt.run()
    assert hunt.finished
    assert isinstance(hunt.found, Logits)
    # The shrunk counterexample has only logits equal to zero.
    assert not hunt.found.values.any()
    hunted = Hunted.by(hunt)
    assert "few fails at m = " in repr(hunted)
    assert "counts" in hunted._repr_html_()
    record = load_record(hunted.save(tmp_path))
    assert isinstance(record.case, Logits)
    assert record.case.counts.tolist() == hunt.found.counts.tolist()


def _outcome(fault: object, case: Logits) -> FaultOutcome:
    return try_fault(true_one, fault, [baseline(true_one, case)]).outcome  # type: ignore[arg-type]


def test_only_faults_of_a_custom_subject_s_own_functions_can_be_caught_on_it() -> None:
    twice, once = (Logits(np.zeros(1), np.array([count])) for count in (2, 1))
    assert _outcome(FAULT, twice) is FaultOutcome.CAUGHT
    assert _outcome(FAULT, once) is FaultOutcome.UNMOVED
    others: list[object] = [*DATA_FAULTS, SPOILED]
    assert {_outcome(fault, twice) for fault in others} == {FaultOutcome.UNTOUCHED}


def test_a_function_is_returned_unchanged_unless_it_is_replaced() -> None:
    find: Callable[..., float] = REFERENCE[log_sum_exp]
    assert find is log_sum_exp


def test_drawn_cases_of_a_custom_subject_report_their_sizes() -> None:
    drawn = drawn_shares("test-lse", draw_cases(STATEMENTS["test-lse"], 20, 0))
    assert [*drawn.sizes] == ["m"]
    assert all(share.of == 0 for share in drawn.shares.values())


OWN_FILE = '''
from dataclasses import dataclass
from hypothesis import strategies as st
from theorems.api import Claim, Form, Subject, at_least, reason, statement

@dataclass(frozen=True, eq=False)
class Number(Subject, kind="test-number", noun="a number"):
    x: int
    seed: int = 0
    name: str = "generated"

@statement("small", "x is small", about=Number, cases=st.builds(Number, st.integers(0, 99)))
def small(case, under_test):
    """x <= 3."""
    yield at_least("small", Form.EXACT, 3.0, float(case.x), rounding=0.0, why=reason("none", "0", "nothing is rounded"))
'''


def test_a_kind_known_only_to_a_users_file_is_printed_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN_FILE)
    assert main(["verify", "mine.py:small", "--examples", "30", "--out", "."]) == Exit.FALSIFIED
    output = capfd.readouterr().out
    assert '"kind": "test-number"' in output
    assert '"x": 4' in output
