"""Locally optimal tokens that are not optimal are constructed, and what the families promise stays."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase

from generators.case import Case
from generators.hypothesis_driver import drive
from generators.query_assumptions import independent_rows
from generators.query_cases import Family, query_cases
from generators.score_assumptions import distinct_scores
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin

DRAWN = 60


def drawn(**asked: object) -> list[Case]:
    found: list[Case] = []
    drive(
        query_cases(**asked),  # type: ignore[arg-type]
        found.append,
        examples=DRAWN,
        seed=3,
        phases=[Phase.generate],
        unchecked=list(HealthCheck),
        near_copies=False,
    )
    return found


def test_alpha_is_locally_optimal_and_often_not_optimal() -> None:
    made = drawn(alpha="locally-optimal")
    for case in made:
        solution = max_margin(case.problem.exact_keys, case.chosen_tokens)
        assert isinstance(solution, MaxMargin)
        assert locally_optimal(solution, case.problem.scores)
    assert sum(bool((case.chosen_tokens != case.problem.optimal).any()) for case in made) * 3 >= len(made)


def test_rows_stay_independent_and_scores_distinct() -> None:
    made = drawn(alpha="locally-optimal", families=(Family.INDEPENDENT,), distinct=True)
    for case in made:
        assert independent_rows(case).holds
        assert distinct_scores(case).holds
    assert sum(bool((case.chosen_tokens != case.problem.optimal).any()) for case in made) * 2 >= len(made)
