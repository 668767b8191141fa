"""Bounds on the margin gap (one minus the run's share of the largest margin): above the measured gap and close to it,
and None where no statement applies.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from examples.sign_descent import SignDescent
from generators.user_data import load
from reference_attention.norms import Blocks, Norm, Schatten
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.benchmark.optimisers.muon import MOMENTUM, Muon
from theorems.benchmark.optimisers.run import follow
from theorems.benchmark.rules import rule_named
from theorems.steepest_descent.margin_gap import margin_gap

STEPS = 1000


def gap_of(source, start, made, norm, momentum=0.0):
    problem = load(source, 0).case.problem
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    run = follow(made, [problem], np.array([start]), STEPS)
    return margin_gap(problem, svm, run.points[:, 0], norm, momentum)


def test_sign_descent_on_figure_1a_has_bounds_near_the_measured_gaps() -> None:
    """On Figure 1(a) after 1,000 steps of size 1/√t, the gap is at most 0.024 for the start 0, and 0.069 for the start
    (0, −1.5).
    """
    near = gap_of("figure-1a", [0.0, 0.0], SignDescent, math.inf)
    far = gap_of("figure-1a", [0.0, -1.5], SignDescent, math.inf)
    assert near.at_most == pytest.approx(0.024, abs=1e-3)
    assert abs(near.measured) < 1e-3
    assert far.at_most == pytest.approx(0.069, abs=1e-3)
    assert far.measured == pytest.approx(0.022, abs=1e-3)


def test_for_several_inputs_there_is_a_bound_once_the_run_has_a_margin() -> None:
    result = gap_of("figure-1c", [0.0, -1.0], SignDescent, math.inf)
    assert result.statement == "steepest-from-a-margin"
    assert result.measured <= result.at_most < 0.1


def test_muon_on_a_prompt_has_a_bound_for_short_steps_only() -> None:
    result = gap_of("figure-1a", [0.0, -1.0], lambda: Muon(0.01), 2.0, MOMENTUM)
    assert result.measured <= result.at_most < 0.5
    assert gap_of("figure-1a", [0.0, -1.0], lambda: Muon(1.0), 2.0, MOMENTUM) is None


def gap_of_matrix(data: QueryDataset, rule: str, start: np.ndarray, norm: Norm, momentum: float, steps: int):
    problem = data.problem
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    run = rule_named(rule).run([problem], start[None], steps, shape=data.shape)
    return margin_gap(problem, svm, run.points[:, 0], norm, momentum)


def test_muon_on_weights_has_a_bound_in_the_spectral_norm() -> None:
    """With two queries and no momentum, the bound applies once all margins of the run are large enough."""
    data = load("tsvm-paths-3", 0).case.queried
    assert data is not None
    spectral = Schatten(math.inf, data.shape)
    plain = gap_of_matrix(data, "spectral-0.02", np.zeros(4), spectral, 0.0, 4000)
    assert plain.statement == "steepest-from-a-margin"
    assert 0 <= plain.measured <= plain.at_most < 0.5


def test_rows_of_weights_have_a_bound_in_the_norm_of_the_largest_row() -> None:
    keys = QueryDataset([[[1, 0], [0, 0]], [[0, 1], [0, 0]]], [[1, 0], [0, 1]], [1, 1], [1, 1])
    rows, start = Blocks(math.inf, "rows", keys.shape), np.array([5.0, 1.0, 1.5, 5.0])
    bound = gap_of_matrix(keys, "rows-0.02", start, rows, 0.0, 2000)
    assert bound.statement == "steepest-from-a-margin"
    assert 0 <= bound.measured <= bound.at_most < 0.25


def test_muon_on_weights_needs_a_start_margin_or_a_single_query() -> None:
    keys = QueryDataset([[[1, 0], [0, 0]], [[0, 1], [0, 0]]], [[1, 0], [0, 1]], [1, 1], [1, 1])
    spectral, start = Schatten(math.inf, keys.shape), np.array([5.0, 1.0, 1.5, 5.0])
    several = gap_of_matrix(keys, "muon-0.001", start, spectral, MOMENTUM, 4000)
    assert several.statement == "steepest-from-a-margin"
    assert several.measured <= several.at_most < 0.25
    assert gap_of_matrix(keys, "muon-0.001", 0 * start, spectral, MOMENTUM, 4000) is None
    assert gap_of_matrix(keys, "muon-0.01", start, spectral, MOMENTUM, 4000) is None
    single = QueryDataset(keys.X[:1], keys.queries[:1], keys.Y[:1], keys.v, keys.loss)
    one = gap_of_matrix(single, "muon-0.1", -start, spectral, MOMENTUM, 2000)
    assert one.statement == "steepest-one-input"
    assert one.measured <= one.at_most < 0.1


def test_the_margin_bound_fails_for_a_wrong_run() -> None:
    """The run is sign descent, but the bound is that of steepest descent in the ℓ1 norm."""
    result = gap_of("figure-1a", [0.0, 0.0], SignDescent, 1.0)
    assert result.measured > result.at_most


def test_rules_declare_the_norm_in_which_they_are_steepest_descent() -> None:
    assert rule_named("normalized-1").theory.steepest == 2
    assert rule_named("adam-1").theory.steepest is None
