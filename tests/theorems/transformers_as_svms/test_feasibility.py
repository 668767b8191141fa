"""The statement that some W separates every choice of tokens: upheld, and each claim falsified by a fault of solver,
formula or data.

Rows are the matrices (x_iα − x_it) z_iᵀ. That generic data have independent rows if T − 1 ≤ d and n(T − 1) ≤ d e is
checked on small grids of sizes by exact ranks, and so is the example in the proof that the statement's docstring gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpz_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Int64

from generators.case import Case
from generators.numbers import Frame
from generators.query_assumptions import independent_rows, independent_tokens_and_queries, label_separating_queries
from generators.query_cases import _independent, independent
from reference_attention.exact import rational_matrix
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import max_margin
from tests.theorems.transformers_as_svms.section_2_cases import CASES, claims_of, falsified
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.faults.svm_faults import with_prompt
from theorems.transformers_as_svms import feasible_weights
from theorems.transformers_as_svms.feasibility import tsvm_feasibility
from theorems.transformers_as_svms.feasible_solution import ANY, BOTH, LABELS, ROWS

ID = "tsvm-feasibility"
WHERE = {
    "single-input": {BOTH, ROWS, LABELS, ANY},
    "self-attention": {BOTH, ROWS, LABELS, ANY},
    "rows-only": {ROWS, LABELS, ANY},
    "many-tokens": {LABELS, ANY},
    "contradicted": set(),
}
"""For each case, the conditions that hold on it and thereby decide which claims are made."""


@settings(max_examples=15)
@given(tsvm_feasibility.cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(tsvm_feasibility, given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", WHERE)
def test_feasibility_makes_and_upholds_its_claims(name: str) -> None:
    claims = claims_of(ID, name, REFERENCE)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())
    whens = {"on every case", *WHERE[name]}
    assert set(claims) == {claim for claim, when in tsvm_feasibility.claims.items() if when in whens}


@pytest.mark.parametrize(
    ("fault", "name", "claims"),
    [
        ("svm-always-infeasible", "self-attention", {"solution-exists"}),
        ("svm-always-infeasible", "many-tokens", {"solution-exists"}),
        ("svm-misses-a-constraint", "self-attention", {"solution-is-feasible"}),
        ("svm-with-bias", "self-attention", {"solution-is-feasible"}),
        (
            "svm-scaled",
            "two-tokens",
            {
                "solution-is-the-projection",
                "solution-is-that-of-the-rows",
                "norm-at-most-by-queries",
                "norm-at-most-by-singular-values",
            },
        ),
        ("svm-coordinate-off", "two-tokens", {"solution-is-that-of-the-rows"}),
        ("svm-coordinate-off", "rows-only", {"solution-is-the-projection"}),
    ],
)
def test_a_wrong_svm_solution_falsifies_the_claims_on_it(fault: str, name: str, claims: set[str]) -> None:
    assert claims <= falsified(ID, name, fault_named(fault).implementation)


def test_a_solution_that_is_too_long_only_on_outer_product_keys_is_caught() -> None:
    def long(keys: Any, alpha: Any) -> Any:
        right = max_margin(keys, alpha)
        if keys.shape[2] == 2:
            return right
        return with_prompt(right, keys, 8 * right.p, [8 * x for x in right.exact.p])  # type: ignore[arg-type, union-attr]

    wrong = REFERENCE.replace("long", {max_margin: long})
    assert {"norm-at-most-by-labels", "solution-is-the-projection"} <= falsified(ID, "many-tokens", wrong)


def test_wrong_formulas_for_separating_weights_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = feasible_weights.by_pseudoinverses

    def halved(data: Any, alpha: Any) -> Any:
        W, sizes = right(data, alpha)
        return W * fmpq(1, 2), sizes

    with monkeypatch.context() as patch:
        patch.setattr(feasible_weights, "by_pseudoinverses", halved)
        names = falsified(ID, "self-attention", REFERENCE)
    assert {"pseudoinverses-give-margin-one", "rows-give-no-longer-one"} <= names
    ones = feasible_weights.all_ones
    with monkeypatch.context() as patch:
        patch.setattr(feasible_weights, "all_ones", lambda rows: ones(rows) * 2)
        names = falsified(ID, "two-tokens", REFERENCE)
    assert {"rows-give-margin-one", "solution-is-that-of-the-rows"} <= names
    gap = feasible_weights.smallest_gap
    with monkeypatch.context() as patch:
        patch.setattr(feasible_weights, "smallest_gap", lambda data: gap(data) * 8)
        names = falsified(ID, "many-tokens", REFERENCE)
    assert "labels-give-margin-one" in names


def test_keys_that_disagree_with_the_data_are_caught() -> None:
    given_case = CASES["single-input"]
    repeated = given_case.problem.keys.copy()
    repeated[0, 2] = repeated[0, 0]
    for keys, claim in (
        (repeated, "independence-of-rows-follows"),
        (1.5 * given_case.problem.keys, "pseudoinverses-give-margin-one"),
    ):
        other = given_case.replace(problem=Problem(keys, given_case.problem.scores))
        outcome = check(tsvm_feasibility, other, REFERENCE)
        wrong = {made.name for made in outcome.claims if made.verdict is Verdict.FALSIFIED}
        assert {"keys-are-outer-products", claim} <= wrong


def test_lower_bounds_of_least_eigenvalues_are_close() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        m = int(rng.integers(1, 5))
        rows = rng.integers(-8, 9, size=(m, int(rng.integers(m, 6)))).astype(np.float64)
        least = float(np.linalg.svd(rows, compute_uv=False)[-1]) ** 2
        if least > 1e-6:
            bound = float(feasible_weights.eigenvalue_bound(rational_matrix(rows)))
            assert (1 - 2e-6) * least <= bound <= least
    # For nearly dependent rows floats find no positive eigenvalue, but the exact bound is positive.
    near = rational_matrix(np.array([[1.0, 1.0], [1.0, 1 + 2.0**-30]]))
    assert 0 < float(feasible_weights.eigenvalue_bound(near)) < 2.0**-60


def test_independent_queries_separate_any_labels() -> None:
    for given_case in CASES.values():
        if independent_tokens_and_queries(given_case).holds:
            assert label_separating_queries(given_case).holds
            assert independent_rows(given_case).holds


def _grid(most: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield sizes (d, e, k, n) with k = T − 1 ≤ d and n k ≤ d e: all k, and for n 1, a middle value and the largest."""
    for d in range(1, most + 1):
        for e in sorted({d, max(1, d - 1), most}):
            for k in range(1, d + 1):
                for n in sorted({1, d * e // k // 2 or 1, d * e // k}):
                    yield d, e, k, n


def _rank(differences: Int64[np.ndarray, "n k d"], queries: Int64[np.ndarray, "n e"]) -> int:
    """Return the exact rank of the rows vec(u zᵀ), for differences u of tokens and queries z."""
    n, k, _ = differences.shape
    rows = np.einsum("nkd,ne->nkde", differences, queries).reshape(n * k, -1)
    return int(fmpz_mat(*rows.shape, rows.ravel().tolist()).rank())


def test_generic_data_have_independent_rows() -> None:
    """One random draw for each size has rows of full rank, with free queries and, if d = e, with tokens as queries."""
    for d, e, k, n in _grid(5):
        rng = np.random.default_rng([d, e, k, n])
        X, Z = rng.integers(-999, 1000, size=(n, k + 1, d)), rng.integers(-999, 1000, size=(n, e))
        differences = X[:, :1] - X[:, 1:]
        assert _rank(differences, Z) == n * k, ("cross", d, e, k, n)
        if d == e:
            assert _rank(differences, X[:, 0]) == n * k, ("self", d, k, n)


def test_the_example_in_the_proof_has_independent_rows() -> None:
    """The example has coordinate vectors as differences of tokens, used cyclically, and queries (1, i, i², …), of which
    any e are independent.
    """
    for d, e, k, n in _grid(5):
        served = np.arange(n * k).reshape(n, k) % d
        Z = np.arange(1, n + 1)[:, None] ** np.arange(e)
        assert np.bincount(served.ravel()).max() <= e
        assert _rank(np.eye(d, dtype=np.int64)[served], Z.astype(np.int64)) == n * k, (d, e, k, n)


@settings(max_examples=10)
@given(st.data())
def test_another_token_serves_as_the_query_if_no_first_token_can(data: st.DataObject) -> None:
    """Scores of first tokens are 0, so that first tokens in the plane are parallel: 4 rows of rank 2."""
    X = np.array([[[0.0, 1.0], [a, 2.0]] for a in (1.0, 2.0, -1.0, 0.5)])
    frame = Frame(4, 2, 2, (4, 2, 2))
    made = _independent(frame, X, X[:, 0], np.ones(4), self_attention=True, unused=None, opposed=False)
    nudged, queries = data.draw(made)
    assert (nudged[:, :, 0] == X[:, :, 0]).all()
    assert independent(OuterKeys(nudged, queries), np.zeros(4, dtype=np.int64))


def test_more_rows_than_dimensions_are_dependent() -> None:
    """If T − 1 > d or n(T − 1) > d e, one input or all inputs together have more rows than dimensions."""
    rng = np.random.default_rng(0)
    for k, n, most in ((3, 1, 2), (2, 3, 4)):
        X, Z = rng.integers(-99, 100, size=(n, k, 2)), rng.integers(-99, 100, size=(n, 2))
        assert _rank(X, Z) == most < n * k
