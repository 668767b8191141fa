"""Relations are changes of the data that should not change a verdict, such as a permutation of inputs: no statement of
the suite violates one, and statements that do are caught.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.finding import Assumption, Finding
from generators.metamorphic_relations import RELATIONS, relation_named, relation_of, relations_on
from generators.next_tokens import NextTokens
from generators.subject import Subject
from generators.user_data import Given, load
from reference_attention.errors import InvalidInput
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import risk, softmax_weights
from tests.relations import table
from tests.theorems.fake_statements import fake_statement, install
from theorems.command.app import main
from theorems.core.check import check
from theorems.core.claim import Claim, Form, Verdict, undecided_claim
from theorems.core.claim_name import ALWAYS
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.relation_check import SAME_VERDICT, check_with_relation, compare, difference_of
from theorems.core.tolerances import EXACT
from theorems.library.verify import verify
from theorems.run.registry.suite import statements
from theorems.run.verify import draw_cases, verify_data, verify_generated

CASES = 8
"""Number of cases of each statement; every night ``make relations`` checks 500."""


@pytest.mark.parametrize("id", list(statements()))
def test_a_case_changed_by_a_relation_has_the_same_verdict(id: str) -> None:
    result = verify_generated(id, CASES, 0, relations=True)
    assert result.verdict is not Verdict.FALSIFIED, result.failure and result.failure.sentence
    assert sum(counts["cases"] for counts in result.relations.values()) >= CASES // 2


def test_every_relation_applies_to_some_data() -> None:
    applied = {
        name
        for id in ("lemma-1", "lemma-3", "theorem-5")
        for name in _relation_names(draw_cases(statements()[id], 30, 0))
    }
    counts = np.array([[1, 1, 2], [2, 0, 1]])
    applied |= _relation_names(NextTokens(np.eye(2), counts, seed=seed) for seed in range(5))
    assert applied == {relation.name for relation in RELATIONS}


def _relation_names(cases: Iterable[Subject]) -> set[str]:
    return {relation.name for case in cases for relation, _ in relations_on(case)}


def test_statements_name_the_relations_that_do_not_hold_for_them_with_reasons() -> None:
    for statement in statements().values():
        assert {*statement.varies} <= {relation.name for relation in RELATIONS}, statement.id
        assert all(statement.varies.values()), statement.id


# Statements and an implementation that depend on what should not matter.


def by_order(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim that is falsified unless the first input has the highest score."""
    best = case.problem.scores.max(axis=1)
    yield Claim("first", Form.EXACT, float(best[0] - best.max()), 0.0, EXACT)


def by_unit(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim that is undecided where tokens are large."""
    assert case.dataset is not None
    yield undecided_claim("small", "large") if np.abs(case.dataset.X).max() > 8 else _holds("small")


def by_axis(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim that is falsified where a coordinate of a key is negative."""
    yield Claim("positive", Form.EXACT, float(case.problem.keys.min()), 0.0, EXACT)


def by_size(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Raise if there are two inputs or more."""
    assert case.problem.n == 1
    yield _holds("one")


def by_claim(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make two claims, of which the first is undecided if all first tokens are optimal, and otherwise the second."""
    first = bool((case.problem.optimal == 0).all())
    yield undecided_claim("a", "first") if first else _holds("a")
    yield _holds("b") if first else undecided_claim("b", "not first")


def by_nothing(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim that always holds."""
    yield _holds("holds")


FAULTS = (by_order, by_unit, by_axis, by_size, by_claim, by_nothing)


fakes = pytest.mark.usefixtures("_fakes")


def _holds(name: str) -> Claim:
    return Claim(name, Form.EXACT, 0.0, 0.0, EXACT)


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch.setattr,
        {conclusion.__name__: fake_statement(conclusion.__name__, conclusion) for conclusion in FAULTS},
    )


X = np.array([[[4.0, 1.0], [1.0, 2.0], [1.0, 1.0]], [[2.0, 3.0], [1.0, 1.0], [2.0, 1.0]]])
TOKENS = Dataset(X, [1.0, 1.0], [1.0, 0.0])
ORDERED = Case(TOKENS.problem, dataset=TOKENS)
ONE = Case(Problem(X[:1], TOKENS.problem.scores[:1]))


@pytest.mark.parametrize(
    ("id", "relation", "case"),
    [
        ("by_order", "inputs-permuted", ORDERED),
        ("by_unit", "unit-of-tokens", ORDERED),
        ("by_axis", "axes-exchanged", ORDERED),
        ("by_axis", "reflected", ORDERED),
        ("by_axis", "rotated", ONE),
        ("by_size", "inputs-twice", ONE),
        ("by_claim", "tokens-permuted", ORDERED),
    ],
)
def test_a_statement_whose_verdict_a_relation_changes_is_caught(id: str, relation: str, case: Case) -> None:
    statement = fake_statement(id, next(conclusion for conclusion in FAULTS if conclusion.__name__ == id))
    before, differing = check(statement, case, REFERENCE), 0
    for seed in range(20):
        changed = relation_named(relation).apply(case.replace(seed=seed))
        if changed is None:
            continue
        difference = difference_of(before, check(statement, changed, REFERENCE))
        outcome = compare(relation_named(relation), before, difference)
        if outcome.verdict is Verdict.FALSIFIED:
            differing += 1
            assert SAME_VERDICT in outcome.reason
            assert relation in outcome.reason
    assert differing


@fakes
def test_a_statement_that_breaks_a_relation_is_caught_on_generated_cases() -> None:
    for id in ("by_size", "by_claim"):
        result = verify_generated(id, 60, 0, relations=True)
        assert result.verdict is Verdict.FALSIFIED, id
        assert result.failure is not None
        assert result.failure.shrunk
        assert "the suite contradicts itself" in result.reason
        assert sum(counts["differing"] for counts in result.relations.values()) == 1
    result = verify_generated("by_nothing", 60, 0, relations=True)
    assert result.verdict is Verdict.UPHELD
    assert sum(counts["cases"] for counts in result.relations.values()) == 60
    assert sum(counts["differing"] for counts in result.relations.values()) == 0
    assert verify_generated("by_nothing", 5, 0).relations == {}


def _first_input_doubled(keys: Any, p: Any) -> Any:
    """Return softmax weights, but for twice the prompt if the first input has the smallest entry of all keys."""
    return softmax_weights(keys, 2 * p if keys[0].min() == keys.min() else p)


def test_an_implementation_that_depends_on_the_order_of_inputs_is_caught() -> None:
    wrong, statement = (
        REFERENCE.replace("depends on the order", {softmax_weights: _first_input_doubled}),
        statements()["lemma-3"],
    )
    cases = [case for case in draw_cases(statement, 60, 1) if check(statement, case, wrong).verdict is Verdict.UPHELD]
    assert cases, "the statement alone does not see it on these"
    outcomes = [check_with_relation(statement, case, wrong) for case in cases]
    caught = [outcome.reason for outcome in outcomes if outcome.verdict is Verdict.FALSIFIED]
    assert any("inputs-permuted" in reason for reason in caught)


def test_a_falsified_case_is_not_checked_again_after_a_relation() -> None:
    statement = fake_statement("by_axis", by_axis)
    outcome = check_with_relation(statement, Case(Problem(-X, X[:, :, 0])), REFERENCE)
    assert [claim.name for claim in outcome.claims] == ["positive"]


def fewer(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a second claim only where the first token of the first input is optimal."""
    yield _holds("always")
    if case.problem.optimal[0] == 0:
        yield _holds("more")


@pytest.mark.parametrize(("when", "differs"), [(ALWAYS, True), ("where a start is near", False)])
def test_a_claim_made_only_before_a_relation_is_a_difference_if_it_is_unconditional(when: str, differs: bool) -> None:
    statement = replace(fake_statement("fewer", fewer), claims={"always": ALWAYS, "more": when})
    outcomes = [check_with_relation(statement, ORDERED.replace(seed=seed), REFERENCE) for seed in range(60)]
    reasons = [outcome.reason for outcome in outcomes if outcome.verdict is Verdict.FALSIFIED]
    assert bool(reasons) is differs
    assert all("more is claimed only on the unchanged case" in reason for reason in reasons)


def lost_in_order(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search finds nothing where the first token of the first input is optimal."""
    limit = _holds("limit")
    yield replace(limit, undecided="lost", not_found=True) if case.problem.optimal[0] == 0 else limit


@pytest.mark.parametrize("listed", [True, False])
def test_a_search_of_a_listed_statement_may_fail_on_one_of_two_equivalent_cases(listed: bool) -> None:
    statement = replace(fake_statement("lost-in-order", lost_in_order), search="by the last digit" if listed else "")
    drawn = [ORDERED.replace(seed=seed) for seed in range(60)]
    permuted = [case for case in drawn if _named(relation_of(case)) == "tokens-permuted"]
    verdicts = {check_with_relation(statement, case, REFERENCE).verdict for case in permuted}
    assert verdicts - {Verdict.INCONCLUSIVE} == (set() if listed else {Verdict.FALSIFIED})


def lost_besides(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search never finds anything, and the claim of :func:`lost_in_order`."""
    yield undecided_claim("never", "lost", not_found=True)
    yield from lost_in_order(case, under_test)


@pytest.mark.parametrize("listed", [True, False])
def test_a_second_search_of_a_listed_statement_may_fail_on_one_of_two_equivalent_cases(listed: bool) -> None:
    statement = replace(fake_statement("lost-besides", lost_besides), search="by the last digit" if listed else "")
    drawn = [ORDERED.replace(seed=seed) for seed in range(60)]
    verdicts = {check_with_relation(statement, case, REFERENCE).verdict for case in drawn}
    assert (Verdict.FALSIFIED in verdicts) is not listed


@pytest.mark.parametrize("listed", [True, False])
def test_an_assumption_decided_by_a_run_may_hold_on_one_of_two_equivalent_cases(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Assumption("runs", "a run ends well", "", lambda case: Finding(bool(case.problem.optimal[0] == 0), "ends"))
    own = {"assumptions": ("runs",), "own_assumptions": {"runs": first}}
    statement = replace(fake_statement("run-in-order", by_nothing), **own)
    monkeypatch.setattr("theorems.core.relation_check.RUNS", {"runs": "by the last digit"} if listed else {})
    drawn = [ORDERED.replace(seed=seed) for seed in range(60)]
    outcomes = [check_with_relation(statement, case, REFERENCE) for case in drawn]
    verdicts = {outcome.verdict for outcome in outcomes}
    assert verdicts == {Verdict.UPHELD, Verdict.INCONCLUSIVE if listed else Verdict.FALSIFIED}


def test_relations_that_a_statement_excludes_are_not_applied() -> None:
    every = {relation.name: "why" for relation in RELATIONS}
    assert relation_of(ORDERED, every) is None
    assert not relations_on(ORDERED, every)
    assert relation_of(ORDERED) is not None


# The changes of data that relations make.


@pytest.mark.parametrize("id", ["theorem-1", "theorem-5", "theorem-3", "lemma-8"])
def test_a_relation_changes_data_and_prompt_so_that_the_risk_is_the_same(id: str) -> None:
    check_risk_at_the_changed_prompt(id)


def check_risk_at_the_changed_prompt(id: str) -> None:
    """Assert that every relation that applies to drawn cases changes data and prompt so that the risk is the same."""
    tried = set()
    for case in draw_cases(statements()[id], 12, 3):
        start = np.round(64 * case.rng().normal(size=case.problem.d)) / 64 / case.problem.key_scale
        given = case.replace(start=start)
        for relation, changed in relations_on(given, statements()[id].varies):
            assert isinstance(changed, Case)
            assert changed.start is not None
            if relation.name == "unit-of-scores":
                continue
            tried.add(relation.name)
            before, after = _risk(case.problem, start), _risk(changed.problem, changed.start)
            np.testing.assert_allclose(after, before, rtol=1e-9, err_msg=relation.name)
    assert len(tried) >= 7


def _risk(problem: Problem, p: Any) -> float:
    return float(risk(problem.keys, problem.scores, problem.loss, p))


def test_a_relation_is_not_applied_where_it_would_round() -> None:
    third = Case(Problem(np.full((1, 2, 2), 1 / 3) * [[[1.0], [2.0]]], [[1.0, 0.0]]))
    assert relation_named("rotated").apply(third) is None
    assert relation_named("reflected").apply(third.replace(problem=Problem(X + 1e-17 + 1 / 3, X[:, :, 0]))) is None
    assert relation_named("keys-shifted").apply(third) is None
    far = Case(Problem(X * 1e135, X[:, :, 0]))
    changed = [relation_named("unit-of-keys").apply(far.replace(seed=seed)) for seed in range(40)]
    assert None in changed, "magnitudes leave the range"


def test_data_with_an_unknown_array_are_not_changed_except_by_writing_and_reading() -> None:
    odd = ONE.replace(arrays=MappingProxyType({"odd": np.ones(2)}))
    assert [relation.name for relation, _ in relations_on(odd)] == ["written-and-read"]


def test_a_vocabulary_is_written_and_read_like_numbers() -> None:
    windows = NextTokens(np.eye(2), np.array([[1, 1], [2, 0]]), vocabulary=(" ", "a"))
    again = relation_named("written-and-read").apply(windows)
    assert isinstance(again, NextTokens)
    assert again.vocabulary == (" ", "a")


def test_the_relation_applied_to_a_case_depends_only_on_the_case_s_seed() -> None:
    drawn = [_named(relation_of(ORDERED.replace(seed=seed))) for seed in range(40)]
    assert drawn == [_named(relation_of(ORDERED.replace(seed=seed, name="other"))) for seed in range(40)]
    assert len(set(drawn)) > 6


def _named(drawn: tuple[Any, Subject] | None) -> str:
    return "" if drawn is None else str(drawn[0].name)


# ``theorems verify --relations`` and the function ``verify`` with ``relations=True``.


@fakes
def test_the_command_checks_a_relation_on_user_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("one.npz", keys=ONE.problem.keys, scores=ONE.problem.scores)
    seeds = [seed for seed in range(60) if _named(relation_of(load("one.npz", seed).case)) == "inputs-twice"]
    options = ["--data", "one.npz", "--seed", str(seeds[0]), "--jobs", "1", "--json", "r.json"]
    assert main(["verify", "by_size", *options]) == 0
    assert main(["verify", "by_size", *options, "--relations"]) == 1
    printed = capsys.readouterr().out
    assert "inputs-twice: where every input occurs twice, the verdict is inconclusive" in " ".join(printed.split())
    assert "--relations" in printed.partition("Reproduce with")[2]
    [statement] = json.loads(Path("r.json").read_text(encoding="utf-8"))["statements"]
    assert statement["relations"] == {"inputs-twice": {"cases": 1, "differing": 1, "not_found": 0}}
    assert (
        main(["verify", "by_size", "--data", next(map(str, Path("falsified").iterdir())), "--relations", "--jobs", "1"])
        == 1
    )
    assert verify_data("by_size", Given(ONE.replace(seed=seeds[0])), relations=True).verdict is Verdict.FALSIFIED


def test_relations_cannot_be_combined_with_an_attention_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--relations", "--attention", "torch.nn.functional:scaled_dot_product_attention"]) == 2
    assert "--relations cannot be combined with --attention" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="cannot be combined with attention"):
        verify("lemma-3", relations=True, attention="m:f")


def test_relations_can_be_checked_from_python() -> None:
    results = verify("lemma-11", examples=4, relations=True)
    assert results.verdict is Verdict.UPHELD
    assert sum(counts["cases"] for counts in results["lemma-11"].relations.values()) == 4


def test_the_table_of_relations_is_printed() -> None:
    counts = {"inputs-permuted": {"cases": 3, "differing": 0}, "rotated": {"cases": 2, "differing": 1}}
    head, _, row, total = table([{"id": "lemma-11", "examples": 5, "relations": counts}]).splitlines()
    cells = dict(zip(head.split("|"), row.split("|"), strict=True))
    assert {name.strip(): cell.strip() for name, cell in cells.items() if cell.strip()} == {
        "statement": "lemma-11",
        "cases": "5",
        "inputs-permuted": "3",
        "rotated": "2, **1**",
        "labels-and-head-negated": "–",
    }
    assert {cell.strip() for cell in total.split("|")} == {"", "all", "5", "3", "2", "0"}
