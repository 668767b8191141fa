"""The limit direction of the joint path with radii r = cR, in any units of keys and tokens, and its least-norm
program.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reference_attention.paths.joint_risk import joint_of_chosen
from reference_attention.paths.scheduled_direction import critical_ratio, least_norm, scheduled_direction
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import MaxMargin
from tests.reference_attention.paths.test_joint_risk import figure_3

EPS = float(np.finfo(float).eps)


@pytest.mark.parametrize("by_keys", [0.25, 1.0, 8.0])
@pytest.mark.parametrize("by_tokens", [0.25, 1.0, 8.0])
def test_the_critical_ratio_changes_with_the_units(by_keys: float, by_tokens: float) -> None:
    joint = figure_3((0.5, 1.5))
    scaled = joint_of_chosen(joint.tokens * by_tokens, joint.keys * by_keys, joint.alpha)
    assert scaled is not None
    relaxed = relaxed_max_margin(scaled.keys, scaled.alpha, scaled.svm.support)
    assert isinstance(relaxed, MaxMargin)
    # c times a slack of the head and margins of the prompt are both exponents, so the critical c has the unit
    # keys/tokens; in the units of Figure 3 it is 1.
    assert critical_ratio(scaled, relaxed) == pytest.approx(by_keys / by_tokens, rel=8 * EPS)
    between = scheduled_direction(scaled, 0.3 * by_keys / by_tokens)
    assert between == pytest.approx(scheduled_direction(joint, 0.3), abs=1e-12)
    assert np.linalg.norm(between) == pytest.approx(1, abs=4 * EPS)


def test_where_every_input_is_a_support_no_ratio_is_critical() -> None:
    joint = figure_3((0.5, 1.0))
    relaxed = relaxed_max_margin(joint.keys, joint.alpha, joint.svm.support)
    assert isinstance(relaxed, MaxMargin)
    assert critical_ratio(replace(joint, svm=replace(joint.svm, slack=np.zeros(3))), relaxed) == 0


def test_the_scheduled_direction_has_the_dimension_of_the_keys() -> None:
    joint = figure_3((0.5, 1.5))
    wider = replace(joint, keys=np.pad(joint.keys, ((0, 0), (0, 0), (0, 3))))
    assert scheduled_direction(wider, 0.3) == pytest.approx(np.pad(scheduled_direction(joint, 0.3), (0, 3)), abs=1e-12)


def test_least_norm_returns_the_shortest_feasible_point_or_none() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert least_norm(rows, np.array([3.0, 4.0])) == pytest.approx([3, 2])
    assert least_norm(rows, np.array([3.0, -4.0])) == pytest.approx([3, 0], abs=64 * EPS)
    # If 0 is feasible, it is the point of least norm.
    inside = least_norm(rows, np.array([-3.0, -4.0]))
    assert inside is not None
    assert not inside.any()
    assert least_norm(np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])) is None
