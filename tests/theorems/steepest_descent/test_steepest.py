"""Steepest descent in other norms: upheld by the reference, falsified by planted faults; the bounds are not vacuous."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from generators.case import Case
from tests.theorems.explanations.test_rule_ends import DATA
from tests.theorems.token_selection.global_paths.test_descent_from_a_margin import check_margin_beyond_floats
from tests.theorems.token_selection.path_cases import statement
from theorems.bounded import exact
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import FAULTS
from theorems.library.explain import explain
from theorems.run.verify import draw_cases
from theorems.steepest_descent.norms import norm_of

ONE, MARGIN = "steepest-one-input", "steepest-from-a-margin"
MIRRORS = ("mirror-one-input", "mirror-from-a-margin")
EXAMPLES = 4

RUNS = {
    "steepest-in-the-dual-norm": "iterate-is-a-steepest-step",
    "steepest-is-euclidean": "iterate-is-a-steepest-step",
    "momentum-forgotten": "iterate-is-a-steepest-step",
    "momentum-too-short": "iterate-is-a-steepest-step",
    "steepest-step-too-long": "step-is-no-longer-than-asked-for",
    "steepest-step-constant": "step-is-no-longer-than-asked-for",
    "norm-margin-of-another-basis": "norm-margin-is-largest",
    "norm-margin-in-another-norm": "norm-margin-is-largest",
    "norm-margin-negative-duals": "norm-margin-is-largest",
    "norm-margin-off": "norm-margin-is-largest",
    "negated-gradient": "potential-falls",
}


@cache
def cases_of(id: str) -> tuple[Case, ...]:
    return tuple(draw_cases(statement(id), 40, 0)[10:])


@pytest.mark.parametrize("id", [ONE, MARGIN, *MIRRORS])
def test_the_statements_on_steepest_and_mirror_descent_are_upheld_by_the_reference(id: str) -> None:
    outcomes = [check(statement(id), case, REFERENCE) for case in cases_of(id)[:EXAMPLES]]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.UPHELD}


def falsifies(id: str, under_test: Implementation, expected: str) -> bool:
    """Return whether the expected claim fails on a drawn case."""
    for case in cases_of(id):
        claims = check(statement(id), case, under_test).claims
        if any(claim.name == expected and claim.verdict is Verdict.FALSIFIED for claim in claims):
            return True
    return False


@pytest.mark.parametrize("fault", RUNS)
@pytest.mark.parametrize("id", [ONE, MARGIN])
def test_planted_faults_of_runs_are_caught_by_the_intended_claim(id: str, fault: str) -> None:
    assert falsifies(id, FAULTS[fault].implementation, RUNS[fault])


def test_planted_faults_that_show_only_on_matrices_are_caught() -> None:
    """With one query, gradients have rank one, so some faults of singular values show only with several queries."""
    assert falsifies(ONE, FAULTS["orthogonal-factor-approximate"].implementation, "iterate-is-a-steepest-step")
    assert falsifies(MARGIN, FAULTS["orthogonal-factor-bent"].implementation, "iterate-is-a-steepest-step")
    assert falsifies(MARGIN, FAULTS["norm-margin-with-euclidean-duals"].implementation, "norm-margin-is-largest")


MIRRORED = {
    "mirror-of-another-power": "mirror-run-is-the-one-asked-for",
    "mirror-step-too-long": "iterate-is-a-mirror-step",
    "mirror-one-step-short": "mirror-run-is-the-one-asked-for",
    "norm-margin-off": "norm-margin-is-largest",
    "norm-margin-negative-duals": "norm-margin-is-largest",
    "negated-gradient": "dual-climbs",
    "rolled-coordinates": "dual-climbs",
}


@pytest.mark.parametrize("fault", MIRRORED)
@pytest.mark.parametrize("id", MIRRORS)
def test_faults_in_mirror_descent_are_caught(id: str, fault: str) -> None:
    assert falsifies(id, FAULTS[fault].implementation, MIRRORED[fault])


def test_plain_steps_in_place_of_normalized_ones_are_caught() -> None:
    assert falsifies(MIRRORS[0], FAULTS["mirror-otherwise-normalized"].implementation, "iterate-is-a-mirror-step")


@pytest.mark.parametrize("norm", [1.25, 1.5, 3.0])
def test_norms_of_vectors_with_subnormal_entries_are_accurate(norm: float) -> None:
    """Entries that should be 0 may be subnormal by rounding."""
    for small in (0.0, 5e-324, 1e-310, 1e-290):
        length = norm_of(exact(np.array([3.0, small, -4.0])), norm)
        assert float(length.value) == pytest.approx(np.linalg.norm([3, 4], ord=norm), rel=1e-14)
        assert float(length.error) < 1e-13


def test_explain_names_the_theorem_on_mirror_descent() -> None:
    [mirror] = explain(DATA, rules=["mirror-1.5-1"]).rules  # type: ignore[misc]
    assert [id for id, _ in mirror.silent] == ["mirror-one-input"]
    limit = "Theory, under its assumptions, gives the max-margin direction in ℓ1.5 as the limit (mirror-one-input"
    assert limit in mirror.words


def test_a_margin_that_no_float_resolves_leaves_a_claim_undecided() -> None:
    check_margin_beyond_floats("mirror-from-a-margin", "dual-climbs")
