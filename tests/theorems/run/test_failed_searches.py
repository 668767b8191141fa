"""Searches of the suite (for a minimiser, say) that find nothing: counted on generated cases, inconclusive on a user's
data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from generators.case import Case
from generators.user_data import Given
from reference_attention.problem import Problem
from tests.theorems.fake_statements import fake_statement, install
from theorems.core.check import check
from theorems.core.claim import Claim, Form, Verdict, undecided_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.tolerances import EXACT
from theorems.run.verify import verify_data, verify_generated

HOLDS = Claim("holds", Form.EXACT, 0.0, 0.0, EXACT)
NOT_FOUND = replace(undecided_claim("limit", "in distress", Form.LIMIT), not_found=True)


def lost_at_three(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search finds nothing if there are three tokens."""
    yield HOLDS
    if case.problem.T == 3:
        yield NOT_FOUND


def lost_with_another(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search succeeds with the reference only."""
    yield HOLDS if under_test.name == "reference" else NOT_FOUND


def undecided_besides(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search finds nothing, and a second claim that is undecided by rounding."""
    yield NOT_FOUND
    yield undecided_claim("other", "rounding")


def never_found(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim whose search never finds anything."""
    yield NOT_FOUND


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    conclusions = (lost_at_three, lost_with_another, undecided_besides, never_found)
    install(monkeypatch.setattr, {item.__name__: fake_statement(item.__name__, item) for item in conclusions})


def test_failed_searches_on_some_generated_cases_are_counted() -> None:
    result = verify_generated("lost_at_three", 40, 0)
    lost = result.counts[Verdict.INCONCLUSIVE]
    assert 0 < lost <= 20
    assert (result.verdict, result.not_found, result.failure) == (Verdict.UPHELD, lost, None)
    assert f"{lost} of 40 examples inconclusive: limit: in distress" in result.reason
    assert result.as_json()["not_found"] == lost


def test_a_search_that_fails_on_every_case_is_inconclusive() -> None:
    assert verify_generated("never_found", 5, 0).verdict is Verdict.INCONCLUSIVE


def test_a_failed_search_on_user_data_is_inconclusive() -> None:
    case = Case(Problem(np.zeros((1, 3, 1)), np.zeros((1, 3))))
    assert verify_data("lost_at_three", Given(case)).verdict is Verdict.INCONCLUSIVE


def test_a_search_that_succeeds_on_the_reference_does_not_count_as_failed() -> None:
    case = Case(Problem(np.zeros((1, 2, 1)), np.zeros((1, 2))))
    one = fake_statement("lost_with_another", lost_with_another)
    assert check(one, case, REFERENCE).verdict is Verdict.UPHELD
    outcome = check(one, case, REFERENCE.replace("another"))
    assert (outcome.verdict, outcome.not_found) == (Verdict.INCONCLUSIVE, False)
    assert verify_generated("lost_with_another", 5, 0, REFERENCE.replace("another")).verdict is Verdict.INCONCLUSIVE


def test_a_case_that_is_also_undecided_does_not_count_as_a_failed_search() -> None:
    assert verify_generated("undecided_besides", 5, 0).not_found == 0
