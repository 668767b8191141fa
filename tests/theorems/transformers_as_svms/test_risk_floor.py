"""The statement on the infimum of the risk, with bounds of the excess risk from both sides: upheld by the reference,
each claim falsified by a planted fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.query_dataset import outer_keys_and_scores
from reference_attention.risk import log_excess_risk, risk
from tests.theorems.transformers_as_svms.section_2_cases import CASES, claims_of, falsified
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.transformers_as_svms.risk_floor import tsvm_risk_floor

ID = "tsvm-risk-floor"


@dataclass(frozen=True)
class Scaled:
    """Implementations in which the risk or the excess risk is multiplied by a factor."""

    factor: float

    def risk(self, *arguments: Any) -> Any:
        return self.factor * risk(*arguments)

    def excess(self, *arguments: Any) -> Any:
        sign, size = log_excess_risk(*arguments)
        return sign, size + math.log(self.factor)

    @property
    def in_excess(self) -> Implementation:
        return REFERENCE.replace("scaled excess", {log_excess_risk: self.excess})

    @property
    def in_risk(self) -> Implementation:
        return REFERENCE.replace("scaled risk", {risk: self.risk})


@settings(max_examples=15)
@given(tsvm_risk_floor.cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(tsvm_risk_floor, given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", CASES)
def test_the_statement_on_the_infimum_is_upheld_on_cases_by_hand(name: str) -> None:
    outcome = check(tsvm_risk_floor, CASES[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_each_claim_on_the_infimum_is_made_on_some_case() -> None:
    claims = {claim for name in ("self-attention", "contradicted") for claim in claims_of(ID, name, REFERENCE)}
    assert claims == set(tsvm_risk_floor.claims)
    # If no W separates, other claims are still made.
    assert "excess-on-the-ray-at-most" not in claims_of(ID, "contradicted", REFERENCE)
    assert "excess-stays-away" not in claims_of(ID, "self-attention", REFERENCE)


@pytest.mark.parametrize("name", ["self-attention", "many-tokens", "contradicted-logistic"])
def test_lower_and_upper_bounds_of_the_excess_risk_can_fail(name: str) -> None:
    low, high = falsified(ID, name, Scaled(1e-3).in_excess), falsified(ID, name, Scaled(1e3).in_excess)
    lower = {"excess-at-least", "excess-at-least-by-slopes", "excess-at-least-by-margins"}
    upper = {"excess-at-most", "excess-at-most-by-slopes", "excess-at-most-by-margins"}
    away = name.startswith("contradicted")
    assert low == lower | {"excess-stays-away" if away else "excess-on-the-ray-at-least"}
    assert high == upper | (set() if away else {"excess-on-the-ray-at-most"})


@pytest.mark.parametrize("name", ["single-input", "self-attention", "many-tokens"])
def test_bounds_by_slopes_catch_an_excess_risk_that_is_wrong_by_1e_9(name: str) -> None:
    """The losses of the three cases are logistic, partly concave, and linear."""
    for factor, side in ((1 - 1e-9, "at-least"), (1 + 1e-9, "at-most")):
        names = falsified(ID, name, Scaled(factor).in_excess)
        assert f"excess-{side}-by-slopes" in names
        assert all(side in claim for claim in names)


def test_the_claims_on_a_kernel_s_risk_can_fail() -> None:
    assert falsified(ID, "self-attention", Scaled(0.9).in_risk) == {"risk-at-least"}
    assert falsified(ID, "self-attention", fault_named("risk-too-large").implementation) == {"risk-at-most"}
    assert falsified(ID, "many-tokens", fault_named("negated-logits").implementation) & {
        "risk-at-least",
        "risk-at-most",
    }


def test_after_a_wrong_svm_solution_no_other_claim_is_made() -> None:
    for name in ("svm-scaled", "svm-coordinate-off", "svm-misses-a-constraint"):
        assert falsified(ID, "self-attention", fault_named(name).implementation) == {"svm-is-optimal"}
    given_up = fault_named("svm-always-infeasible").implementation
    assert falsified(ID, "self-attention", given_up) == {"infeasibility-is-proven"}


def test_wrong_keys_and_scores_are_caught() -> None:
    def off(data: Any) -> Any:
        keys, scores = outer_keys_and_scores(data)
        return keys * (1 + 1e-6), scores * (1 + 1e-6)

    wrong = REFERENCE.replace("off", {outer_keys_and_scores: off})
    assert {"keys-are-outer-products", "scores-are-products"} <= falsified(ID, "self-attention", wrong)


@pytest.mark.parametrize(("fault", "eps"), [("cancelling-gradient", EPS), ("float32-softmax", 2.0**-23)])
def test_for_a_textbook_kernel_only_claims_on_its_risk_are_made_and_upheld(fault: str, eps: float) -> None:
    kernel = replace(fault_named(fault).implementation, textbook_eps=eps)
    for name in ("self-attention", "many-tokens", "contradicted"):
        claims = claims_of(ID, name, kernel)
        assert {"risk-at-least", "risk-at-most"} <= set(claims)
        assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())
        assert not any(claim.startswith("excess") for claim in claims)
    hot = replace(fault_named("temperature").implementation, textbook_eps=eps)
    assert falsified(ID, "many-tokens", hot) & {"risk-at-least", "risk-at-most"}


def test_an_excess_risk_of_zero_is_falsified() -> None:
    """An excess risk of 0 violates the lower bound, however small that bound is."""

    def none(*arguments: Any) -> Any:
        sign, size = log_excess_risk(*arguments)
        return 0 * sign, np.full_like(size, -np.inf)

    assert "excess-at-least" in falsified(
        ID, "self-attention", REFERENCE.replace("at the floor", {log_excess_risk: none})
    )
