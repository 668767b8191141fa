"""Claims on keys, scores, p_mm and the flags of p_mm: right values are upheld and wrong ones are falsified."""

from __future__ import annotations

import numpy as np
import pytest

from generators.case import Case
from reference_attention.problem import Dataset, Problem, keys_and_scores
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.claim import Verdict
from theorems.core.dataset_claims import dataset_claims
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.svm_certificate import local_optimality_claim, svm_claim
from theorems.faults import FAULTS
from theorems.faults.flag_faults import FAULTS as FLAG_FAULTS
from theorems.faults.token_faults import FAULTS as TOKEN_FAULTS


def random_case(square: bool = True) -> Case:
    rng = np.random.default_rng(0)
    data = Dataset(
        rng.normal(size=(2, 3, 4)), [-1, 1], rng.normal(size=4), rng.normal(size=(4 if square else 2, 4)) * 1e-90
    )
    return Case(data.problem, dataset=data)


def failing_claims(case: Case, under_test: Implementation) -> list[str]:
    return [claim.name for claim in dataset_claims(case, under_test) if claim.verdict is not Verdict.UPHELD]


def test_the_reference_computes_products_within_half_an_ulp_in_any_unit() -> None:
    for case in (random_case(), random_case(square=False)):
        assert len(list(dataset_claims(case, REFERENCE))) == 2
        assert not failing_claims(case, REFERENCE)
        assert not failing_claims(case.normalise(), REFERENCE)
    assert not list(dataset_claims(Case(random_case().problem), REFERENCE))


@pytest.mark.parametrize("fault", TOKEN_FAULTS, ids=lambda fault: fault.name)
def test_wrong_products_of_factors_are_caught(fault) -> None:  # type: ignore[no-untyped-def]
    (result,) = failing_claims(random_case(), fault.implementation)
    assert result == ("keys-are-products" if fault.name.startswith("keys") else "scores-are-products")


def test_an_error_of_one_unit_in_the_last_place_is_caught_in_results_and_in_data() -> None:
    case = random_case()
    assert case.dataset is not None
    keys = np.nextafter(case.problem.keys, np.inf)

    def off(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        return keys, data.problem.scores

    assert failing_claims(case, REFERENCE.replace("", {keys_and_scores: off})) == ["keys-are-products"]
    scores = np.nextafter(case.problem.scores, np.inf)
    assert failing_claims(case.replace(problem=Problem(case.problem.keys, scores)), REFERENCE) == [
        "scores-are-products"
    ]
    assert failing_claims(case, REFERENCE.replace("", {keys_and_scores: lambda data: (keys[:1], scores)})) != []


def test_half_way_between_two_floats_either_is_accepted() -> None:
    data = Dataset([[[1.0, 2.0**-53], [0.0, 0.0]]], [1], [1.0, 1.0])
    case = Case(data.problem, dataset=data)
    assert not failing_claims(case, REFERENCE)
    up = np.array([[1 + 2.0**-52, 0.0]])
    assert not failing_claims(case, REFERENCE.replace("", {keys_and_scores: lambda data: (data.X, up)}))
    assert failing_claims(case, REFERENCE.replace("", {keys_and_scores: lambda data: (data.X, np.nextafter(up, 2.0))}))


DEPENDENT = Problem([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0, 0.0]])
"""Two equal constraints k·p ≥ 1: they are linearly dependent, and both can have a positive dual."""
WITHOUT_DUAL = Problem([[[0.0, 0.0], [-1.0, 0.0], [-1.0, -5.0]]], [[1.0, 0.0, 0.0]])
"""p_mm = (1, 0) solves the first constraint alone; the second token, with k = (1, 5), is a neighbour of dual 0."""
SIMPLE = Problem([[[1.0, 0.0], [0.0, 0.0], [-3.0, 5.0]]], [[1.0, 0.0, 2.0]])


@pytest.mark.parametrize("problem", [DEPENDENT, WITHOUT_DUAL, SIMPLE])
def test_right_flags_of_p_mm_are_upheld_and_wrong_ones_are_falsified(problem: Problem) -> None:
    svm = max_margin(problem.keys, [0])
    assert isinstance(svm, MaxMargin)
    assert svm_claim(problem, svm.alpha, svm).verdict is Verdict.UPHELD
    for fault in FLAG_FAULTS:
        forced = fault.implementation[max_margin](problem.exact_keys, svm.alpha)
        assert isinstance(forced, MaxMargin)
        changed = forced.independent != svm.independent or forced.strictly_complementary != svm.strictly_complementary
        verdict = svm_claim(problem, svm.alpha, forced).verdict
        assert verdict is (Verdict.FALSIFIED if changed else Verdict.UPHELD), fault.name


def test_p_relax_is_upheld_only_for_the_inputs_whose_margins_it_must_have() -> None:
    keys = np.array([[[1.0, 0.0], [0.0, 0.0]], [[-1.0, 3.0], [0.0, 0.0]]])
    problem, alpha, support = Problem(keys, [[1.0, 0.0]] * 2), np.zeros(2, dtype=np.int64), np.array([True, False])
    relaxed, full = relaxed_max_margin(keys, alpha, support), max_margin(keys, alpha)
    assert isinstance(relaxed, MaxMargin)
    assert isinstance(full, MaxMargin)
    assert svm_claim(problem, alpha, relaxed, required=support.astype(np.int64)).verdict is Verdict.UPHELD
    assert svm_claim(problem, alpha, full, required=support.astype(np.int64)).verdict is Verdict.FALSIFIED
    assert svm_claim(problem, alpha, relaxed).verdict is Verdict.FALSIFIED


@pytest.mark.parametrize("name", ["always-locally-optimal", "never-locally-optimal", "locally-optimal-with-ties"])
def test_local_optimality_is_tested_with_higher_lower_and_equal_scores(name: str) -> None:
    svm = max_margin(SIMPLE.keys, [0])
    assert isinstance(svm, MaxMargin)
    assert local_optimality_claim(SIMPLE, svm.alpha, svm, REFERENCE).verdict is Verdict.UPHELD
    faulty = FAULTS[name].implementation
    assert local_optimality_claim(SIMPLE, svm.alpha, svm, faulty).verdict is Verdict.FALSIFIED
