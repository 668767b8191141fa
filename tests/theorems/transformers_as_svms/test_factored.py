"""Flow and descent on (K, Q): what is claimed is made, upheld, and falsified by planted faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.assumptions import assumption_named
from generators.case import Case
from reference_attention.query_dataset import QueryDataset
from tests.theorems.token_selection.faults import planted
from tests.theorems.token_selection.global_paths.test_descent_from_a_margin import seen
from tests.theorems.token_selection.path_cases import claims_of, statement
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults.factored_faults import FACTORED_FAULTS

FLOW, DESCENT = "tsvm-factored-flow", "tsvm-factored-descent"


def queried(X: Any, queries: Any, Y: Any, v: Any, **arrays: Any) -> Case:
    data = QueryDataset(X, queries, Y, v)
    held = {name: np.array(value, dtype=np.float64) for name, value in arrays.items()}
    return Case(data.problem, queried=data, arrays=held).normalise()


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
}
FLOW_CATCHES = {
    "factor-frozen": {"imbalance-is-conserved", "flow-chords"},
    "factors-normalised-apart": {"imbalance-is-conserved", "flow-chords"},
    "factors-at-two-speeds": {"imbalance-is-conserved"},
    "factors-of-rank-one": {"flow-is-the-one-asked-for"},
    "factors-rotated": {"imbalance-is-conserved"},
    "gradient-too-long": {"certificate"},
}


@pytest.mark.parametrize("id", [FLOW, DESCENT])
def test_reference_upholds_generated_cases(id: str) -> None:
    @settings(max_examples=4)
    @given(statement(id).cases())
    def upheld(case: Case) -> None:
        outcome = check(statement(id), case, REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason

    upheld()


@pytest.mark.parametrize("id", [FLOW, DESCENT])
def test_every_claim_is_made_and_upheld(id: str) -> None:
    claims = claims_of(id, CASE, REFERENCE)
    assert set(claims) == set(statement(id).claims)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_descent_catches_each_fault(fault: str) -> None:
    assert seen(CASE, planted(fault)[fault], CAUGHT_BY[fault], DESCENT)


@pytest.mark.parametrize("fault", [name for name in FLOW_CATCHES if name != "gradient-too-long"])
def test_the_flow_catches_each_fault(fault: str) -> None:
    assert seen(CASE, planted(fault)[fault], FLOW_CATCHES[fault], FLOW)


def test_every_fault_of_factors_is_shown_to_be_caught() -> None:
    assert {fault.name for fault in FACTORED_FAULTS} <= {*CAUGHT_BY, *FLOW_CATCHES, "factored-step-without-square"}


def test_a_step_without_the_square_ascends_from_uneven_factors() -> None:
    fault = planted("factored-step-without-square")["factored-step-without-square"]
    case = next(one for one in (CASE.replace(seed=k) for k in range(20)) if not _upheld(one, fault))
    assert claims_of(DESCENT, case, fault)["descends"].verdict is not Verdict.UPHELD


def _upheld(case: Case, implementation: Any) -> bool:
    return check(statement(DESCENT), case, implementation).verdict is Verdict.UPHELD


def test_a_start_of_ones_own_is_taken_if_it_is_definite() -> None:
    assumption = assumption_named("definite-imbalance")
    definite = queried(*TWO, K0=[[2, 0], [0, 2]], Q0=[[1, 0], [0, 1]])
    edge = queried(*TWO, K0=[[1, 0], [0, 2]], Q0=[[1, 0], [0, 1]])
    thin = queried(*TWO, K0=[[2], [2]], Q0=[[1], [1]])
    assert [assumption.check(case).holds for case in (CASE, definite, edge, thin)] == [True, True, False, False]
