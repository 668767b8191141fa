"""The statement on the low rank of W^mm: upheld by the reference, each claim falsified by a planted fault; its bounds
are attained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import fmpq_mat
from hypothesis import given, settings

from generators.case import Case
from reference_attention.query_dataset import QueryDataset, outer_keys_and_scores
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.theorems.transformers_as_svms.section_2_cases import CASES, claims_of, falsified
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.dataset_claims import query_claims
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.transformers_as_svms.faults.outer_key_faults import TOKENS, _transpose_outer
from theorems.transformers_as_svms.rank import tsvm_rank

ID = "tsvm-rank"
SPANS = {"rows-in-span-of-queries", "columns-in-span-of-differences"}
FEASIBLE = [name for name in CASES if not name.startswith("contradicted")]


@settings(max_examples=20)
@given(tsvm_rank.cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(tsvm_rank, given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", FEASIBLE)
def test_the_statement_on_rank_is_upheld_on_cases_by_hand(name: str) -> None:
    outcome = check(tsvm_rank, CASES[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_each_claim_on_rank_is_made_on_some_case() -> None:
    claims = {claim for name in ("single-input", "orthogonal-queries") for claim in claims_of(ID, name, REFERENCE)}
    assert claims | {"keys-are-outer-products"} == set(tsvm_rank.claims)


def test_the_statement_on_rank_does_not_apply_where_no_w_separates() -> None:
    assert check(tsvm_rank, CASES["contradicted"], REFERENCE).verdict is Verdict.NOT_APPLICABLE


def test_a_solution_with_a_wrong_coordinate_violates_the_claims_on_spans_and_rank() -> None:
    wrong = fault_named("svm-coordinate-off").implementation
    names = falsified(ID, "single-input", wrong)
    assert names >= SPANS | {"svm-is-optimal", "token-svm-is-optimal", "single-input-is-rank-one"}
    assert "rank-at-most-supporting-inputs" in names
    assert "orthogonal-queries-decouple" in falsified(ID, "orthogonal-queries", wrong)


@pytest.mark.parametrize("fault", ["svm-scaled", "svm-misses-a-constraint", "svm-with-bias", "neighbour-lost"])
def test_a_wrong_solution_is_caught_by_the_certificate(fault: str) -> None:
    assert "svm-is-optimal" in falsified(ID, "orthogonal-queries", fault_named(fault).implementation)


def test_wrong_solutions_for_single_inputs_are_caught_by_their_sum() -> None:
    """The solver is right for outer-product keys and wrong for single tokens, so W^mm is not the sum of the inputs'
    parts.
    """

    def narrow(keys: Any, alpha: Any) -> Any:
        wide = keys if keys.shape[2] > 3 else np.concatenate([keys[..., :1], 2 * keys[..., 1:]], axis=2)
        return max_margin(wide, alpha)

    wrong = REFERENCE.replace("stretched tokens", {max_margin: narrow})
    assert {"token-svm-is-optimal", "orthogonal-queries-decouple"} == falsified(ID, "orthogonal-queries", wrong)


def test_the_rank_counts_only_inputs_with_a_dual() -> None:
    """The third input is the first with tokens of twice the length, so its dual is 0 and W^mm has rank 2, not 3."""
    base = CASES["orthogonal-queries"].queried
    assert base is not None
    X = np.concatenate([base.X, 2 * base.X[:1]])
    queries = np.concatenate([base.queries, base.queries[:1]])
    keys = np.einsum("ntd,ne->ntde", X, queries).reshape(3, 3, 9)
    solution = max_margin(keys, np.array([0, 2, 0]))
    assert isinstance(solution, MaxMargin)
    assert {i for i, _ in solution.exact.duals} == {0, 1}
    assert int(fmpq_mat(3, 3, list(solution.exact.p)).rank()) == 2


def test_transposed_weights_of_least_nuclear_norm_are_caught_by_spans_and_columns() -> None:
    name = next(name for name in FEASIBLE if "nuclear-rank-by-tight-constraints" in claims_of(ID, name, REFERENCE))
    swapped = fault_named("nuclear-factors-swapped").implementation
    names = set().union(*(falsified(ID, name, swapped) for name in FEASIBLE))
    assert names >= {"nuclear-rows-in-span-of-queries", "nuclear-columns-in-span-of-differences"}
    doubled = falsified(ID, name, fault_named("nuclear-columns-doubled").implementation)
    assert doubled >= {"nuclear-svm-is-optimal", "nuclear-rank-by-tight-constraints"}
    assert "nuclear-rank-at-most-supporting-inputs" in falsified(
        ID, "single-input", fault_named("nuclear-columns-doubled").implementation
    )


def test_the_fault_of_transposed_outer_products_transposes_each_product() -> None:
    data = QueryDataset([[[1.0, 2.0], [3.0, 4.0]]], [[5.0, 6.0, 7.0]], [1.0], [1.0, 0.0], "correlation")
    keys, _ = _transpose_outer(outer_keys_and_scores, data)
    assert keys.tolist() == [[[5, 10, 6, 12, 7, 14], [15, 20, 18, 24, 21, 28]]]


@pytest.mark.parametrize("fault", TOKENS, ids=lambda fault: fault.name)
def test_wrong_outer_products_are_caught_by_the_claim_on_keys(fault) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    data = QueryDataset(rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4)), [-1, 1], rng.normal(size=4))
    case = Case(data.problem, queried=data)
    assert all(claim.verdict is Verdict.UPHELD for claim in query_claims(case, REFERENCE))
    claims = query_claims(case, fault.implementation)
    assert [claim.name for claim in claims if claim.verdict is not Verdict.UPHELD] == ["keys-are-outer-products"]
