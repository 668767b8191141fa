"""The statement on the local regularization path of W, within a cone around W^mm, and faults that it must catch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.loss import Array
from reference_attention.paths.local_path import LocalPath, local_path
from reference_attention.problem import Problem
from reference_attention.query_dataset import outer_keys_and_scores
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.theorems.transformers_as_svms.local_examples import local_example
from theorems.bounded import exact
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.dataset_claims import QUERY_CLAIMS
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.token_selection.local_paths.local_constants import local_constants
from theorems.transformers_as_svms.local_path import tsvm_local_path
from theorems.transformers_as_svms.local_path_bounds import LocalPathBounds

LOCAL = local_example()


def falsified(case: Case, under_test: Implementation) -> set[str]:
    outcome = check(tsvm_local_path, case, under_test)
    return {claim.name for claim in outcome.claims if claim.verdict is Verdict.FALSIFIED}


@given(tsvm_local_path.cases())
@settings(max_examples=8, deadline=None)
def test_the_local_path_is_upheld(case: Case) -> None:
    outcome = check(tsvm_local_path, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("loss", ["logistic", "exponential", "correlation"])
def test_every_claim_on_the_local_path_is_made_on_tokens_that_are_not_optimal(loss: str) -> None:
    example = local_example(loss)
    assert (example.chosen_tokens != example.problem.optimal).any()
    outcome = check(tsvm_local_path, example, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert {claim.name for claim in outcome.claims} == set(tsvm_local_path.claims)


def _tilted(problem: Problem, q: Array, alpha: Array, norms: Any, **options: Any) -> LocalPath:
    """Return the path with its points moved half-way to the boundary of the cone."""
    right = local_path(problem, q, alpha, norms, **options)
    across = np.roll(right.points, 1, axis=1)
    axis = q / np.linalg.norm(q)
    across = across - (across @ axis)[:, None] * axis
    tilt = np.sqrt(options["mu"]) * across / np.linalg.norm(across, axis=1, keepdims=True)
    moved = axis + tilt
    return replace(right, points=right.norms[:, None] * moved / np.linalg.norm(moved, axis=1, keepdims=True))


def _elsewhere(problem: Problem, q: Array, alpha: Array, norms: Any, **options: Any) -> LocalPath:
    """Return the path with the coordinates of its points shifted cyclically by one place."""
    right = local_path(problem, q, alpha, norms, **options)
    return replace(right, points=np.roll(right.points, 1, axis=1))


def _one_query(data: Any) -> tuple[Array, Array]:
    n, T, _ = data.X.shape
    return (data.X[:, :, :, None] * data.queries[0]).reshape(n, T, -1), -(data.X @ data.v)


TILTED = REFERENCE.replace("tilted", {local_path: _tilted})
ELSEWHERE = REFERENCE.replace("elsewhere", {local_path: _elsewhere})
ONE_QUERY = REFERENCE.replace("one-query", {outer_keys_and_scores: _one_query})

FAULTS = [
    (ONE_QUERY, set(QUERY_CLAIMS)),
    (fault_named("svm-coordinate-off").implementation, {"svm-is-optimal"}),
    (fault_named("neighbour-lost").implementation, {"svm-is-optimal"}),
    (fault_named("always-locally-optimal").implementation, {"locally-optimal-is-definition-2"}),
    (fault_named("scaled-by-root-d").implementation, {"sublevel-margin", "sublevel-correlation"}),
    (fault_named("local-path-stays-on-q").implementation, {"path-is-no-higher-than-its-seeds"}),
    (TILTED, {"path-is-no-higher-than-its-seeds", "path-margin", "path-turns"}),
    (ELSEWHERE, {"path-is-in-the-cone"}),
    (fault_named("nuclear-is-frobenius").implementation, {"nuclear-svm-is-optimal"}),
    (
        fault_named("clipped-logits").implementation,
        {"nuclear-sublevel-margin", "nuclear-sublevel-face-distance", "nuclear-sublevel-solution-distance"},
    ),
    (fault_named("nuclear-path-on-the-ray").implementation, {"nuclear-path-is-no-higher-than-its-limit"}),
    (fault_named("nuclear-path-ends-early").implementation, {"nuclear-path-margin"}),
    (fault_named("nuclear-path-too-large").implementation, {"nuclear-path-is-in-the-cone", "nuclear-path-turns"}),
]


def test_every_claim_on_the_local_path_has_a_planted_fault() -> None:
    assert set().union(*(by for _, by in FAULTS)) == set(tsvm_local_path.claims)


@pytest.mark.parametrize(("under_test", "by"), FAULTS, ids=lambda x: getattr(x, "name", ""))
def test_planted_faults_falsify_the_claims_on_the_local_path(under_test: Implementation, by: set[str]) -> None:
    assert falsified(LOCAL, under_test) >= by


def bounds_of(example: Case) -> LocalPathBounds:
    solution = max_margin(example.problem.exact_keys, example.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    constants = local_constants(example.problem, solution)
    assert constants is not None
    return LocalPathBounds(constants, REFERENCE)


def test_beyond_the_inner_radius_the_excess_risk_is_positive_in_spite_of_harmful_tokens() -> None:
    bounds = bounds_of(LOCAL)
    norms = bounds.first * np.geomspace(1.01, 30, 12)
    points = norms[:, None] * bounds.constants.solution.p
    excess = np.exp(np.asarray(bounds.log_excess(exact(points), "sublevel-margin").value))
    assert (excess > 0).all()
    assert bounds.constants.harmful.any()
    assert bounds.first > 1e-3


def test_a_point_with_the_limiting_offset_has_less_risk_than_the_ray() -> None:
    """The point with the limiting offset from the ray has less risk than the point on the ray, at the same norm."""
    bounds = bounds_of(LOCAL)
    ray, beside = bounds.log_excess(exact(bounds.beside(1e4)), "path-is-no-higher-than-its-seeds").value
    assert beside < ray - 1e-3
