"""Verification of a statement: right verdicts, equal results for equal seeds, failing cases that are shrunk and
saved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generators.case import Case
from generators.user_data import Given, as_text, case_of, load
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import softmax_weights
from tests.places import ROOT
from tests.theorems.fake_statements import FAKES, fake_statement, install, weights_sum_to_one
from theorems.core.check import Outcome, check
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import Statement
from theorems.run import verify as runner
from theorems.run.result import ClaimSummary, Result, merge_results, of_outcome, summarise, tightest_of
from theorems.run.verify import seed_of, verify_data, verify_generated

pytestmark = pytest.mark.usefixtures("fake_statements")


def same(result: Result) -> Result:
    return replace(result, seconds=0.0)


def one_statement(monkeypatch: pytest.MonkeyPatch, statement: Statement) -> str:
    install(monkeypatch.setattr, {statement.id: statement})
    return statement.id


def test_true_statements_are_upheld() -> None:
    result = verify_generated("true", 30, 0)
    assert result.verdict is Verdict.UPHELD
    assert result.examples == result.counts[Verdict.UPHELD] == 30
    assert [claim.name for claim in result.claims] == ["sum-at-least-one", "sum-at-most-one"]
    assert all(claim.room >= 0 for claim in result.claims)
    assert result.reason == ""
    assert result.failure is None


def test_a_planted_fault_is_caught() -> None:
    off = REFERENCE.replace("off", {softmax_weights: lambda keys, p: softmax_weights(keys, p) * (1 + 1e-12)})
    result = verify_generated("true", 30, 0, off)
    assert result.verdict is Verdict.FALSIFIED
    assert result.failure is not None
    assert "sum-at-most-one" in result.failure.sentence


def shrunk(result: Result, claim: str) -> Problem:
    assert result.verdict is Verdict.FALSIFIED
    assert result.failure is not None
    assert result.failure.shrunk
    record = from_json(result.failure.case)
    assert record["case_of"] == result.id
    assert record["claim"] == claim
    assert result.failure.sentence.startswith(claim)
    return case_of(record).problem


@pytest.mark.parametrize("seed", range(3))
def test_a_falsified_case_is_shrunk_to_one_that_fails_the_same_claim(seed: int) -> None:
    result = verify_generated("false", 50, seed)
    # A case of one input would be smaller, but falsifies only the statement's second claim.
    two = shrunk(result, "one-input")
    assert two.keys.shape == (2, 2, 2)
    assert not two.keys.any()
    assert result.counts.keys() <= {Verdict.UPHELD, Verdict.FALSIFIED}
    assert result.counts[Verdict.FALSIFIED] == 1
    assert result.examples <= 50


def test_a_statement_with_undecided_cases_is_inconclusive() -> None:
    result = verify_generated("undecided", 40, 0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.counts[Verdict.UPHELD] > 0
    assert f"{result.counts[Verdict.INCONCLUSIVE]} of 40 examples" in result.reason
    assert "three tokens are too many" in result.reason
    assert result.failure is not None


def test_a_case_on_which_the_conclusion_raises_is_inconclusive_and_shrunk() -> None:
    result = verify_generated("broken", 40, 0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.examples == 40
    assert "ZeroDivisionError: n is two" in result.reason
    assert result.failure is not None
    assert result.failure.shrunk
    assert case_of(from_json(result.failure.case)).problem.keys.shape == (2, 2, 2)


@pytest.mark.parametrize("error", ["", "ValueError"])
def test_a_case_is_recorded_for_an_error_but_not_for_a_stop(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(Verdict.INCONCLUSIVE, reason="stopped, or failed", error=error)
    monkeypatch.setattr(Implementation, "outcomes", lambda *arguments: iter([(outcome, data())]))
    result = verify_generated("true", 1, 0)
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, "stopped, or failed")
    assert (result.failure is not None) is bool(error)


def test_a_conclusion_without_claims_is_inconclusive() -> None:
    assert verify_generated("silent", 5, 0).verdict is Verdict.INCONCLUSIVE


def test_a_statement_whose_assumptions_hold_on_no_case_is_inconclusive() -> None:
    result = verify_generated("never", 20, 0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.counts == {Verdict.NOT_APPLICABLE: 20}
    assert "single-input" in result.reason


def test_a_generator_that_violates_its_assumption_is_reported() -> None:
    result = verify_generated("single", 40, 0)
    missed = result.counts[Verdict.NOT_APPLICABLE]
    assert f"{missed} of 40 examples not-applicable: single-input" in result.reason
    assert 2 * missed > 40
    assert result.verdict is Verdict.INCONCLUSIVE
    assert f"the conclusion was checked on only {40 - missed} of 40 examples" in result.reason
    half = replace(result, counts={Verdict.NOT_APPLICABLE: 20, Verdict.UPHELD: 20})
    assert half.verdict is Verdict.UPHELD


def test_a_statement_whose_strategy_raises_or_finds_no_case_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad() -> st.SearchStrategy[Case]:
        return st.integers().map(lambda k: Case(Problem(np.zeros((1, 1, 1)), np.zeros((1, 1)))))

    for cases, message in ((bad, "T = 1"), (lambda: st.integers().filter(lambda k: False), "filter")):
        name = one_statement(monkeypatch, replace(FAKES["true"], cases=cases))
        result = verify_generated(name, 10, 0)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert message in result.reason


def test_a_claim_whose_slack_is_nan_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    def nan(case: Case, under_test: Implementation) -> Iterator[Claim]:
        yield Claim("nan", Form.EXACT, float("nan"), 0.0, "exact")

    result = verify_generated(one_statement(monkeypatch, fake_statement("nan", nan)), 5, 0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "slack nan" in result.reason
    assert result.as_json()["claims"][0]["worst_slack"] is None


def test_the_same_seed_gives_the_same_result() -> None:
    for id in ("true", "false", "undecided", "broken"):
        assert same(verify_generated(id, 25, 3)) == same(verify_generated(id, 25, 3))


def texts_of_cases(monkeypatch: pytest.MonkeyPatch, seed: int, examples: int = 25) -> list[str]:
    cases: list[str] = []

    def look(case: Case, under_test: Implementation) -> Iterator[Claim]:
        cases.append(as_text(case))
        yield Claim("seen", Form.EXACT, 1.0, 0.0, "exact")

    verify_generated(one_statement(monkeypatch, replace(FAKES["true"], conclusion=look)), examples, seed)
    return cases


def test_another_seed_gives_other_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts_of_cases(monkeypatch, 0) == texts_of_cases(monkeypatch, 0)
    assert len(set(texts_of_cases(monkeypatch, 0)) & set(texts_of_cases(monkeypatch, 1))) < 5
    assert len(set(texts_of_cases(monkeypatch, 0))) == 25
    assert seed_of("lemma-1", 0) != seed_of("lemma-3", 0)


LOOK = """
import sys
from dataclasses import replace
sys.path[:0] = ["{tests}", "{extra}"]
import {module}
import numpy as np
from tests.theorems.fake_statements import FAKES, install
from hypothesis import strategies as st
from reference_attention.problem import Problem
from generators.case import Case
from theorems.core.claim import Claim, Form
from generators.user_data import as_text
from theorems.run.verify import verify_generated

def look(case, under_test):
    print(as_text(case))
    yield Claim("seen", Form.EXACT, 1.0, 0.0, "exact")

def cases():
    problem = Problem(np.ones((1, 2, 1)), np.ones((1, 2)))
    many = st.lists(st.integers(0, 2**32), min_size=30, max_size=30)
    return many.map(lambda drawn: Case(problem, seed=sum(drawn)))

install(fakes={{"true": replace(FAKES["true"], conclusion=look, cases=cases)}})
verify_generated("true", 60, 5)
"""


def test_cases_do_not_depend_on_imported_modules(tmp_path: Path) -> None:
    # By default Hypothesis would also draw constants that it finds in imported modules.
    (tmp_path / "odd_module.py").write_text(f"NUMBERS = {list(range(1000, 1500))}")
    outputs = set()
    for module in ("math", "odd_module"):
        script = LOOK.format(tests=ROOT / "tests" / "theorems", extra=tmp_path, module=module)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        assert process.stdout.count("keys") == 60
        outputs.add(process.stdout)
    assert len(outputs) == 1
    assert not (tmp_path / ".hypothesis").exists()


def test_shrinking_with_few_calls_gives_the_same_result_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SHRINKING_CALLS", 3)
    result = verify_generated("false", 50, 0)
    assert result.verdict is Verdict.FALSIFIED
    assert result.failure is not None
    assert same(result) == same(verify_generated("false", 50, 0))


def test_merged_results_do_not_depend_on_how_cases_were_split() -> None:
    cases = [Case(Problem(np.arange(2.0 * n * t).reshape(n, t, 2), np.zeros((n, t)))) for n in (1, 2) for t in (2, 3)]
    single = [
        of_outcome(FAKES[id], check(FAKES[id], case, REFERENCE), generated=True)
        for id in ("undecided",)
        for case in cases
    ]
    whole = merge_results(single)
    assert merge_results([merge_results(single[:1]), merge_results(single[1:3]), single[3]]) == whole
    assert whole.examples == 4
    assert whole.verdict is Verdict.INCONCLUSIVE
    assert whole.claims[0].worst_slack == 2.0


def test_the_worst_slack_ignores_cases_where_both_sides_vanish() -> None:
    def summary(name: str, slack: float, tolerance: float = 1e-15) -> ClaimSummary:
        return summarise(Claim(name, Form.EFFECTIVE, slack, tolerance, "rounding"))

    trivial, near, failed = summary("a", 0.0, 1e-18), summary("a", 1e-3), summary("a", -1.0)
    for first, second in ((trivial, near), (near, trivial)):
        assert first.worse(second).worst_slack == 1e-3
        assert first.worse(second).cases == 2
    assert trivial.worse(trivial).worst_slack == 0
    assert trivial.worse(near).worse(failed).worst_slack == -1.0
    exact = summary("exact", 0.0, 0.0)
    for claims in ([summary("trivial", 0.0), near, exact], [exact, near, summary("trivial", 0.0)]):
        assert tightest_of(claims) is near
    assert tightest_of([exact, summary("trivial", 0.0), summary("wrong", -1.0)]).name == "wrong"


# ---- user data -------------------------------------------------------------------------------------------


def data(n: int = 2) -> Case:
    rng = np.random.default_rng(0)
    return Case(Problem(rng.standard_normal((n, 3, 2)), rng.standard_normal((n, 3))), start=np.ones(2))


def test_statements_get_their_verdicts_on_user_data() -> None:
    assert verify_data("true", Given(data())).verdict is Verdict.UPHELD
    assert verify_data("false", Given(data())).verdict is Verdict.FALSIFIED
    result = verify_data("single", Given(data()))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "single-input" in result.reason
    assert "2" in result.reason


def test_a_statement_with_an_assumption_that_is_not_established_is_not_applicable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statement = fake_statement("open", weights_sum_to_one, ("step-size", "optimal-tokens"))
    result = verify_data(one_statement(monkeypatch, statement), Given(data()))
    assert result.verdict is Verdict.NOT_APPLICABLE


def test_a_statement_s_from_data_is_applied_except_to_a_saved_failing_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def thrice(case: Case) -> Iterator[Case]:
        for k in range(3):
            yield case.replace(seed=k)

    name = one_statement(monkeypatch, fake_statement("thrice", weights_sum_to_one, from_data=thrice))
    assert verify_data(name, Given(data())).examples == 3
    assert verify_data(name, Given(data(), failed="thrice")).examples == 1


def test_a_statement_that_makes_no_case_of_the_data_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    name = one_statement(monkeypatch, fake_statement("none", weights_sum_to_one, from_data=lambda case: iter(())))
    result = verify_data(name, Given(data()))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason == "there was no case to check"


def test_bad_input_within_a_conclusion_is_reported_as_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(case: Case, under_test: Implementation) -> Iterator[Claim]:
        raise InvalidInput("keys: too large for this; give fewer tokens.")
        yield

    result = verify_data(one_statement(monkeypatch, fake_statement("refuses", refuses)), Given(data()))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.bad_input == "keys: too large for this; give fewer tokens."


# ---- cases as text ---------------------------------------------------------------------------------------


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_case_survives_a_round_trip_through_text(data: st.DataObject) -> None:
    from tests.theorems.fake_statements import small_cases

    case = data.draw(small_cases())
    if data.draw(st.booleans()):
        dataset = Dataset.realising(case.problem)
        case = case.replace(dataset=dataset, problem=dataset.problem, alpha=case.problem.optimal)
    text = as_text(case, case_of="x")
    back = case_of(from_json(text))
    assert as_text(back, case_of="x") == text
    np.testing.assert_array_equal(back.problem.keys, case.problem.keys)
    np.testing.assert_array_equal(back.problem.scores, case.problem.scores)
    np.testing.assert_array_equal(back.start, case.start)
    np.testing.assert_array_equal(back.arrays["u"], case.arrays["u"])
    assert back.seed == case.seed
    assert (back.dataset is None) == (case.dataset is None)


def test_empty_arrays_keep_their_shape() -> None:
    case = Case(Problem(np.zeros((1, 2, 1)), np.zeros((1, 2))), arrays={"q": np.zeros((0, 3))})
    assert case_of(from_json(as_text(case))).arrays["q"].shape == (0, 3)


def test_a_problem_that_differs_from_its_dataset_is_kept() -> None:
    problem = Problem(np.ones((1, 2, 1)), np.zeros((1, 2)))
    case = Case(problem, dataset=Dataset(np.ones((1, 2, 1)), np.ones(1), np.ones(1)))
    back = case_of(from_json(as_text(case, case_of="x")))
    np.testing.assert_array_equal(back.problem.scores, problem.scores)
    with pytest.raises(InvalidInput, match="are not those of X, Y and v"):
        case_of(from_json(as_text(case)))


X, Y, V = np.arange(12.0).reshape(2, 3, 2), np.array([1.0, -1.0]), np.array([1.0, 2.0])
GOOD = {"X": X, "Y": Y, "v": V}
BAD = {
    "empty": ({}, "holds no data"),
    "the token's axis first": ({**GOOD, "X": np.ones((7, 2, 3)), "v": np.ones(3)}, "X.transpose(1, 0, 2)"),
    "unknown name": ({**GOOD, "Z": X}, "unknown name 'Z'"),
    "no labels": ({"X": X, "v": V}, "Y is missing"),
    "no scores": ({"keys": X}, "scores is missing"),
    "both": ({**GOOD, "keys": X, "scores": X[:, :, 0]}, "are not those of X, Y and v"),
    "shapes": ({**GOOD, "Y": np.ones(5)}, "Y: shape"),
    "one token": ({**GOOD, "X": X[:, :1]}, "T = 1"),
    "labels 0 and 1": ({**GOOD, "Y": np.array([0, 1])}, "give 2*Y - 1"),
    "labels true and false": ({**GOOD, "Y": np.array([True, False])}, "write 1 for true"),
    "nan": ({**GOOD, "X": X * np.nan}, "NaN"),
    "complex": ({**GOOD, "X": X + 0j}, "complex"),
    "text": ({**GOOD, "X": X.astype(str)}, "real numeric"),
    "ragged": ({"keys": [[[1.0], [2.0, 3.0]]], "scores": [[1.0, 2.0]]}, "lengths"),
    "loss": ({**GOOD, "loss": "hinge"}, "loss"),
    "loss number": ({**GOOD, "loss": np.array(1.0)}, "loss: must be text"),
    "alpha range": ({**GOOD, "alpha": [0, 3]}, "from 0 to 2"),
    "alpha negative": ({**GOOD, "alpha": [0, -1]}, "entry 1 is -1"),
    "alpha fraction": ({**GOOD, "alpha": [0.5, 1]}, "entry 0 is 0.5"),
    "alpha length": ({**GOOD, "alpha": [0]}, "alpha: shape"),
    "two starts": ({**GOOD, "p0": V, "start": V}, "are both starts"),
    "start length": ({**GOOD, "p0": np.ones(3)}, "p0: shape"),
    "seed": ({**GOOD, "seed": -1}, "seed"),
    "further": ({**GOOD, "u": "abc"}, "u: dtype"),
    "direction": ({**GOOD, "q": V, "q1": V, "q2": np.ones(3)}, "q2: shape (3,) has length 3"),
    "direction of directions": ({**GOOD, "q1": np.ones((1, 2))}, "q1: shape (1, 2)"),
    "further shape": ({**GOOD, "arrays": {"q": {"shape": "x"}}}, "q: is not an array"),
    "arrays": ({**GOOD, "arrays": [1]}, "object that maps names to arrays"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_data_are_refused_in_one_sentence(what: str) -> None:
    arrays, expected = BAD[what]
    with pytest.raises(InvalidInput) as refusal:
        case_of(arrays)
    assert expected in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_whole_numbers_and_named_arrays_are_accepted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X.astype(int), Y=Y.astype(np.int8), v=V, loss="exponential", p0=V, eta=0.25)
    case = load(str(tmp_path / "a.npz"), 7).case
    assert case.problem.loss.name == "exponential"
    assert case.seed == 7
    assert case.arrays["eta"] == 0.25
    np.testing.assert_array_equal(case.start, V)
    (tmp_path / "a.json").write_text(
        json.dumps({"keys": X.tolist(), "scores": [[1, 2, 3]] * 2, "seed": 3, "alpha": [0, 2]})
    )
    case = load(str(tmp_path / "a.json"), 7).case
    assert case.seed == 3
    assert case.chosen_tokens.tolist() == [0, 2]
    with pytest.raises(InvalidInput, match="neither a file"):
        load("nowhere", 0)


# ---- units of the keys -----------------------------------------------------------------------------------


def test_normalise_gives_the_same_case_with_keys_in_other_units() -> None:
    rng = np.random.default_rng(1)
    scale = 2.0**40
    dataset = Dataset(rng.standard_normal((2, 3, 2)) * scale, np.array([1.0, -1.0]), np.ones(2))
    named = {
        "p_tried": np.ones((4, 2)),
        "prompt_radii": np.ones(3),
        "head_radii": np.ones(3),
        "eta": np.ones(()),
        "q": np.ones(2),
    }
    case = Case(dataset.problem, dataset=dataset, start=np.ones(2), arrays=named)
    normal = case.normalise()
    s = case.problem.key_scale
    assert 1 <= np.abs(normal.problem.keys).max() < 2
    np.testing.assert_array_equal(normal.problem.keys * s, case.problem.keys)
    np.testing.assert_array_equal(normal.dataset.problem.keys, normal.problem.keys)
    np.testing.assert_array_equal(normal.dataset.problem.scores, normal.problem.scores)
    factors = {name: float(np.ravel(value)[0]) for name, value in normal.arrays.items()}
    assert factors == {"p_tried": s, "prompt_radii": s, "head_radii": 1.0, "eta": s * s, "q": 1.0}
    np.testing.assert_array_equal(normal.problem.keys @ normal.start, case.problem.keys @ case.start)
    assert normal.normalise() is normal


def test_a_change_of_units_that_would_round_is_refused() -> None:
    case = Case(Problem(np.full((1, 2, 1), 1e-140), np.zeros((1, 2))), start=np.array([1e-200]))
    with pytest.raises(InvalidInput, match="start"):
        case.normalise()
