"""Descent over head and prompt on two spheres: the point where it ends, and the gradient reported there.

Notation: r and R are the radii of head and prompt; y is the head's part across v̄_mm, the unit vector of the max-margin
head; q is the prompt. A support is an input whose constraint of the head's SVM is tight. The output of any other input
may decrease by r times the slack of its constraint without influence on the risk.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from reference_attention.paths.joint_newton import (
    JointObjective,
    PromptObjective,
    Spheres,
    beside_ties,
    complement,
    descend,
)
from reference_attention.paths.joint_path import joint_path, prompt_at
from reference_attention.paths.joint_risk import Joint, joint_gradient, relative_log_risk
from reference_attention.paths.large_head_descent import LARGE_HEAD, descend_large_heads
from tests.reference_attention.paths.test_joint_formulas import joint
from tests.reference_attention.paths.test_joint_risk import figure_3

E1 = np.eye(6)[0]
EPS = float(np.finfo(float).eps)


def worse() -> Joint:
    """Return joint() with its other tokens made worse for heads near v̄_mm and less likely for prompts near e_1."""
    given = joint()
    others = given.others[..., None]
    return replace(given, tokens=given.tokens - 3 * others * given.svm.direction, keys=given.keys - 3 * others * E1)


def spheres(given: Joint, log_r: float, R: float) -> Spheres:
    return Spheres(given, log_r, R, complement(given.svm.direction))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_descent_ends_at_a_local_minimiser(seed: int, scale: float) -> None:
    rng, s = np.random.default_rng(seed), spheres(worse(), 1.0, 4.0)
    y, p = 0.2 * rng.normal(size=2), E1 + 0.1 * rng.normal(size=6)
    p *= s.R / np.linalg.norm(p)
    together = JointObjective(s, scale)
    start = together.local(y, p).slope
    assert descend(together, y, p, 1e9)[2] == pytest.approx(math.hypot(*start[:2], *start[2:] / scale))
    end_y, end_p, left = descend(together, y, p, 1e-10)
    at = together.local(end_y, end_p)
    assert np.linalg.norm(end_p) == pytest.approx(s.R, rel=8 * EPS)
    assert at.value < together.values(y, p)
    # The gradient with respect to p is measured in the units of the head's gradient.
    assert left == pytest.approx(math.hypot(*at.slope[:2], *at.slope[2:] / scale), rel=1e-6, abs=1e-15)
    assert left <= 1e-10
    assert np.linalg.eigvalsh(at.second)[0] >= -1e-12
    alone = PromptObjective(s, s.offset(np.array([0.1, 0.05])))
    _, q, beyond = descend(alone, np.zeros(0), p, 1e-10)
    here = alone.local(np.zeros(0), q)
    assert here.value <= alone.values(np.zeros(0), p)
    assert beyond == pytest.approx(float(np.linalg.norm(here.slope)), rel=1e-6, abs=1e-15)
    assert beyond <= 1e-10
    assert np.linalg.eigvalsh(here.second)[0] >= -1e-12
    assert prompt_at(s.joint, s.log_r, s.R, alone.w, p) == pytest.approx(q, rel=1e-9)


def test_without_excess_the_prompt_stays_and_the_reported_gradient_is_infinite() -> None:
    given = joint()
    same = Joint(np.repeat(given.chosen_tokens[:, None], 4, axis=1), given.keys, given.alpha, given.svm)
    p = np.ones(6) * 2 / math.sqrt(6)
    _, q, left = descend(PromptObjective(spheres(same, 1.0, 2.0), np.zeros(3)), np.zeros(0), p, 1e-10)
    assert left == math.inf
    assert (q == p).all()


def test_a_descent_that_may_stop_early_stops_above_the_minimum() -> None:
    rng, s = np.random.default_rng(0), spheres(worse(), 1.0, 4.0)
    y, p = 0.2 * rng.normal(size=2), E1 + 0.1 * rng.normal(size=6)
    p *= s.R / np.linalg.norm(p)
    together = JointObjective(s)
    whole = together.values(*descend(together, y, p, 1e-10)[:2])
    some = together.values(*descend(together, y, p, 1e-10, enough=0.1)[:2])
    assert whole < some < together.values(y, p)
    # The decrease that Newton's method predicts is off by a third derivative.
    assert some < whole + 1.0


def test_descent_ends_at_a_stationary_point_where_the_head_is_almost_along_v_mm() -> None:
    given = figure_3((0.5, 1.5))
    log_r, R, start = 1500.0, 1e3, np.array([1.0, 0.02])
    s = spheres(given, log_r, R)
    p = R * start / np.linalg.norm(start)
    # The scale is r times a weight of other tokens at the supports; the third input loses little of its slack r.
    scale = math.exp(log_r - float((given.rows[:2, 1] @ p).min()))
    assert math.log(scale) > LARGE_HEAD
    y, q, left = descend_large_heads(s, np.zeros(1), p, scale, 1e-10)
    assert np.linalg.norm(q) == pytest.approx(R, rel=8 * EPS)
    before, after = (
        float(relative_log_risk(given, log_r, s.offset(a), given.log_weights(b))) for a, b in ((np.zeros(1), p), (y, q))
    )
    assert after < before
    _, by_w, by_p = joint_gradient(given, log_r, s.offset(y), q)
    across = by_p - (by_p @ q) * q / R**2
    # r v̄_mm is e^{800} times larger than y: a step along the sphere is a step along the tangent basis.
    assert left == pytest.approx(math.hypot(*(s.basis.T @ by_w), *across / scale), rel=1e-6)
    assert left < 1e-6


@pytest.mark.parametrize("start", [(1.0, 0.2), (-3.0, 1.5)])
def test_descent_of_heads_nearly_as_large_as_the_ball_follows_the_ball_s_curvature(start: tuple[float, float]) -> None:
    given, log_r = figure_3((0.5, 1.5)), 156.0
    p = np.array(start)
    R, r = float(np.linalg.norm(p)), math.exp(log_r)
    s, scale = spheres(given, log_r, R), math.exp(log_r - 1.0)
    y, q, left = descend_large_heads(s, np.full(1, 0.3 * r), p, scale, 1e-10)
    assert np.linalg.norm(q) == pytest.approx(R, rel=8 * EPS)
    # At a crease the descent stops with a gradient of order one; the reported gradient is the one at the returned pair.
    slope = JointObjective(s, scale).local(y, q).slope
    assert left == pytest.approx(math.hypot(slope[0], slope[1] / scale), rel=1e-9)
    angles = np.linspace(-0.4, 0.4, 401)
    heads = s.offset(np.linspace(-0.98, 0.98, 99)[:, None] * r)
    logs = given.log_weights(R * np.stack([np.cos(angles), np.sin(angles)], axis=-1))
    grid = relative_log_risk(given, log_r, np.repeat(heads, 401, axis=0), np.tile(logs, (99, 1, 1)))
    result = relative_log_risk(given, log_r, s.offset(y), given.log_weights(q))
    # From the second start the descent stops at a crease, before the minimum.
    assert result <= grid.min() * 1.001 or start[0] < 0


def test_a_joint_path_begins_at_its_first_radius_even_if_that_is_small() -> None:
    given = figure_3((0.5, 1.0))
    path = joint_path(given, math.log1p, np.array([0.1, 4.0]), np.array([1.0, 0.3]))
    assert np.linalg.norm(path.prompts, axis=1) == pytest.approx([0.1, 4.0])
    assert path.radii.tolist() == [0.1, 4.0]
    assert (path.residuals < 1e-9).all()


@pytest.mark.parametrize("behind", [-5.0, 0.0])
def test_a_prompt_near_a_tie_is_moved_off_the_tie_along_the_sphere(behind: float) -> None:
    given, R = figure_3((0.5, 1.5)), 2.0**32
    s = spheres(given, math.log(R), R)
    # At p the two tokens of the third input, which is no support, tie. Its output is then less by r/2, and derivatives
    # across the tie are mere rounding.
    row = given.rows[2, 1]
    p = R * np.array([row[1], -row[0]]) / np.linalg.norm(row) + behind * row / (row @ row)
    p *= R / np.linalg.norm(p)
    alone, none = PromptObjective(s, np.zeros(2)), np.zeros(0)
    result = beside_ties(s, np.zeros(2), p, 1e-10)
    assert np.linalg.norm(result) == pytest.approx(R, rel=8 * EPS)
    assert alone.values(none, result) < alone.values(none, p) - 1e9
    assert 0 < row @ result < 1e3
    # Where no tokens are nearly tied, or logits are small, the prompt stays as it is.
    clear = R * np.array([1.0, 0.0])
    assert beside_ties(s, np.zeros(2), clear, 1e-10) is clear
    small = spheres(given, 1.0, 2.0)
    near = p * (2.0 / R)
    assert beside_ties(small, np.zeros(2), near, 1e-10) is near


@pytest.mark.parametrize("k", [2, 5])
def test_the_prompt_is_moved_off_a_tie_at_the_smallest_logits_and_in_any_dimension(k: int) -> None:
    given = figure_3((0.5, 1.5))
    keys = np.concatenate([given.keys, np.random.default_rng(0).normal(size=(3, 2, k - 2))], axis=2)
    given = replace(given, keys=keys)
    row = given.rows[2, 1]
    R = 2.0**29.5 / given.longest_row
    s, unit = spheres(given, math.log(R), R), row / np.linalg.norm(row)
    # The chosen tokens of the other two inputs are selected: the third input's tie is the only one.
    p = np.linalg.lstsq(given.rows[:2, 1], np.ones(2), rcond=None)[0]
    p -= (p @ unit) * unit
    p = R * p / np.linalg.norm(p) - 500.0 * row / (row @ row)
    p *= R / np.linalg.norm(p)
    alone, none = PromptObjective(s, np.zeros(2)), np.zeros(0)
    result = beside_ties(s, np.zeros(2), p, 1e-10)
    assert np.linalg.norm(result) == pytest.approx(R, rel=8 * EPS)
    assert alone.values(none, result) < alone.values(none, p) - 1e6
    assert 0 < row @ result < 1e3
    # The prompt keeps its distance from the tie, and is otherwise at the lowest excess.
    kept = PromptObjective(s, np.zeros(2), orthogonal_to=row[None])
    slope = kept.local(none, result).slope
    assert np.linalg.norm(slope) < 1e-6
