"""Formulas of the joint statements, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from generators.datasets import DATASETS
from reference_attention.training.joint_descent import JointTrajectory
from theorems.core.claim import NotANumber, Verdict
from theorems.core.implementation import REFERENCE
from theorems.rounding.bounded import exact
from theorems.token_selection.joint_paths.conjecture_joint_descent import _claims, _rate, asked_of
from theorems.token_selection.joint_paths.joint_claims import log_odds, nonoptimality_bounds, one_minus_cosine
from theorems.token_selection.joint_paths.joint_limit import _log_odds
from theorems.token_selection.joint_paths.joint_steps import run_claims
from theorems.token_selection.joint_paths.joint_sublevel import joint_setup

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


@pytest.mark.parametrize(("log_bound", "due"), [(math.log(0.25), math.log(3)), (-0.5, math.log(math.exp(0.5) - 1))])
def test_odds_of_the_logarithm_of_a_bound(log_bound: float, due: float) -> None:
    found = _log_odds(np.array([log_bound, 0.0, 0.5]))
    assert found == pytest.approx([due, -np.inf, -np.inf], rel=1e-14)


def leaning(norm: float, chord: float) -> list[float]:
    """A point of that norm, so far from the same norm along the first axis."""
    along = norm - chord**2 / (2 * norm)
    return [along, math.sqrt(norm**2 - along**2)]


@pytest.mark.parametrize(("later", "verdict"), [(4.9, Verdict.UPHELD), (5.1, Verdict.FALSIFIED)])
def test_a_deviation_may_double(later: float, verdict: Verdict) -> None:
    """From 2.5 at norm 10 to 5 at norm 100; and to that of one logit anyway."""
    points, axis = np.array([leaning(10.0, 2.5), leaning(100.0, later)]), np.array([1.0, 0.0])
    assert _rate("head-rate", points, axis, 1e3).verdict is verdict
    assert _rate("head-rate", points, axis, 1e-3).verdict is Verdict.UPHELD


def test_the_ratio_is_that_of_how_much_norms_grow() -> None:
    """Heads from 3 to 6, prompts, far enough to select, from 100 to 112."""
    setup = joint_setup(DATASETS["figure-3b"]().normalised(), REFERENCE)
    asked: list[float] = []

    def seen(joint: Any, ratio: float) -> np.ndarray:
        asked.append(ratio)
        return REFERENCE.scheduled_direction(joint, ratio)

    far = 100 * setup.separator.norm
    heads = np.linspace(3.0, 6.0, 5)[:, None] * setup.joint.svm.direction
    prompts = np.linspace(far - 4.0, far + 12.0, 5)[:, None] * setup.separator.direction
    _claims(setup, replace(REFERENCE, scheduled_direction=seen), JointTrajectory(heads, prompts))
    assert asked == [pytest.approx(2.25 / 12)]


def test_a_run_that_is_too_short_is_no_run_and_one_of_no_numbers_is_refuted() -> None:
    case = DATASETS["figure-3b"]().normalised()
    setup = joint_setup(case, REFERENCE)
    asked = replace(asked_of(case, setup.joint, setup.separator), steps=3)
    heads, prompts = np.repeat(asked.head[None], 4, axis=0), np.repeat(asked.prompt[None], 4, axis=0)
    for short in (JointTrajectory(heads[:3], prompts), JointTrajectory(heads, prompts[:3])):
        claims = list(run_claims(setup.joint, REFERENCE, short, asked))
        assert len(claims) == 2
        assert Verdict.FALSIFIED in {claim.verdict for claim in claims}
    for k in (0, 1):
        both = [heads.copy(), prompts.copy()]
        both[k][2] = np.nan
        with pytest.raises(NotANumber):
            list(run_claims(setup.joint, REFERENCE, JointTrajectory(*both), asked))
