"""The statement on descent on (K, Q): every claim is made, upheld, and falsified by a planted fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.factorization import safe_step_of
from tests.theorems.token_selection.faults import planted
from tests.theorems.token_selection.global_paths.test_descent_from_a_margin import falsifies_all
from tests.theorems.token_selection.path_cases import claims_of, statement
from theorems.bounded import value_of
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.transformers_as_svms.curves.factored_certificate import (
    signed_variances,
)
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints
from theorems.transformers_as_svms.faults.factored_faults import RUN, STEP

DESCENT = "tsvm-factored-descent"


def queried(X: Any, queries: Any, Y: Any, v: Any, **arrays: Any) -> Case:
    data = QueryDataset(X, queries, Y, v)
    values = {name: np.array(value, dtype=np.float64) for name, value in arrays.items()}
    return Case(data.problem, queried=data, arrays=values).normalise()


TWO = ([[[1, 2], [-1, 1], [0, -1]], [[-1, 0], [2, 1], [0, 2]]], [[1, 0.5], [-0.5, 1]], [1, -1], [1, 0])
CASE = queried(*TWO)

CAUGHT_BY = {
    "factor-frozen": {"imbalance-changes-by", "iterate-is-a-step", "imbalance-drifts-at-most"},
    "factors-normalised-apart": {"imbalance-changes-by", "normalized-iterate-is-a-step"},
    "factors-get-the-gradient-of-w": {"imbalance-changes-by"},
    "factors-swapped": {"imbalance-changes-by", "iterate-is-a-step"},
    "factor-not-transposed": {"imbalance-changes-by"},
    "factors-at-two-speeds": {"imbalance-changes-by"},
    "factors-of-rank-one": {"run-is-the-one-asked-for"},
    "factors-rotated": {"imbalance-changes-by"},
    "factored-descent-stands-still": {"step-is-as-long-as-is-safe"},
}


def test_the_statement_on_factors_is_upheld_on_generated_cases() -> None:
    @settings(max_examples=4)
    @given(statement(DESCENT).cases())
    def upheld(case: Case) -> None:
        outcome = check(statement(DESCENT), case, REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason

    upheld()


def test_every_claim_on_factors_is_made_and_upheld() -> None:
    claims = claims_of(DESCENT, CASE, REFERENCE)
    assert set(claims) == set(statement(DESCENT).claims)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_each_planted_fault_falsifies_claims_on_descent_on_factors(fault: str) -> None:
    assert falsifies_all(CASE, planted(fault)[fault], CAUGHT_BY[fault], DESCENT)


def test_every_fault_of_factors_is_in_a_table_of_caught_faults() -> None:
    assert {fault.name for fault in (*RUN, *STEP)} <= {*CAUGHT_BY, "factored-step-without-square"}


def test_a_step_without_the_square_may_ascend_from_uneven_factors() -> None:
    fault = planted("factored-step-without-square")["factored-step-without-square"]
    case = next(item for item in (CASE.replace(seed=k) for k in range(20)) if not _upheld(item, fault))
    assert claims_of(DESCENT, case, fault)["descends"].verdict is not Verdict.UPHELD


def _upheld(case: Case, implementation: Any) -> bool:
    return check(statement(DESCENT), case, implementation).verdict is Verdict.UPHELD


def test_steps_of_half_the_safe_length_are_falsified(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim covers all steps of two runs; each step under test is half as long, so the slack is −log 2."""
    module = "reference_attention.training.factored_descent.safe_step_of"
    monkeypatch.setattr(module, lambda *of: safe_step_of(*of) - np.log(2.0))
    claim = claims_of(DESCENT, CASE, REFERENCE)["step-is-as-long-as-is-safe"]
    assert claim.verdict is Verdict.FALSIFIED
    assert claim.slack == pytest.approx(-np.log(2.0), rel=1e-9)


def test_signed_variances_are_those_of_scores_under_the_softmax_weights() -> None:
    points = FactoredPoints.of(CASE.problem, np.eye(2)[None], np.eye(2)[None])
    weights, scores = value_of(points.at.weights)[0], CASE.problem.scores
    means = (weights * scores).sum(axis=1)
    slopes = np.exp(CASE.problem.loss.log_slope(means))
    due = slopes * (weights * (scores - means[:, None]) ** 2).sum(axis=1)
    result = value_of(signed_variances(points.at))[0] * np.exp(points.at.log_scale[0])
    assert result == pytest.approx(due, rel=1e-12)


def test_a_normalized_step_of_unresolved_direction_leaves_all_claims_upheld() -> None:
    """The first gradient of the normalized run is smaller than its rounding, though the step has the usual length."""
    X = [
        [[0, 0, 0], [-0.25, 0, 3], [-0.25, 0, 0]],
        [[0, 0, 0], [0.25, 0, 2.9375], [0.25 - 2.0**-22, 0, -3]],
        [[-(2.0**-22), 0, 0], [0, 0, 0], [-0.25, 0, 0]],
        [[-(2.0**-22), 0, 0], [0, 0, 0], [-0.25, 0, 0]],
    ]
    data = QueryDataset(X, [[0, 2], [0, 4], [0, 1], [0, 1]], [1, 1, 1, 1], [1, 0, 0], "correlation")
    case = Case(data.problem, queried=data, seed=336).normalise()
    outcome = check(statement(DESCENT), case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
