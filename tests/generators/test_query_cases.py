"""Locally optimal tokens that are not optimal are constructed, and what the families promise stays."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings

from generators.case import Case
from generators.query_assumptions import independent_rows
from generators.query_cases import Family, query_cases
from generators.score_assumptions import distinct_scores
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin

DRAWN = 60


def drawn(**asked: object) -> list[Case]:
    found: list[Case] = []

    @seed(3)
    @settings(
        max_examples=DRAWN,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(query_cases(**asked))  # type: ignore[arg-type]
    def collect(case: Case) -> None:
        found.append(case)

    collect()
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
