"""Rare data that reveal faults of statements on W: each kind is drawn often enough that a nightly run meets many.

Every property is decided on the drawn case, not read off the strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.query_assumptions import independent_rows, label_separating_queries
from generators.score_assumptions import equal_non_optimal_scores
from reference_attention.exact import rational
from reference_attention.outer_keys import rational_keys
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.run import verify
from theorems.run.registry.lookup import statement_named

EXAMPLES = 120


@cache
def cases_of(id: str) -> tuple[Case, ...]:
    return tuple(verify.draw_cases(statement_named(id), EXAMPLES, 0))


def other_dimension(case: Case) -> bool:
    data = case.queried
    assert data is not None
    return data.X.shape[2] != data.queries.shape[1]


def products_are_no_floats(case: Case) -> bool:
    exact = rational_keys(case.problem.exact_keys).entries()
    return any(rational(x) != y for x, y in zip(case.problem.keys.ravel().tolist(), exact, strict=True))


def only_independent_rows(case: Case) -> bool:
    return label_separating_queries(case).holds is False and independent_rows(case).holds is True


def only_equal_scores(case: Case) -> bool:
    others = label_separating_queries(case).holds, independent_rows(case).holds
    return equal_non_optimal_scores(case).holds is True and others == (False, False)


def only_separating_queries(case: Case) -> bool:
    others = equal_non_optimal_scores(case).holds, independent_rows(case).holds
    return label_separating_queries(case).holds is True and others == (False, False)


def many_tokens(case: Case) -> bool:
    return case.problem.T > 8


def ties(case: Case) -> bool:
    """Return whether a query sees two tokens of one score."""
    assert case.sequence is not None
    return any(len(set(row)) < len(row) for part in case.sequence.parts for row in part.problem.scores.tolist())


def own_start(case: Case) -> bool:
    return case.start is not None


def solved(case: Case) -> MaxMargin:
    solution = max_margin(case.problem.exact_keys, case.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    return solution


def dependent_with_duals(case: Case) -> bool:
    """Return whether the claim offset-limit applies: rows with positive duals are dependent."""
    svm = solved(case)
    return svm.strictly_complementary and not svm.independent


def neighbour_without_dual(case: Case) -> bool:
    """Return whether the claim path-rate-with-logarithm applies: a neighbour has no positive dual."""
    return not solved(case).strictly_complementary


REACHED: tuple[tuple[str, Callable[[Case], Any], float], ...] = (
    *(
        (id, other_dimension, 0.15)
        for id in ("tsvm-frobenius-path", "tsvm-rank", "tsvm-feasibility", "tsvm-local-path")
    ),
    *((id, products_are_no_floats, 0.05) for id in ("tsvm-frobenius-path", "tsvm-rank", "tsvm-sequence")),
    *((id, many_tokens, 0.03) for id in ("tsvm-frobenius-path", "tsvm-risk-floor", "tsvm-feasibility")),
    ("tsvm-no-stationary-point", only_independent_rows, 0.1),
    ("tsvm-no-stationary-point", only_equal_scores, 0.1),
    ("tsvm-no-stationary-point", only_separating_queries, 0.05),
    ("tsvm-no-stationary-point", own_start, 0.9),
    ("descent-from-a-margin", own_start, 0.15),
    ("tsvm-sequence", ties, 0.1),
    ("tsvm-frobenius-path", dependent_with_duals, 0.05),
    ("tsvm-frobenius-path", neighbour_without_dual, 0.1),
)
"""A statement, a property of its cases, and the least share of cases that must have it."""


@pytest.mark.parametrize(("id", "holds", "least"), REACHED, ids=lambda x: getattr(x, "__name__", str(x)))
def test_each_kind_of_rare_data_is_drawn_often_enough(id: str, holds: Callable[[Case], Any], least: float) -> None:
    assert np.mean([bool(holds(case)) for case in cases_of(id)]) >= least
