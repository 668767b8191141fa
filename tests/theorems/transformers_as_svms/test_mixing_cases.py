"""Data on which the best attention mixes tokens: drawn as requested, and predicates notice a violated assumption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.assumptions import assumption_named
from generators.case import Case
from generators.mixing_assumptions import exact_scores, penalty_of, selected_sets, thresholds
from generators.mixing_cases import MIXING, PenaltyPlace, mixing_cases
from reference_attention.optimal_attention import optimal_attention
from tests.theorems.transformers_as_svms.mixing_examples import CASES, FOUR, mixing_case

IDS = ("queries-given", "quadratic-head", "orthonormal-tokens", "decided-attention", "attainable-attention")


def holds_by_assumption(case: Case) -> dict[str, bool | None]:
    return {id: assumption_named(id).check(case).holds for id in IDS}


@settings(max_examples=40)
@given(mixing_cases(where=MIXING, attainable=True))
def test_attainable_cases_satisfy_all_assumptions(case: Case) -> None:
    assert set(holds_by_assumption(case).values()) == {True}


@settings(max_examples=40)
@given(st.sampled_from(PenaltyPlace).flatmap(lambda where: st.tuples(st.just(where), mixing_cases(where=(where,)))))
def test_the_penalty_lies_in_the_requested_range(drawn: tuple[PenaltyPlace, Case]) -> None:
    where, case = drawn
    assert case.queried is not None
    twice, known = 2 * penalty_of(case), thresholds(exact_scores(case.queried)[0])
    assert assumption_named("orthonormal-tokens").check(case).holds
    if where is PenaltyPlace.ON:
        assert twice in known
        assert assumption_named("decided-attention").check(case).holds is False
    elif where is PenaltyPlace.ALL:
        assert twice > max(known)
    elif where is PenaltyPlace.ONE:
        assert twice < min(x for x in known if x > 0)
    else:
        assert twice < max(known)
        assert twice not in known


@settings(max_examples=40)
@given(mixing_cases())
def test_sets_by_thresholds_agree_with_the_projection(case: Case) -> None:
    assert case.queried is not None
    projected = optimal_attention(exact_scores(case.queried), penalty_of(case))
    assert np.array_equal(selected_sets(case), projected.sets)


@pytest.mark.parametrize("name", CASES)
def test_the_mixing_cases_by_hand_satisfy_all_assumptions(name: str) -> None:
    assert set(holds_by_assumption(CASES[name]).values()) == {True}


def changed(**data: Any) -> Case:
    assert FOUR.queried is not None
    return FOUR.replace(queried=replace(FOUR.queried, **data))


@pytest.mark.parametrize(
    ("case", "id", "says"),
    [
        (FOUR.replace(arrays={}), "quadratic-head", "λ is not given"),
        (changed(loss="logistic"), "quadratic-head", "the loss is not −u"),
        (changed(Y=[-1.0]), "quadratic-head", "a label is −1"),
        (mixing_case([np.eye(2)], [[1.0]], [1, 0], -1.0), "quadratic-head", "λ = -1"),
        (
            mixing_case([[[1, 0], [1, 1]]], [[1.0]], [1, 0], 1.0),
            "orthonormal-tokens",
            "tokens 1 and 0 have the inner product 1",
        ),
        (mixing_case([np.eye(3)], [[1.0]], [3, 1, 0], 1.0), "decided-attention", "2λ = 2 is the threshold of token 1"),
        (mixing_case([np.eye(2)], [[1.0]], [1, 0], 4.0), "attainable-attention", "selects every token"),
        (mixing_case([np.eye(3)], [[0.0]], [4, 1, 0], 1.0), "attainable-attention", "no W gives each set equal logits"),
        (
            mixing_case([np.eye(4), np.eye(4)[[1, 0, 2, 3]]], [[1.0], [-1.0]], [4, 3, 2, 1], 1.0),
            "attainable-attention",
            "they contradict a dependency of the rows",
        ),
    ],
)
def test_violated_assumptions_are_noticed(case: Case, id: str, says: str) -> None:
    finding = assumption_named(id).check(case)
    assert not finding.holds
    assert says in finding.evidence


def test_thresholds_of_the_penalty_are_those_found_by_hand() -> None:
    assert thresholds([fmpq(k) for k in (2, 4, 1, 3)]) == [3, 0, 6, 1]
