"""Each planted fault is wrong where its description says, by as much as its size says, and right elsewhere."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.directions import direction
from reference_attention.losses import loss_named
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.problem import Dataset, Problem, keys_and_scores, log_smoothness
from reference_attention.risk import ScaledGradient, scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.max_margin_sets import MaxMarginSets, max_margin_sets
from reference_attention.training.descent import normalized_gradient_descent
from reference_attention.training.flow import Flow, gradient_flow
from reference_attention.training.joint_descent import joint_descent
from theorems.faults import (
    attention_faults,
    data_faults,
    descent_faults,
    direction_faults,
    fault_named,
    flow_faults,
    gradient_faults,
    joint_faults,
    path_faults,
    risk_faults,
    set_faults,
    softmax,
    svm_faults,
    token_faults,
)

KEYS = np.array([[[1.0, 0.2, 0], [0, 0.1, 0.5], [-0.3, 1, 0]], [[0.7, 0.9, 1], [0, 0, 0], [0.1, 0.3, -1]]])
PROBLEM = Problem(KEYS, np.array([[1.0, 0.5, -0.5], [2, 0.25, 0]]), loss_named("logistic"))
START = np.array([0.3, -0.2, 0.1])


@cache
def flow() -> Flow:
    return gradient_flow(PROBLEM, START, norm=1e3)


def test_jump_sideways_turns_every_other_point_of_a_flow_by_the_size() -> None:
    """Odd points turn by an angle of tangent ε = 0.1 towards their cyclically shifted coordinates; even ones stay."""
    moved = flow_faults._jump_sideways(flow(), 0.1, PROBLEM).points
    right = flow().points
    assert np.linalg.norm(moved, axis=1) == pytest.approx(flow().norms, rel=1e-12)
    assert (moved[::2] == right[::2]).all()
    cosines = np.sum(moved * right, axis=1)[1::2] / flow().norms[1::2] ** 2
    assert cosines == pytest.approx(np.full(cosines.shape, 1 / math.sqrt(1.01)), rel=1e-12)
    line = Problem(KEYS[:, :, :1], PROBLEM.scores, PROBLEM.loss)
    along = gradient_flow(line, START[:1], norm=10.0)
    assert (flow_faults._jump_sideways(along, 0.1, line).points == along.points).all()


def test_follow_ray_moves_only_points_beyond_the_norm_to_the_ray() -> None:
    result = flow_faults._follow_ray(flow(), 10.0, PROBLEM).points
    svm = max_margin(PROBLEM.keys, PROBLEM.optimal)
    assert isinstance(svm, MaxMargin)
    far = flow().norms > 10.0 / PROBLEM.key_scale
    assert 0 < far.sum() < len(far) - 1
    assert (result[~far] == flow().points[~far]).all()
    assert result[far] == pytest.approx(flow().norms[far, None] * svm.direction)


def test_interpolate_moves_every_other_point_of_a_flow_to_a_chord() -> None:
    result, right, norms = flow_faults._interpolate(flow()).points, flow().points, flow().norms
    assert (result[1::2] == right[1::2]).all()
    share = (norms[2] - norms[1]) / (norms[3] - norms[1])
    assert result[2] == pytest.approx(right[1] + share * (right[3] - right[1]))
    assert not np.allclose(result[2], right[2], rtol=1e-6)


@pytest.mark.parametrize("size", [1e-9, 0.5])
def test_normalized_with_floor_shortens_steps(size: float) -> None:
    """Each step is against g/(‖g‖ + ε), with g the gradient and ε the size of the fault."""
    given: dict[str, Any] = {"steps": 2, "step": 0.1, "gradient": scaled_gradient}
    starts = np.array([START, 2 * START])
    faulty = fault_named("normalized-with-floor").of_size(size).implementation
    result = faulty[normalized_gradient_descent](PROBLEM, starts, **given)
    p = starts
    for t in range(2):
        g = scaled_gradient(PROBLEM.keys, PROBLEM.scores, PROBLEM.loss, p)
        whole = np.exp(g.log_scale)[:, None] * g.direction
        p = p - 0.1 * whole / (np.linalg.norm(whole, axis=1, keepdims=True) + size)
        assert result.points[t + 1] == pytest.approx(p, rel=1e-12)
    assert result.norms == pytest.approx(np.linalg.norm(result.points, axis=-1))


def test_lengthen_a_coordinate_changes_one_coordinate_of_a_step() -> None:
    p, step = np.array([[1.0, 2.0]]), np.array([[0.5, -0.25]])
    assert descent_faults._lengthen_a_coordinate(p, step, 0.2, 0, step).tolist() == [[1.6, 1.75]]


def test_drop_last_removes_the_last_iterate() -> None:
    run = normalized_gradient_descent(PROBLEM, START, steps=2, step=0.1)
    assert descent_faults._drop_last(run).points.tolist() == run.points[:-1].tolist()


def test_faults_of_directions_report_wrong_neighbours() -> None:
    """In direction q, the other tokens have the margins 1, 1.05 and 3 in the first input, and 2 and 1 in the second, in
    which two tokens tie for the largest logit.
    """
    keys = np.array([[[3.0, 0], [2, 0], [1.95, 1], [0, 0]], [[2, 0], [0, 0], [1, 5], [2, 1]]])
    q = np.array([1.0, 0.0])
    result = direction(keys, q)
    assert result.margins.tolist() == [[0, 1, pytest.approx(1.05), 3], [0, 2, 1, 0]]
    near = direction_faults._tolerate(result, 0.1).neighbours
    assert near.tolist() == [[False, True, True, False], [False, False, True, False]]
    assert direction_faults._tolerate(result, 0.01).neighbours.tolist() == result.neighbours.tolist()
    last = direction_faults._take_last_input(result)
    assert last.least == 1
    assert last.neighbours.tolist() == [[False] * 4, [False, False, True, False]]
    other = direction_faults._take_last_input(direction(keys[:, [0, 3, 1, 2]], q))
    assert other.neighbours[1].tolist() == [False, False, False, True]
    second = direction_faults._take_second_margin(result)
    assert second.neighbours.tolist() == [[False, False, True, False], [False] * 4]
    only = direction_faults._take_second_margin(direction(keys[:1, :2], q))
    assert only.neighbours.tolist() == [[False, True]]


def test_direction_saturates_clips_to_the_range_of_single_precision() -> None:
    """Zero stays zero, and numbers that are too small become the smallest normal number."""
    keys = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
    tiny = float(np.finfo(np.float32).tiny)
    saturate = fault_named("direction-saturates").implementation[direction]
    assert saturate(keys, np.array([1e-60, 0.0, -1.0])).q.tolist() == [tiny, 0.0, -1.0]
    assert saturate(keys, np.array([-1.0, 0.0, 1.0])).q[0] == -1.0


def test_faults_of_gradients_roll_coordinates_or_add_weight_decay() -> None:
    g = ScaledGradient(np.array([math.log(2), 0.0]), np.array([[1.0, 2, 3], [4, 5, 6]]))
    assert gradient_faults._roll(g).direction.tolist() == [[3, 1, 2], [6, 4, 5]]
    p = np.array([[3.0, 0, 4], [0, 0, 0]])
    decayed = gradient_faults._add_decay(g, 0.5, PROBLEM.keys, PROBLEM.scores, PROBLEM.loss, p)
    whole = np.exp(decayed.log_scale)[:, None] * decayed.direction
    assert whole == pytest.approx(np.array([[2 + 1.5, 4, 6 + 2], [4, 5, 6]]))


def test_slope_at_minus_u_changes_only_the_loss() -> None:
    (keys, scores, loss), factor = gradient_faults._slope_at_minus_u(PROBLEM.keys, PROBLEM.scores, PROBLEM.loss)
    assert (keys is PROBLEM.keys, scores is PROBLEM.scores, factor) == (True, True, 1.0)
    assert loss.log_slope(np.array(3.0)) == PROBLEM.loss.log_slope(np.array(-3.0))


def test_a_joint_run_that_normalizes_both_gradients_together_does_so_in_each_step() -> None:
    tokens, keys = np.array([[[1.0, 0.5], [0.2, -1]]]), np.array([[[1.0, 0], [0.3, 0.7]]])
    head, prompt = np.array([0.5, 0.25]), np.array([0.1, 0.4])
    options: dict[str, Any] = {"head_step": 0.3, "prompt_step": 0.2}
    right = joint_descent(tokens, keys, head, prompt, steps=1, **options)
    run = joint_faults._run(joint_faults._together, None, tokens, keys, head, prompt, steps=2, **options)
    assert run.heads[1] - head == pytest.approx((right.heads[1] - head) / math.sqrt(2))
    assert run.prompts[1] - prompt == pytest.approx((right.prompts[1] - prompt) / math.sqrt(2))
    again = joint_descent(tokens, keys, run.heads[1], run.prompts[1], steps=1, **options)
    assert run.prompts[2] - run.prompts[1] == pytest.approx((again.prompts[1] - run.prompts[1]) / math.sqrt(2))


@cache
def path() -> Any:
    svm = max_margin(PROBLEM.keys, PROBLEM.optimal)
    assert isinstance(svm, MaxMargin)
    return svm, regularization_path(PROBLEM, np.array([5.0, 20.0, 80.0]), max_margin=svm)


def test_moved_points_of_a_path_keep_their_norms() -> None:
    _, right = path()
    ray = path_faults._repeat_limit(right).points
    assert ray == pytest.approx(np.outer([1 / 16, 1 / 4, 1], right.points[-1]), rel=1e-6)
    moved = path_faults._move_along_the_sphere(right, 0.1).points
    assert np.linalg.norm(moved, axis=1) == pytest.approx(right.norms)
    cosines = np.sum(moved * right.points, axis=1) / right.norms**2
    assert cosines == pytest.approx(np.full(3, 1 / math.sqrt(1.01)), rel=1e-9)


def test_offsets_of_a_moved_path_are_those_of_the_moved_points() -> None:
    svm, _ = path()
    faulty = fault_named("path-ends-early").of_size(0.1).implementation
    result = faulty[regularization_path](PROBLEM, np.array([5.0, 20.0]), max_margin=svm)
    assert np.abs(result.offsets @ svm.direction).max() < 1e-12
    assert result.offsets + np.outer(result.points @ svm.direction, svm.direction) == pytest.approx(result.points)


def test_faults_of_the_smoothness_bound_use_the_intended_wrong_formulas() -> None:
    """Keys have spectral norms 2 and 3, scores norms 5 and 13; M0 and M1 bound the loss's slope and its change."""
    keys = np.array([[[2.0, 0], [0, 1]], [[0, 3], [1, 0]]])
    problem = Problem(keys, np.array([[3.0, 4], [5, 12]]), loss_named("logistic"))
    m0, m1 = (math.exp(bound(3.0, 12.0)) for bound in (problem.loss.log_lipschitz, problem.loss.log_bound))
    first = [(g * g * k, 3 * m1 / m0 * g * k) for g, k in ((5, 2), (13, 3))]
    second = [(g * g * k * k, 3 * m1 / m0 * g * k * k) for g, k in ((5, 2), (13, 3))]
    assert risk_faults._norms_not_squared(None, problem) == pytest.approx(math.log(m0 * np.sum(first) / 2))
    assert risk_faults._without_steepness(None, problem) == pytest.approx(math.log(m0 * sum(x for x, _ in second) / 2))
    assert risk_faults._of_the_sum(None, problem) == pytest.approx(math.log(m0 * np.sum(second)))
    assert problem.log_smoothness == pytest.approx(math.log(m0 * np.sum(second) / 2))


def test_step_above_bound_reduces_the_smoothness_so_that_steps_are_longer() -> None:
    longer = fault_named("step-above-bound").of_size(0.5).implementation
    assert longer[log_smoothness](PROBLEM) == PROBLEM.log_smoothness - math.log(1.5)


def test_key_off_and_score_off_change_exactly_one_entry() -> None:
    off = data_faults._key_off(KEYS, 0.5) / np.where(KEYS != 0, KEYS, 1.0)
    assert off[0, 0, 0] == 1.5
    assert np.delete(off.ravel(), 0) == pytest.approx(np.delete(np.where(KEYS != 0, 1.0, 0.0).ravel(), 0))
    scores = data_faults._score_off(PROBLEM.scores, 0.5)
    assert scores.ravel().tolist() == [1.5, *PROBLEM.scores.ravel()[1:]]
    several = data_faults._score_off(np.stack([PROBLEM.scores] * 2), 0.5)
    assert (several[0] == several[1]).all()


def test_next_token_wraps_around_after_the_last_token() -> None:
    """The fault replaces the chosen token of the first input only, by the next one."""
    case = Case(PROBLEM, alpha=np.array([2, 1]))
    assert data_faults._next_token(case).chosen_tokens.tolist() == [0, 1]
    _, other = svm_faults._next_token(np.zeros((2, 4, 3)), np.array([3, 2]))
    assert other.tolist() == [0, 2]


def test_faults_of_sets_leave_out_choices_of_tokens() -> None:
    """Tokens 0 and 1 of the first input are optimal, and so are tokens 1 and 2 of the second, whose keys are equal, so
    that some choices have p_mm of equal norm.
    """
    keys = np.array([[[1.0, 0], [1, 2], [0, 0]], [[0, 0], [1, 0.5], [1, 0.5]]])
    optimal = np.array([[True, True, False], [False, True, True]])
    sets = max_margin_sets(keys, optimal, max_margin)
    assert isinstance(sets, MaxMarginSets)
    assert len(sets.choices) > 1
    first = set_faults._keep_first_tokens(sets, keys, optimal)
    assert [choice.alpha.tolist() for choice in first.choices] == [[0, 1]]
    few = set_faults._keep_one_of_several(sets)
    norms = [choice.norm_squared for choice in sets.choices]
    kept = [choice.norm_squared for choice in few.choices]
    assert kept == [norms[0], *(x for x in norms if x != norms[0])]


def test_without_a_constraint_the_lost_one_is_violated() -> None:
    """The constraints k·p ≥ 1 have k = (1, 1) and (1, −1); without the first, p_mm is (½, −½)."""
    keys = np.array([[[0.0, 0], [-1, -1], [-1, 1]]])
    right = max_margin(keys, np.array([0]))
    assert isinstance(right, MaxMargin)
    lost = svm_faults._without_a_constraint(right, keys)
    assert isinstance(lost, MaxMargin)
    assert lost.p == pytest.approx([0.5, -0.5], abs=2e-3)
    assert keys @ lost.p == pytest.approx(np.array([[0.0, 0.0, -1.0]]), abs=2e-3)


def test_faults_of_products_change_only_keys_or_only_scores() -> None:
    X = np.array([[[8.0, 1 / 3], [0.1, 2.0]]])
    square = Dataset(X, [-1.0], [0.3, 0.7], [[1.0, 2.0], [3.0, 4.0]], "logistic")
    assert token_faults._transpose(keys_and_scores, square)[0] == pytest.approx(X @ np.array([[1.0, 2.0], [3.0, 4.0]]))
    narrow = Dataset(X, [-1.0], [0.3, 0.7], [[0.1, 0.3]], "logistic")
    assert (token_faults._transpose(keys_and_scores, narrow)[0] == narrow.problem.keys).all()
    for data in (square, narrow):
        _, scores = token_faults._single_head(keys_and_scores, data)
        assert scores == pytest.approx(data.problem.scores, rel=1e-6)
        assert (scores != data.problem.scores).any()
        keys, _ = token_faults._single_products(keys_and_scores, data)
        assert keys == pytest.approx(data.problem.keys, rel=1e-6)
        assert (keys != data.problem.keys).any()


def test_faults_of_softmax_have_the_intended_weights_jacobian_and_rounding() -> None:
    weights, scores = np.array([0.25, 0.75]), np.array([4.0, -2.0])
    assert softmax.diagonal(weights, weights, scores, 0.0) == pytest.approx(np.array([0.75, -0.375]))
    logits = np.array([0.3, 2.7, -1.1, 2.0])
    assert attention_faults._top_two(logits, 0.0) == pytest.approx(
        np.array([0, 1 / (1 + math.exp(-0.7)), 0, 1 / (1 + math.exp(0.7))])
    )
    # Rounded to three bits, 2.7 becomes 2.5, 0.3 becomes 0.3125 and −1.1 becomes −1.
    rounded = logits + attention_faults._rounding_change(logits, 2.0**-3)
    assert rounded == pytest.approx(np.array([0.3125, 2.5, -1.0, 2.0]), abs=1e-15)
