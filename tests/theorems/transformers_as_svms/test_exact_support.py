"""The statement on attention that gives exactly τ tokens positive weight: upheld by the reference, and each claim
falsified by a planted fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings

from generators.case import Case
from reference_attention.optimal_attention import optimal_attention
from tests.theorems.transformers_as_svms.mixing_examples import CASES, FOUR, mixing_case
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.transformers_as_svms.exact_support import tsvm_exact_support


def falsified(case: Case, under_test: Implementation) -> set[str]:
    return {
        claim.name for claim in check(tsvm_exact_support, case, under_test).claims if claim.verdict is Verdict.FALSIFIED
    }


@settings(max_examples=20)
@given(tsvm_exact_support.cases())
def test_reference_upholds_generated_cases(case: Case) -> None:
    outcome = check(tsvm_exact_support, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", CASES)
def test_the_statement_on_exact_support_is_upheld_on_cases_by_hand(name: str) -> None:
    outcome = check(tsvm_exact_support, CASES[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize(
    ("fault", "fails"),
    [
        ("mixing-penalty-doubled", {"attention-is-optimal", "risk-is-quadratic", "support-size"}),
        ("mixing-attention-clipped", {"attention-is-optimal", "risk-is-quadratic"}),
        ("mixing-set-off-by-a-token", {"attention-is-optimal", "support-size"}),
    ],
)
def test_planted_faults_falsify_the_claims_on_exact_support(fault: str, fails: set[str]) -> None:
    # The condition is 1 < 2λ = 2 < 8, and the best weights are (3, 1, 0, 0)/4.
    case = mixing_case([np.eye(4)], [[1.0]], [8, 7, 3, 1], 1.0)
    assert falsified(case, fault_named(fault).implementation) >= fails


def test_one_token_where_the_condition_requires_two_is_falsified() -> None:
    """For scores (8, 7, 1, 0) and penalty 2λ = 4 the condition 1 < 4 < 2·6 requires two tokens."""

    def one_only(scores: Any, penalty: fmpq) -> Any:
        right = optimal_attention(scores, penalty)
        return replace(right, weights=tuple((fmpq(1), *(fmpq(0) for _ in row[1:])) for row in right.weights))

    case = mixing_case([np.eye(4)], [[1.0]], [8, 7, 1, 0], 2.0)
    assert falsified(case, REFERENCE.replace("", {optimal_attention: one_only})) >= {
        "condition-suffices",
        "support-size",
    }


def test_the_condition_is_not_necessary() -> None:
    """With scores (4, 3, 2, 1) and 2λ = 2 two tokens have weight, though twice the gap after the second, 2, is not >
    2λ.
    """
    claims = {claim.name for claim in check(tsvm_exact_support, FOUR, REFERENCE).claims}
    assert "condition-suffices" not in claims
    assert int(optimal_attention([[fmpq(k) for k in (4, 3, 2, 1)]], fmpq(1)).sets.sum()) == 2


def test_the_statement_on_exact_support_needs_orthonormal_tokens() -> None:
    case = mixing_case([[[1, 0], [1, 1]]], [[1.0]], [1, 2], 1.0)
    assert check(tsvm_exact_support, case, REFERENCE).verdict is Verdict.NOT_APPLICABLE
