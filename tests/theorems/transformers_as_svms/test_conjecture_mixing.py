"""The conjecture that descent with a ReLU head, whose attention mixes tokens, grows along the solution of Gen-SVM:
upheld by the reference; planted faults make it falsified or undecided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from generators.optimal_sets import HEAD_ARRAYS, head_of
from generators.relu_heads import RELU, STEP, STEPS, capped_head_cases, masked_tokens_cost, relu_head
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.relu_descent import ReluRun
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.transformers_as_svms.conjecture_mixing import conjecture_mixing, growth_claims


def relu_case(X: Any, queries: Any, units: Any, weights: Any, Y: Any = None) -> Case:
    """Return a case with the given tokens (n, T, d), queries, features of m ReLU units (n, T, m) and weights of the
    head.
    """
    X, labels = np.array(X, dtype=np.float64), np.ones(len(X)) if Y is None else np.array(Y, dtype=np.float64)
    data = QueryDataset(X, queries, labels, np.ones(X.shape[2]))
    codes = np.full(len(weights), float(RELU))
    arrays = dict(zip(HEAD_ARRAYS, (np.array(units), np.array(weights), codes, labels), strict=True))
    return Case(data.problem, queried=data, arrays=arrays, seed=3)


EYE = np.eye(4)
CAPPED = relu_case(
    [EYE], [[1.0]], np.stack([[8.0, 7.75, 1.0, 2.0] + 0 * EYE[0], EYE[:, 0] - 0.5], axis=-1)[None], [1.0, -0.75]
)
"""A case in which the first token is worth 1/4 more than the second, but only up to the weight 1/2."""
TOKENS = np.array([[[2.0, 0.0], [0.0, 1.0]], [[-1.0, 0.0], [0.0, -1.0]]])
DEAD = relu_case(TOKENS, [[1.0], [1.0]], TOKENS, [1.0, 1.0], [1, -1])
"""A case in which all ReLU units are 0 for the second input, whatever its attention."""


@settings(max_examples=4)
@given(capped_head_cases())
def test_reference_upholds_generated_cases(case: Case) -> None:
    assert relu_head(case).holds
    outcome = check(conjecture_mixing, case, REFERENCE)
    assert outcome.verdict in (Verdict.UPHELD, Verdict.NOT_APPLICABLE), outcome.reason


def verdicts(under_test: Implementation) -> dict[str, Verdict]:
    return {claim.name: claim.verdict for claim in check(conjecture_mixing, CAPPED, under_test).claims}


def test_attention_stays_half_and_half_and_every_claim_is_made() -> None:
    result = verdicts(REFERENCE)
    assert set(result.values()) == {Verdict.UPHELD}
    assert set(result) == set(conjecture_mixing.claims)
    run = ReluRun.of(CAPPED.problem, head_of(CAPPED), 0.1, 2000)
    weights = np.mean([run.weights(k) for k in range(1900, 2001)], axis=0)
    assert weights == pytest.approx(np.array([[0.5, 0.5, 0.0, 0.0]]), abs=0.02)


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        ("negated-gradient", "steps-are-of-the-head"),
        ("one-coordinate-off", "steps-are-of-the-head"),
        ("diagonal-jacobian", "steps-are-of-the-head"),
        ("gen-svm-masks-one-more", "general-svm-is-optimal"),
        ("gen-svm-without-equalities", "general-svm-is-optimal"),
    ],
)
def test_planted_faults_falsify_the_intended_claims_of_the_mixing_conjecture(fault: str, claim: str) -> None:
    assert verdicts(fault_named(fault).implementation)[claim] is Verdict.FALSIFIED


def test_growth_along_another_svm_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the set of mixed tokens has one token less, the run does not grow along the solution of that Gen-SVM."""
    monkeypatch.setattr("theorems.transformers_as_svms.conjecture_mixing.SELECTED", 0.505)
    late = ReluRun.of(CAPPED.problem, head_of(CAPPED), 0.1, 2000).weights(2000)
    assert (late > 0.505).sum() <= 1
    result = check(conjecture_mixing, CAPPED, REFERENCE)
    assert result.verdict in (Verdict.FALSIFIED, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("from_step", "verdict"), [(500, Verdict.FALSIFIED), (100, Verdict.INCONCLUSIVE), (0, Verdict.INCONCLUSIVE)]
)
def test_weights_that_stop_moving_are_noticed_if_they_grew_before(from_step: int, verdict: Verdict) -> None:
    """A run that stops after a quarter of its steps is falsified; one that stops earlier is undecided."""
    run = ReluRun.of(CAPPED.problem, head_of(CAPPED), STEP / CAPPED.problem.key_scale, STEPS)
    run.points[from_step:] = run.points[from_step]
    *_, claim = growth_claims(CAPPED, run, REFERENCE)
    assert (claim.name, claim.verdict) == ("grows-along-general-svm", verdict)


def test_an_input_that_is_turned_off_costs_nothing() -> None:
    assert relu_head(DEAD).holds
    finding = masked_tokens_cost(DEAD)
    assert finding.holds is False
    assert check(conjecture_mixing, DEAD, REFERENCE).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "no nonlinear head"),
        ({"head_activations": np.zeros(2)}, "a unit is no ReLU"),
        ({"head_features": np.arange(8.0).reshape(1, 4, 2) ** 2}, "4 units"),
    ],
)
def test_heads_without_relu_are_refused(arrays: Any, says: str) -> None:
    finding = relu_head(CAPPED.replace(arrays={**CAPPED.arrays, **arrays} if arrays else {}))
    assert (finding.holds is True) == (says == "4 units")
    assert says in finding.evidence or finding.holds


def test_features_of_the_head_must_be_affine_functions_of_the_tokens() -> None:
    case = relu_case([[[0.0], [1.0], [2.0]]], [[1.0]], [[[0.0], [1.0], [3.0]]], [1.0])
    assert "no affine functions" in relu_head(case).evidence
