"""Relations are changes of the data that should not change a verdict, such as a permutation of inputs: no statement of
the suite violates one, and statements that do are caught.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from generators.case import Case
from generators.finding import Assumption, Finding
from generators.next_tokens import NextTokens
from generators.subject import Subject
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import risk, softmax_weights
from tests import relations
from tests.relations import RELATIONS, RUNS, SEARCH, VARIES, apply, relations_on
from tests.theorems.fake_statements import fake_statement
from theorems.core.check import Outcome, check
from theorems.core.claim import WORST_FIRST, Claim, Form, Verdict, undecided_claim
from theorems.core.claim_name import ALWAYS
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.parts import Condition
from theorems.core.tolerances import EXACT
from theorems.run.registry.suite import statements
from theorems.run.verify import draw_cases

CASES = 8
"""Number of cases of each statement."""


def relation_of(subject: Subject, id: str = "") -> tuple[str, Any] | None:
    """Return a random relation of :func:`relations_on`, drawn with the seed of the data, and the changed data."""
    return next(relations_on(subject, id, shuffled=True), None)


class Compared(NamedTuple):
    """The verdict on a case and, by the named relation, on the changed case: falsified if they differ."""

    relation: str
    verdict: Verdict
    reason: str = ""


def check_with_relation(statement: Any, case: Subject, under_test: Any) -> Compared:
    """Check a statement on a case and, unless that falsifies it, on the case changed by one relation."""
    outcome = check(statement, case, under_test)
    varied = relation_of(case, statement.id)
    if outcome.verdict is Verdict.FALSIFIED or varied is None:
        return Compared("", outcome.verdict, outcome.reason)
    name, changed = varied
    again, search = check(statement, changed, under_test), SEARCH.get(statement.id, "")
    if search and outcome.not_found is not again.not_found and (again.not_found or again.verdict is Verdict.UPHELD):
        return Compared(name, Verdict.INCONCLUSIVE, search)
    missing = [each for each in (outcome, again) if each.verdict is Verdict.NOT_APPLICABLE]
    if len(missing) == 1 and missing[0].reason.partition(": ")[0] in RUNS:
        return Compared(name, Verdict.INCONCLUSIVE, missing[0].reason)
    same = case.sizes == changed.sizes
    # Claims whose condition the case alone decides are made on both cases or on neither.
    decided = {n for n, when in statement.claims.items() if same and (when == ALWAYS or isinstance(when, Condition))}
    claims = [claim for each in (outcome, again) for claim in each.claims]
    lost = {c.name for c in claims if c.not_found} - {c.name for c in claims if c.verdict is Verdict.FALSIFIED}
    difference = difference_of(outcome, again, decided, lost if search else ())
    return Compared(name, Verdict.FALSIFIED if difference else outcome.verdict, f"{name}: {difference}")


def difference_of(
    outcome: Outcome, changed: Outcome, expected: Collection[str] = (), skipped: Collection[str] = ()
) -> str:
    """Return a phrase for the first difference of two outcomes; of claims only in one, those ``expected`` count."""
    if outcome.verdict is not changed.verdict:
        return f"the verdict is {changed.verdict} ({changed.reason}) in place of {outcome.verdict} ({outcome.reason})"
    if outcome.verdict is Verdict.NOT_APPLICABLE:
        missing, now = (each.reason.partition(": ")[0] for each in (outcome, changed))
        return "" if missing == now else f"the assumption that fails is {now} in place of {missing}"
    before, after = _worst(outcome.claims), _worst(changed.claims)
    for name in before.keys() & after.keys() - {*skipped}:
        if before[name] is not after[name]:
            return f"{name} is {after[name]} in place of {before[name]}"
    lost = sorted(({*before} ^ {*after}) & {*expected} - {*skipped})
    return f"{lost[0]} is claimed only on the {'unchanged' if lost[0] in before else 'changed'} case" if lost else ""


def _worst(claims: Iterable[Claim]) -> dict[str, Verdict]:
    worst: dict[str, Verdict] = {}
    for claim in claims:
        worst[claim.name] = min(claim.verdict, worst.get(claim.name, claim.verdict), key=WORST_FIRST.index)
    return worst


@pytest.mark.parametrize("id", list(statements()))
def test_a_case_changed_by_a_relation_has_the_same_verdict(id: str) -> None:
    outcomes = [
        check_with_relation(statements()[id], case, REFERENCE) for case in draw_cases(statements()[id], CASES, 0)
    ]
    assert [outcome for outcome in outcomes if outcome.verdict is Verdict.FALSIFIED] == []
    assert sum(bool(outcome.relation) for outcome in outcomes) >= CASES // 2


def test_every_relation_applies_to_some_data() -> None:
    applied = {
        name
        for id in ("lemma-1", "lemma-3", "theorem-5")
        for name in _relation_names(draw_cases(statements()[id], 30, 0))
    }
    counts = np.array([[1, 1, 2], [2, 0, 1]])
    applied |= _relation_names(NextTokens(np.eye(2), counts, seed=seed) for seed in range(5))
    assert applied == {*RELATIONS}


def _relation_names(cases: Iterable[Subject]) -> set[str]:
    return {name for case in cases for name, _ in relations_on(case)}


def test_the_relations_that_do_not_hold_for_a_statement_are_named_with_reasons() -> None:
    assert {name for _, name in VARIES} <= {*RELATIONS}
    assert {id for id, _ in VARIES} | {*SEARCH} <= {*statements()}
    assert all((*VARIES.values(), *SEARCH.values(), *RUNS.values()))


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


def _holds(name: str) -> Claim:
    return Claim(name, Form.EXACT, 0.0, 0.0, EXACT)


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
        changed = apply(relation, case.replace(seed=seed))
        differing += changed is not None and bool(difference_of(before, check(statement, changed, REFERENCE)))
    assert differing


def test_a_statement_that_breaks_a_relation_is_caught_on_generated_cases() -> None:
    for conclusion in (by_size, by_claim, by_nothing):
        statement = fake_statement(conclusion.__name__, conclusion)
        outcomes = [check_with_relation(statement, case, REFERENCE) for case in draw_cases(statement, 60, 0)]
        caught = [outcome for outcome in outcomes if outcome.verdict is Verdict.FALSIFIED]
        assert bool(caught) is (conclusion is not by_nothing)
        assert all(outcome.relation in outcome.reason for outcome in caught)
    assert all(outcome.relation for outcome in outcomes)


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
    assert (outcome.verdict, outcome.relation) == (Verdict.FALSIFIED, "")


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
def test_a_search_of_a_listed_statement_may_fail_on_one_of_two_equivalent_cases(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = fake_statement("lost-in-order", lost_in_order)
    monkeypatch.setitem(SEARCH, "lost-in-order", "by the last digit" if listed else "")
    drawn = [ORDERED.replace(seed=seed) for seed in range(60)]
    permuted = [case for case in drawn if _named(relation_of(case)) == "tokens-permuted"]
    verdicts = {check_with_relation(statement, case, REFERENCE).verdict for case in permuted}
    assert verdicts - {Verdict.INCONCLUSIVE} == (set() if listed else {Verdict.FALSIFIED})


def lost_besides(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search never finds anything, and the claim of :func:`lost_in_order`."""
    yield undecided_claim("never", "lost", not_found=True)
    yield from lost_in_order(case, under_test)


@pytest.mark.parametrize("listed", [True, False])
def test_a_second_search_of_a_listed_statement_may_fail_on_one_of_two_equivalent_cases(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = fake_statement("lost-besides", lost_besides)
    monkeypatch.setitem(SEARCH, "lost-besides", "by the last digit" if listed else "")
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
    if listed:
        monkeypatch.setitem(RUNS, "runs", "by the last digit")
    drawn = [ORDERED.replace(seed=seed) for seed in range(60)]
    outcomes = [check_with_relation(statement, case, REFERENCE) for case in drawn]
    verdicts = {outcome.verdict for outcome in outcomes}
    assert verdicts == {Verdict.UPHELD, Verdict.INCONCLUSIVE if listed else Verdict.FALSIFIED}


def test_relations_that_a_statement_excludes_are_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "VARIES", {("every", name): "why" for name in RELATIONS})
    assert relation_of(ORDERED, "every") is None
    assert not [*relations_on(ORDERED, "every")]
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
        for name, changed in relations_on(given, id):
            assert isinstance(changed, Case)
            assert changed.start is not None
            if name == "unit-of-scores":
                continue
            tried.add(name)
            before, after = _risk(case.problem, start), _risk(changed.problem, changed.start)
            np.testing.assert_allclose(after, before, rtol=1e-9, err_msg=name)
    assert len(tried) >= 7


def _risk(problem: Problem, p: Any) -> float:
    return float(risk(problem.keys, problem.scores, problem.loss, p))


def test_a_relation_is_not_applied_where_it_would_round() -> None:
    third = Case(Problem(np.full((1, 2, 2), 1 / 3) * [[[1.0], [2.0]]], [[1.0, 0.0]]))
    assert apply("rotated", third) is None
    assert apply("reflected", third.replace(problem=Problem(X + 1e-17 + 1 / 3, X[:, :, 0]))) is None
    assert apply("keys-shifted", third) is None
    far = Case(Problem(X * 1e135, X[:, :, 0]))
    changed = [apply("unit-of-keys", far.replace(seed=seed)) for seed in range(40)]
    assert None in changed, "magnitudes leave the range"


def test_data_with_an_unknown_array_are_not_changed_except_by_writing_and_reading() -> None:
    odd = ONE.replace(arrays=MappingProxyType({"odd": np.ones(2)}))
    assert [name for name, _ in relations_on(odd)] == ["written-and-read"]


def test_a_vocabulary_is_written_and_read_like_numbers() -> None:
    windows = NextTokens(np.eye(2), np.array([[1, 1], [2, 0]]), vocabulary=(" ", "a"))
    again = apply("written-and-read", windows)
    assert isinstance(again, NextTokens)
    assert again.vocabulary == (" ", "a")


def test_the_relation_applied_to_a_case_depends_only_on_the_case_s_seed() -> None:
    drawn = [_named(relation_of(ORDERED.replace(seed=seed))) for seed in range(40)]
    assert drawn == [_named(relation_of(ORDERED.replace(seed=seed, name="other"))) for seed in range(40)]
    assert len(set(drawn)) > 6


def _named(drawn: tuple[str, Any] | None) -> str:
    return "" if drawn is None else drawn[0]
