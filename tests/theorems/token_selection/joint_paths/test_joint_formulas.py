"""Formulas of the joint statements, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from theorems.rounding.bounded import exact
from theorems.token_selection.joint_paths.joint_claims import log_odds, nonoptimality_bounds, one_minus_cosine

EPS = float(np.finfo(float).eps)


def is_right(found: Any, expected: list[float]) -> None:
    """Within what is told of the rounding, and of that of the expectation."""
    due = np.array(expected)
    assert np.shape(found.value) == due.shape
    same = found.value == due  # infinities
    with np.errstate(invalid="ignore"):
        assert (same | (np.abs(found.value - due) <= found.error + 4 * EPS * np.abs(due))).all()
    assert (found.error[np.isfinite(due)] <= 1e-12).all()


def test_an_angle_to_the_axis_does_not_cancel() -> None:
    """Of (4, 4), and of (3, 10⁻⁹): its square over 18; what does not point along the axis counts as opposite."""
    w = np.array([[1.0, 4.0], [0.0, 1e-9], [0.0, 0.0], [-5.0, 1.0]])
    is_right(one_minus_cosine(exact(np.array([1.0, 0.0])), 3.0, w), [1 - math.sqrt(0.5), 1e-18 / 18, 0.0, 2.0])
    small = one_minus_cosine(exact(np.array([1.0, 0.0])), 3.0, w[1:2])
    assert small.value[0] == pytest.approx(1e-18 / 18, rel=1e-12, abs=0)


def test_odds_of_a_bound() -> None:
    """¼ is 3 to 1; of no probability and of certainty there are none."""
    is_right(log_odds(exact(np.array([0.25, 0.75]))), [math.log(3), -math.log(3)])
    assert (log_odds(exact(np.array([0.0, -0.5, 1.0, 1.5]))).value == -np.inf).all()


def test_bounds_of_what_a_margin_leaves() -> None:
    """Two tokens a margin of log 3 below the best have a third of its weight each; one alone has a quarter of all."""
    upper, lower = nonoptimality_bounds(exact(np.array([math.log(3), 0.0])), 3)
    is_right(upper, [0.4, 2 / 3])
    is_right(lower, [0.25, 0.5])
