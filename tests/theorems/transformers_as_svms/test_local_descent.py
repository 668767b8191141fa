"""The statement on gradient descent on W in a cone around W^mm of locally optimal tokens, and faults that it must
catch.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from generators.case import Case
from tests.theorems.transformers_as_svms.local_examples import local_example
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.transformers_as_svms.local_descent import tsvm_local_descent


@given(tsvm_local_descent.cases())
@settings(max_examples=1, deadline=None)
def test_local_descent_is_upheld(case: Case) -> None:
    outcome = check(tsvm_local_descent, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_every_claim_on_local_descent_is_made_on_tokens_that_are_not_optimal() -> None:
    outcome = check(tsvm_local_descent, local_example(), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert {claim.name for claim in outcome.claims} == set(tsvm_local_descent.claims)


@pytest.mark.parametrize(
    ("fault", "by"),
    [
        ("negated-gradient", "no-stationary-point"),
        ("svm-scaled", "svm-is-optimal"),
        ("descent-from-elsewhere", "run-is-the-one-asked-for"),
    ],
)
def test_planted_faults_falsify_the_claims_on_local_descent(fault: str, by: str) -> None:
    outcome = check(tsvm_local_descent, local_example(), fault_named(fault).implementation)
    assert by in {claim.name for claim in outcome.claims if claim.verdict is Verdict.FALSIFIED}
