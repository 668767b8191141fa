"""Bounds on Adam's margin gap (one minus the run's share of the largest margin) in ``theorems bench``: equal to the
statements' sums, above the measured gap, or vacuous.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from generators.user_data import load
from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.adaptive_methods.adam import Betas
from theorems.adaptive_methods.adam_bounds import AdamBounds
from theorems.adaptive_methods.margin_gap import adam_gap, rates
from theorems.benchmark.margin_gap import Gap
from theorems.benchmark.optimisers.adam import theory_of
from theorems.benchmark.rules import rule_named
from theorems.bounded import exact, value_of
from theorems.steepest_descent.steepest_run import StepSchedule


def gap_of(source: str, rule: str, start: list[float], steps: int) -> Gap | None:
    problem, made = load(source, 0).case.problem, rule_named(rule)
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    return adam_gap(problem, svm, made.run([problem], np.array([start]), steps).points[:, 0], math.inf, made.theory)


@pytest.mark.parametrize("further", [0.0, 0.3])
@pytest.mark.parametrize("betas", [(0.5, 0.5), (0.0, 0.9), (0.9, 0.95)])
def test_step_sizes_kappa_and_rho_equal_those_of_the_statements(betas: tuple[float, float], further: float) -> None:
    steps, gamma, reach, moves = 40, 0.7, 1.5, 2.5
    lengths = 0.02 / np.sqrt(np.arange(1.0, steps + 1))
    bounds = AdamBounds(
        StepSchedule(lengths, 0.0), Betas(*betas, corrected=True), exact(reach), exact(gamma), exact(moves), further
    )
    step, kappa, rho = np.array(list(rates(theory_of(0.02, betas), steps, gamma, reach, moves, further))).T
    np.testing.assert_allclose(step, lengths, rtol=1e-14)
    np.testing.assert_allclose(kappa, value_of(bounds.kappa), rtol=1e-9)
    np.testing.assert_allclose(rho, value_of(bounds.rho), rtol=1e-12)


def test_kappa_is_minus_infinity_where_floats_cannot_hold_it() -> None:
    kappa = [rate[1] for rate in rates(theory_of(1e3), 5, 1.0, 1.0, 1.0, 0.0)]
    assert kappa[0] == pytest.approx(1.0)
    assert kappa[1:] == [-math.inf] * 4


def test_for_one_input_the_bound_is_finite_only_if_adam_has_a_short_memory() -> None:
    short = gap_of("figure-1a", "adam-0.5-0.5-0.1", [0.0, -1.0], 6000)
    assert short is not None
    assert short.at_most is not None
    assert short.statement == "adam-one-input"
    assert 0 < short.measured < short.at_most < 0.6
    usual = gap_of("figure-1a", "adam-0.1", [0.0, -1.0], 400)
    assert usual is not None
    assert usual.at_most is None
    assert usual.measured < 1


def test_for_several_inputs_a_bound_exists_only_for_a_start_with_a_margin() -> None:
    problem = load("figure-1c", 0).case.problem
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    assert gap_of("figure-1c", "adam-0.5-0.5-0.01", [0.0, -1.0], 2000) is None
    ahead = gap_of("figure-1c", "adam-0.5-0.5-0.01", (12 * svm.p).tolist(), 2000)
    assert ahead is not None
    assert ahead.at_most is not None
    assert ahead.statement == "adam-from-a-margin"
    assert ahead.measured <= ahead.at_most


@pytest.mark.parametrize(
    "rule", ["adam-1-0.9-0.1", "adam-0.9-0.1", "adam-0.9-0.99-0", "adam-0.9-x-1", "adam--0.9-0.9-1"]
)
def test_invalid_rules_of_adam_are_refused(rule: str) -> None:
    with pytest.raises(InvalidInput, match="adam-B1-B2-ETA"):
        rule_named(rule)


def test_the_limit_of_adam_is_unknown_where_no_theorem_proves_one() -> None:
    limits = [rule_named(f"adam-{numbers}").theory.limit for numbers in ("0.1", "0.9-0.99-0.1", "0.9-0.8-0.1")]
    assert limits == ["unknown", "ℓ∞", "unknown"]
