"""Strategies for cases with queries: locally optimal tokens that are not optimal, and the properties of each family."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase

from generators.case import Case
from generators.hypothesis_driver import drive
from generators.query_assumptions import independent_rows
from generators.query_cases import Family, query_cases
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin

DRAWN = 60


def query_cases_drawn(**options: object) -> list[Case]:
    results: list[Case] = []
    drive(
        query_cases(**options),  # type: ignore[arg-type]
        results.append,
        examples=DRAWN,
        seed=3,
        phases=[Phase.generate],
        unchecked=list(HealthCheck),
        near_copies=False,
    )
    return results


def test_chosen_tokens_are_locally_optimal_and_often_not_optimal() -> None:
    example = query_cases_drawn(alpha="locally-optimal")
    for case in example:
        solution = max_margin(case.problem.exact_keys, case.chosen_tokens)
        assert isinstance(solution, MaxMargin)
        assert locally_optimal(solution, case.problem.scores)
    assert sum(bool((case.chosen_tokens != case.problem.optimal).any()) for case in example) * 3 >= len(example)


def test_drawn_cases_have_independent_rows() -> None:
    example = query_cases_drawn(alpha="locally-optimal", families=(Family.INDEPENDENT,))
    for case in example:
        assert independent_rows(case).holds
    assert sum(bool((case.chosen_tokens != case.problem.optimal).any()) for case in example) * 2 >= len(example)
