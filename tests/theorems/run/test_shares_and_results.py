"""Shares of drawn cases with a property, and the contents of results, on small examples."""

from __future__ import annotations

import json
import math
import os
import pickle
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from generators.case import Case
from generators.case_statistics import NEARLY, PROPERTIES, drawn_shares
from generators.datasets import DATASETS
from generators.subject import shown_array
from generators.user_data import Given, as_text, case_of, load
from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES, loss_named
from reference_attention.norms import Blocks, Norm, Schatten
from reference_attention.problem import Dataset, Problem
from theorems.benchmark.margin_gap import Gap
from theorems.core.check import Outcome
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import REFERENCE
from theorems.core.tolerances import EXACT
from theorems.faults import fault_named
from theorems.run import progress
from theorems.run.description import heading_of
from theorems.run.encoding import decode, plain
from theorems.run.events import CaseDone
from theorems.run.identity import of_headings
from theorems.run.journal import Journal
from theorems.run.known_failures import read
from theorems.run.registry.lookup import statement_named
from theorems.run.result import ClaimSummary, Failure, Result, of_outcome
from theorems.run.statement_unit import Unit
from theorems.run.tables import LISTED, case_rows, print_counts
from theorems.run.verify import PART, part_sizes, verify_data


def beside(excess: float, scores: tuple[float, ...] = (1.0, 0.0, 0.0), alpha: bool = False) -> Case:
    """Return a case with p_mm = (1, 0), a token of margin 1 and another of margin 1 + excess."""
    problem = Problem(np.array([[[0.0, 0], [-1, 0], [-1 - excess, 1]]]), np.array([scores]))
    return Case(problem, alpha=np.array([0]) if alpha else None)


@pytest.mark.parametrize(("excess", "near"), [(0.0, False), (NEARLY / 4, True), (4 * NEARLY, False)])
def test_margins_that_nearly_but_not_exactly_agree_are_a_near_tie(excess: float, near: bool) -> None:
    assert PROPERTIES["near tie of margins"](beside(excess)) is near


def test_svm_properties_count_only_cases_that_have_a_solution() -> None:
    """Count only cases whose optimal tokens are unique or given, and can be separated."""
    tied, given = beside(1.0, (1.0, 1.0, 0.0)), beside(1.0, (1.0, 1.0, 0.0), alpha=True)
    between = Case(Problem(np.array([[[0.0], [1.0], [-1.0]]]), np.array([[1.0, 0, 0]])))
    shares = drawn_shares("theorem-1", [tied, given, between, beside(1.0), beside(0.0)]).shares
    assert (shares["every token an SVM-neighbour"].count, shares["every token an SVM-neighbour"].of) == (1, 3)
    assert (shares["degenerate duals"].count, shares["degenerate duals"].of) == (1, 3)
    assert shares["tied optimal scores"].count == 2
    assert (shares["α not optimal"].count, shares["α not optimal"].of) == (0, 1)


def joint(W: list[list[float]] | None = None) -> Case:
    """Return the data of Figure 3(b) with another W; the third input has dual 0 in the SVM of the head."""
    case = DATASETS["figure-3b"]()
    data = case.dataset
    assert data is not None
    made = Dataset(data.X, data.Y, data.v, W, data.loss)
    return case.replace(dataset=made, problem=made.problem)


def test_support_properties_need_tokens_labels_and_assumption_c() -> None:
    """Count only cases with tokens and labels that satisfy Assumption C on the inputs of positive dual."""
    right, without = joint(), beside(1.0)
    for name in ("identical support features", "W of full column rank", "p_relax parallel to p_mm"):
        assert PROPERTIES[name](without) is None
        assert PROPERTIES[name](right) is (name == "W of full column rank")
    flat = joint([[1.0, 0.0], [0.0, 0.0]])
    assert PROPERTIES["W of full column rank"](flat) in (False, None)


def summary(slack: float, tolerance: float) -> ClaimSummary:
    return ClaimSummary("sum", Form.EXACT, slack, tolerance, "rounding", Verdict.UPHELD)


def test_a_claim_s_room_is_its_slack_plus_its_tolerance() -> None:
    assert summary(0.5, 0.25).room == 0.75
    assert summary(math.nan, 0.25).room == -math.inf
    assert summary(0.5, 0.0).nearness == "0.5 ≥ 0 (sum)"
    assert summary(0.5, 0.25).nearness == "0.5 ≥ -0.25 (sum)"
    assert summary(math.nan, 0.25).nearness == ""


@pytest.mark.parametrize(
    ("error", "generated", "touched", "message"),
    [
        ("InvalidInput", False, (), "why"),
        ("InvalidInput", True, (), ""),
        ("InvalidInput", False, ("weights",), ""),
        ("ValueError", False, (), ""),
    ],
)
def test_bad_input_is_reported_only_on_given_data(
    error: str, generated: bool, touched: tuple[str, ...], message: str
) -> None:
    outcome = Outcome(Verdict.INCONCLUSIVE, reason="why", error=error, touched=touched)
    assert of_outcome(statement_named("lemma-3"), outcome, generated=generated).bad_input == message


def test_a_result_counts_the_claims_that_were_decided() -> None:
    claims = [Claim(f"c{k}", Form.EXACT, slack, 0.0, EXACT) for k, slack in enumerate((1.0, math.nan, -1.0))]
    outcome = Outcome(Verdict.FALSIFIED, tuple(claims), "c2")
    result = of_outcome(statement_named("lemma-3"), outcome, generated=True)
    assert (result.id, result.verdict, result.decided_claims) == ("lemma-3", Verdict.FALSIFIED, 2)
    upheld = Outcome(Verdict.UPHELD, tuple(claims[:1]))
    result = of_outcome(statement_named("lemma-3"), upheld, generated=True)
    assert (result.verdict, result.decided_claims) == (Verdict.UPHELD, 1)


def test_a_journal_s_heading_names_statements_of_the_suite_without_a_file() -> None:
    assert of_headings([heading_of(statement_named("lemma-3"))]) == {"statements": ["lemma-3"]}


def test_a_single_number_is_shown_as_a_number_in_the_table_of_a_case() -> None:
    assert shown_array(np.array(0.5)) == "0.5"
    assert shown_array(np.array([0.5])) == "(0.5)"
    assert shown_array(np.arange(9.0)) == "(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, … 9 entries)"
    rows = case_rows(Case(Problem(np.zeros((20, 10, 1)), np.eye(10)[np.arange(20) % 10])))
    assert rows[-1][-1] == f"{200 - (len(rows) - 1)} more tokens"
    assert rows[0][:4] == ("0", "0", "α", "1.0")


@pytest.mark.parametrize(("examples", "last"), [(3, 3), (PART, PART), (2 * PART + 7, 7)])
def test_all_parts_of_a_statement_but_the_last_have_the_full_number_of_cases(examples: int, last: int) -> None:
    sizes = part_sizes(examples)
    assert sizes == [PART] * (len(sizes) - 1) + [last]
    assert sum(sizes) == examples


def test_an_unfinished_result_says_whether_its_unit_died_or_was_interrupted() -> None:
    unit = Unit("lemma-3", 5, 0)
    assert (unit.unfinished_result("died").stopped, unit.unfinished_result("died").interrupted) == ("died", False)
    assert (unit.unfinished_result("").stopped, unit.unfinished_result("").interrupted) == ("interrupted", True)


def test_a_line_of_the_journal_that_was_written_in_two_parts_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "run.jsonl", {"command": "test"})
    write, shares = os.write, iter((2, 1))
    monkeypatch.setattr("theorems.run.journal.os.write", lambda to, text: write(to, text[: len(text) // next(shares)]))
    journal.append({"a": 1})
    monkeypatch.undo()
    journal.append({"b": 2})
    text = (tmp_path / "run.jsonl").read_text(encoding="utf-8")
    kept = [json.loads(line) for line in text.splitlines()[1:]]
    assert [list(item) for item in kept] == [["digest", "a"], ["digest", "b"]]


@pytest.mark.parametrize(("scale", "far"), [(1.0, False), (2.0**29, False), (2.0**31, True), (2.0**-31, True)])
def test_keys_in_units_beyond_two_to_the_30_are_counted(scale: float, far: bool) -> None:
    assert (
        PROPERTIES["keys beyond 2^±30"](Case(Problem(scale * np.array([[[1.0], [0.0]]]), np.array([[1.0, 0]])))) is far
    )


def test_cases_of_one_constraint_and_with_concave_losses_are_counted() -> None:
    two = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))
    assert PROPERTIES["one constraint only"](Case(two)) is True
    assert PROPERTIES["one constraint only"](beside(1.0)) is False
    concave = {
        name: PROPERTIES["loss concave somewhere"](Case(Problem(two.keys, -two.scores, loss_named(name))))
        for name in LOSSES
    }
    assert concave["sigmoid"] is True
    assert concave["logistic"] is False


def test_a_result_on_given_data_keeps_its_case_only_if_it_is_falsified() -> None:
    given = Given(DATASETS["figure-1a"]())
    wrong = verify_data("lemma-5", given, fault_named("negated-gradient").implementation, lambda *told: None)
    assert wrong.verdict is Verdict.FALSIFIED
    assert wrong.failure is not None
    right = verify_data("lemma-5", given, REFERENCE, lambda *told: None)
    assert (right.verdict, right.failure) == (Verdict.UPHELD, None)
    assert 0 <= right.seconds < 600


def unseparable() -> Case:
    """Return data with labels that no linear head fits on the chosen tokens."""
    X = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.5, 2.0]]])
    data = Dataset(X, np.array([1.0, -1.0]), np.array([1.0, 0.0]), np.eye(2), LOSSES["logistic"])
    return Case(data.problem, dataset=data, alpha=np.array([0, 0]))


def test_properties_of_heads_are_undefined_where_no_head_fits_the_labels() -> None:
    assert PROPERTIES["W of full column rank"](unseparable()) is None
    assert PROPERTIES["W of full column rank"](DATASETS["figure-3b"]()) is True


@pytest.mark.parametrize(("token", "parallel"), [((0.0, 2.0), True), ((1.0, 2.0), False)])
def test_whether_p_relax_is_parallel_to_p_mm_is_decided_over_the_rationals(
    token: tuple[float, float], parallel: bool
) -> None:
    """Compare p_mm of both inputs, (0, 1), with p_relax, which has the constraint of input 0 only: (0, 1)/2 or (1,
    2)/5.
    """
    X = np.array([[[*token], [0.0, 0.0]], [[0.0, 3.0], [0.0, 2.0]]])
    data = Dataset(X, np.array([1.0, 1.0]), np.array([0.0, 1.0]), np.eye(2), LOSSES["logistic"])
    case = Case(data.problem, dataset=data, alpha=np.array([0, 0]))
    assert PROPERTIES["p_relax parallel to p_mm"](case) is parallel


def test_the_complaint_of_a_result_is_the_failed_claim_or_the_reason() -> None:
    failure = Failure(Verdict.FALSIFIED, "a claim fails", "{}")
    open_ = Result("lemma-3", "", {Verdict.INCONCLUSIVE: 1}, reasons={Verdict.INCONCLUSIVE: "why"}, failure=failure)
    falsified = replace(open_, counts={Verdict.FALSIFIED: 1})
    assert [(item.verdict, item.complaint) for item in (open_, falsified)] == [
        (Verdict.INCONCLUSIVE, "why"),
        (Verdict.FALSIFIED, failure.sentence),
    ]


def test_known_failures_in_another_encoding_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "known.txt"
    path.write_bytes(b"\xff\xfe lemma-3")
    with pytest.raises(InvalidInput, match=r"is not UTF-8 text; save it as UTF-8"):
        read(path, ["lemma-3"])


def test_a_unit_reports_zero_progress_at_its_start() -> None:
    told: list[int] = []

    class Enough(Exception):
        pass

    def progress(done: int, so_far: object = None) -> None:
        told.append(done)
        raise Enough

    with pytest.raises(Enough):
        Unit("lemma-3", 3, 0).run(progress)
    assert told == [0]


def test_arrays_of_a_case_from_a_file_are_read_only() -> None:
    case = case_of({"keys": [[[1.0, 0.0], [0.0, 1.0]]], "scores": [[1.0, 0.0]], "arrays": {"probe": [1.0, 2.0]}})
    with pytest.raises(ValueError, match="read-only"):
        case.arrays["probe"][0] = 3.0


def test_progress_of_a_long_unit_is_printed_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = Console(file=StringIO(), width=200)
    lines = progress.Lines(out, 3, "cases")
    for second in (1.0, progress.PATIENCE + 1, progress.PATIENCE + 2, 2 * progress.PATIENCE + 2):
        now[0] = second
        lines(CaseDone("lemma-3", int(second)))
    assert isinstance(out.file, StringIO)
    assert out.file.getvalue().splitlines() == ["lemma-3: 31 cases so far", "lemma-3: 62 cases so far"]


def test_seldom_made_claims_are_listed_for_few_statements_and_counted_for_many() -> None:
    """Claims that were never made are listed, however many there are."""
    claims = tuple(ClaimSummary(name, Form.EXACT, 1.0, 0.0, "exact", Verdict.UPHELD, cases=2) for name in "ab")
    results = [Result(f"s-{k}", "", {Verdict.UPHELD: 3}, claims, listed=("a", "b", "c")) for k in range(LISTED + 1)]
    for few in (True, False):
        out = Console(file=StringIO(), width=200)
        print_counts(out, results[:LISTED] if few else results)
        assert isinstance(out.file, StringIO)
        lines = out.file.getvalue().splitlines()
        assert lines.count("s-1: claims checked on none of 3 examples: c") == 1
        assert lines.count("s-1: claims checked on only some of 3 examples: a on 2, b on 2") == few
        assert sum(line.startswith("12 claims of 6 statements") for line in lines) == (not few)


def test_data_and_the_reference_survive_pickling() -> None:
    """The unpickled reference is the same object, since code compares with it by identity."""
    assert pickle.loads(pickle.dumps(REFERENCE)) is REFERENCE
    equal = replace(REFERENCE)
    assert pickle.loads(pickle.dumps(equal)) == REFERENCE
    assert pickle.loads(pickle.dumps(equal)) is not REFERENCE
    given = load("figure-1b", 3)
    there = pickle.loads(pickle.dumps(given))
    assert as_text(there.case) == as_text(given.case)
    assert (there.failed, there.case.seed, there.case.name) == ("", 3, "figure-1b")


@pytest.mark.parametrize(
    "norm", [math.inf, -math.inf, 2.0, Schatten(math.inf, (2, 3)), Blocks(math.inf, "rows", (2, 3))]
)
def test_numbers_that_are_not_finite_are_read_back(norm: Norm) -> None:
    """Strict JSON stores an infinite number as text, also in a field that may have other types."""
    gap = Gap(norm, "steepest-one-input", 0.5, 0.25)
    assert decode(plain(gap), Gap) == gap
    with pytest.raises(ValueError, match="holds a value that is not a result"):
        decode(plain(gap) | {"norm": "Endless"}, Gap)
