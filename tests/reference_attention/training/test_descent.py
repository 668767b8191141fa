"""Gradient descent and normalized gradient descent: each step, the record, extreme steps, and the rate.

Notation: η is the step size, L the risk, L_p the smoothness constant of L.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.loss import Loss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient
from reference_attention.training.descent import (
    Stop,
    Trajectory,
    descend,
    gradient_descent,
    normalized_gradient_descent,
)
from tests.reference_attention.test_risk import negated

EPS = float(np.finfo(float).eps)


pytestmark = pytest.mark.filterwarnings("error")


def some_problem(seed: int = 0, loss: str = "logistic", n: int = 3, T: int = 4, d: int = 5) -> Problem:
    rng = np.random.default_rng(seed)
    return Problem(rng.normal(size=(n, T, d)), rng.normal(size=(n, T)), LOSSES[loss])


def other_gradient(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    """Return the reference gradient, as a function of its own, so that runs take the code for users' kernels."""
    return risk.scaled_gradient(keys, scores, loss, p)


def largest_violation(problem: Problem, run: Trajectory, log_step: float) -> float:
    """Return the largest violation of L(p(t+1)) − L(p(t)) ≤ −(η/2)‖∇L‖², the descent inequality at η ≤ 1/L_p."""
    value = risk.risk(problem.keys, problem.scores, problem.loss, run.points)
    promised = np.exp(log_step + 2 * run.log_gradient_norm[:-1]) / 2
    return float((np.diff(value, axis=0) + promised).max() / np.abs(value).max())


@pytest.mark.parametrize("loss", LOSSES)
def test_each_step_satisfies_the_descent_inequality_and_the_negated_step_does_not(loss: str) -> None:
    problem = some_problem(loss=loss)
    start = np.zeros(5)
    run = gradient_descent(problem, start, steps=200)
    assert run.stop is Stop.STEPS
    # The two risks carry a few roundings each.
    assert largest_violation(problem, run, -problem.log_smoothness) <= 64 * EPS
    wrong = gradient_descent(problem, start, steps=200, gradient=negated)
    assert largest_violation(problem, wrong, -problem.log_smoothness) > 64 * EPS


def test_each_step_is_minus_the_step_size_times_the_gradient() -> None:
    problem = some_problem(1)
    run = gradient_descent(problem, np.ones(5), steps=30, log_step=np.log(0.3))
    gradient = risk.scaled_gradient(problem.keys, problem.scores, problem.loss, run.points[:-1])
    expected = run.points[:-1] - 0.3 * np.exp(gradient.log_scale)[:, None] * gradient.direction
    assert np.abs(run.points[1:] - expected).max() <= 32 * EPS * np.abs(run.points).max()
    assert run.log_time[1:] == pytest.approx(np.log(0.3 * np.arange(1, 31)), abs=30 * EPS * 8)
    assert run.log_time[0] == -np.inf
    assert run.log_gradient_norm[:-1] == pytest.approx(gradient.log_norm, abs=64 * EPS)


def test_normalized_steps_have_the_given_length_and_time_adds_up() -> None:
    problem = some_problem(2)
    run = normalized_gradient_descent(problem, np.zeros(5), steps=50, step=0.1)
    lengths = np.linalg.norm(np.diff(run.points, axis=0), axis=1)
    assert np.abs(lengths - 0.1).max() <= 8 * EPS * (1 + run.norms.max())
    expected = np.logaddexp.accumulate(np.log(0.1) - run.log_gradient_norm[:-1])
    assert run.log_time[1:] == pytest.approx(expected, rel=64 * EPS)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("gradient", [risk.scaled_gradient, other_gradient])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=["shared", "by-column", "stacked"])
def test_runs_in_a_batch_agree_with_runs_from_each_start(
    normalized: bool, gradient: Any, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    keys, scores = rng.normal(size=(*shape, 3, 4, 5)), rng.normal(size=(*shape, 3, 4))
    starts = rng.normal(size=(2, 3, 5))
    loss = LOSSES["logistic"]
    batch = descend(
        keys, scores, loss, starts, steps=25, log_step=-1.0, normalized=normalized, gradient=gradient, record_every=5
    )
    assert batch.points.shape == (6, 2, 3, 5)
    assert batch.log_risk.shape == batch.sign.shape == batch.norms.shape == batch.log_time.shape == (6, 2, 3)
    for i in range(2):
        for j in range(3):
            place = (i, j)[2 - len(shape) :]
            k, g = keys[place], scores[place]
            one = descend(k, g, loss, starts[i, j], steps=25, log_step=-1.0, normalized=normalized, record_every=5)
            # In each of 25 steps gradients agree up to some roundings; a step multiplies distances by at most exp(η
            # L_p).
            allowed = 25 * 64 * EPS * np.exp(5.0)
            assert np.abs(batch.points[:, i, j] - one.points).max() <= allowed
            assert np.abs(batch.log_risk[:, i, j] - one.log_risk).max() <= allowed
            assert np.abs(batch.log_time[1:, i, j] - one.log_time[1:]).max() <= allowed
            assert np.abs(batch.log_gradient_norm[:, i, j] - one.log_gradient_norm).max() <= allowed


def test_every_kth_iterate_and_the_last_are_recorded() -> None:
    problem = some_problem(4)
    run = gradient_descent(problem, np.zeros(5), steps=23, record_every=10)
    full = gradient_descent(problem, np.zeros(5), steps=23)
    assert run.iterations.tolist() == [0, 10, 20, 23]
    assert (run.points == full.points[[0, 10, 20, 23]]).all()
    assert (run.log_risk == full.log_risk[[0, 10, 20, 23]]).all()
    assert (run.final == full.points[-1]).all()


@pytest.mark.parametrize("starts", [np.ones(5), np.ones((2, 5))])
def test_steps_beyond_the_floats_stop_the_run_and_steps_below_the_rounding_do_not_move(starts: Any) -> None:
    problem = some_problem(5)
    over = gradient_descent(problem, starts, steps=5, log_step=1e4)
    assert over.stop is Stop.OVERFLOW
    assert not over.representable.any()
    assert (over.points == starts).all()
    under = gradient_descent(problem, starts, steps=5, log_step=-1e4)
    assert under.stop is Stop.STEPS
    assert (under.points == starts).all()


def test_in_a_batch_only_the_start_that_overflows_stops() -> None:
    problem = some_problem(5)
    run = gradient_descent(problem, np.ones((2, 5)), steps=5, log_step=np.array([1e4, 0.0]))
    assert run.representable.tolist() == [False, True]
    assert (run.points[:, 0] == 1).all()
    assert (run.points[-1, 1] != 1).any()


@pytest.mark.parametrize(("log_step", "taken"), [(699.0, True), (706.0, False)])
def test_a_step_size_beyond_e_700_is_not_taken_even_if_finite(log_step: float, taken: bool) -> None:
    keys, scores = np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([[4.0, 0.0]])
    for start in (np.zeros(2), np.zeros((2, 2))):
        with np.errstate(over="ignore"):  # the squared norm of the step overflows
            run = descend(keys, scores, LOSSES["correlation"], start, steps=1, log_step=log_step)
        assert np.all(run.representable == taken)
        assert np.all((run.points[1] != 0) == taken)


def test_a_start_whose_step_overflows_keeps_its_point_and_its_time() -> None:
    """e^699 is a representable step size, but e^699 times a gradient of 10⁶ is not a representable step."""
    keys, scores = 1e6 * np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([[1e3, 0.0]])
    log_step = np.array([699.0, -40.0])
    run = descend(keys, scores, LOSSES["correlation"], np.zeros((2, 2)), steps=4, log_step=log_step)
    assert run.representable.tolist() == [False, True]
    for k in range(2):
        one = descend(keys, scores, LOSSES["correlation"], np.zeros(2), steps=4, log_step=float(log_step[k]))
        assert run.points[:, k] == pytest.approx(one.points, rel=1e-12, abs=0)
        assert run.log_time[1:, k] == pytest.approx(one.log_time[1:], rel=1e-12)
    assert (run.points[:, 0] == 0).all()


@pytest.mark.parametrize("starts", [np.ones(3), np.ones((2, 3))])
def test_where_the_gradient_is_zero_descent_does_not_move(starts: Any) -> None:
    problem = Problem(np.random.default_rng(0).normal(size=(2, 4, 3)), np.full((2, 4), 0.5))
    plain = gradient_descent(problem, starts, steps=3, log_step=-1.0)
    normalized = normalized_gradient_descent(problem, starts, steps=3, step=0.1)
    # Time passes at rest; in normalized descent no η gives η‖∇L‖ = 0.1, and no time is counted.
    elapsed = np.broadcast_to(np.log(np.arange(1, 4)) - 1, (*np.shape(starts)[:-1], 3)).T
    assert plain.log_time[1:] == pytest.approx(elapsed, abs=8 * EPS)
    assert (normalized.log_time == -np.inf).all()
    for run in (plain, normalized, gradient_descent(problem, starts, steps=3)):
        assert (run.points == starts).all()
        assert (run.log_gradient_norm == -np.inf).all()
        assert (run.sign == 0).all()


@pytest.mark.parametrize("factor", [2.0**-398, 2.0**398])
def test_descent_for_keys_in_another_unit_is_the_same_descent_in_that_unit(factor: float) -> None:
    problem = some_problem(6)
    here = gradient_descent(problem, np.ones(5), steps=50)
    scaled = Problem(problem.keys * factor, problem.scores, problem.loss)
    there = gradient_descent(scaled, np.ones(5) / factor, steps=50)
    # Only log L_p and the log scale are rounded differently, because the exponent of each step contains 400 log 2.
    assert np.abs(there.points * factor - here.points).max() <= 50 * 8 * EPS * (1 + 800 * np.log(2))


def test_the_norm_of_descent_grows_like_the_logarithm_of_time() -> None:
    # n = 1, T = 2, d = 1, correlation loss: x = k p moves by a σ(x)σ(−x), a = η Δ k², so that
    # e^x grows by a + O(a (a/2 + 2) e^{−x}) a step: e^{x(t)} = a t + O(1 + (a/2 + 2) log t).
    k, gap = 1.25, 0.5
    problem = Problem(np.array([[[k], [0.0]]]), np.array([[gap, 0.0]]), LOSSES["correlation"])
    run = gradient_descent(problem, np.zeros(1), steps=2**13, log_step=0.0, record_every=2**6)
    a = gap * k * k
    t = run.iterations[1:].astype(float)
    grown = np.exp(k * run.points[1:, 0])
    assert (np.abs(grown - a * t) <= 1 + (a / 2 + 2) * (1 + np.log(t))).all()
    slope = np.polyfit(np.log(t[t >= 2**10]), np.log(grown[t >= 2**10]), 1)[0]
    # The correction O(…) changes x = log e^x by at most its share of a t, over the fitted range of log t.
    share = (1 + (a / 2 + 2) * (1 + np.log(2**10))) / (a * 2**10)
    assert abs(slope - 1) <= 2 * share / np.log(8)
    faster = normalized_gradient_descent(problem, np.zeros(1), steps=2**10, step=0.1)
    assert faster.norms[-1] == pytest.approx(0.1 * 2**10, rel=2**10 * EPS)


def test_one_minus_cosine_is_accurate_for_tiny_angles() -> None:
    problem = some_problem(7, d=2)
    run = gradient_descent(problem, np.array([1e6, 0.0]), steps=0)
    direction = np.array([1.0, 1e-9])
    assert run.one_minus_cosine(direction)[0] == pytest.approx(0.5e-18, rel=8 * EPS)


def test_one_minus_cosine_is_given_for_each_start_and_at_any_length_of_the_direction() -> None:
    run = gradient_descent(some_problem(7), np.random.default_rng(0).normal(size=(2, 3, 5)), steps=2)
    direction = np.array([1.0, -2.0, 0.5, 3.0, 1.0])
    expected = 1 - run.points @ direction / (run.norms * np.linalg.norm(direction))
    assert run.one_minus_cosine(direction) == pytest.approx(expected, abs=16 * EPS)


def test_sign_and_log_risk_agree_with_the_excess_over_the_optimal_tokens() -> None:
    problem = some_problem(8)
    run = gradient_descent(problem, np.ones((2, 5)), steps=3)
    sign, log_size = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, run.points, problem.optimal)
    assert (run.sign == sign).all()
    assert run.log_risk == pytest.approx(log_size, abs=64 * EPS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": np.zeros(4)}, r"start: shape \(4,\) does not end in d = 5"),
        ({"start": np.full(5, np.nan)}, "start: it has NaN"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"record_every": 0}, "record_every at least 1"),
        ({"log_step": np.nan}, "log_step: it is NaN"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"start": np.zeros(5), "steps": 3} | change
    with pytest.raises(InvalidInput, match=message):
        gradient_descent(some_problem(), given.pop("start"), **given)


def test_a_step_that_is_not_positive_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"step: 0\.0 is not a positive"):
        normalized_gradient_descent(some_problem(), np.zeros(5), steps=1, step=0.0)


def test_batches_of_unequal_shapes_are_refused() -> None:
    keys, scores = np.zeros((3, 2, 2, 5)), np.zeros((3, 2, 2))
    sentence = (
        "start: batch axes (4, 7) do not broadcast against the problems' (3,) and (3,);"
        " give one start per problem or one for all."
    )
    with pytest.raises(InvalidInput, match=f"^{re.escape(sentence)}$"):
        descend(keys, scores, LOSSES["logistic"], np.zeros((4, 7, 5)), steps=1, log_step=0.0)


@pytest.mark.parametrize("scale", [1.0, 16.0])
def test_the_gradient_norms_of_a_batch_belong_to_its_points(scale: float) -> None:
    problem = Problem(scale * np.random.default_rng(5).standard_normal((3, 4, 2)), np.eye(3, 4))
    starts = np.random.default_rng(6).standard_normal((5, 2)) / scale
    run = gradient_descent(problem, starts, steps=4)
    gradient = risk.scaled_gradient(problem.keys, problem.scores, problem.loss, run.points)
    assert run.log_gradient_norm == pytest.approx(gradient.log_norm, abs=256 * EPS)


def test_a_step_of_size_zero_takes_no_time_and_does_not_move() -> None:
    problem = some_problem()
    run = gradient_descent(problem, np.ones(5), steps=3, log_step=-np.inf)
    assert (run.points == 1).all()
    assert (run.log_time == -np.inf).all()


def test_every_step_is_recorded_by_default() -> None:
    problem = some_problem()
    run = descend(problem.keys, problem.scores, problem.loss, np.zeros(5), steps=3, log_step=0.0)
    assert run.iterations.tolist() == [0, 1, 2, 3]


def test_one_minus_cosine_may_be_relative_to_another_direction_for_each_start() -> None:
    problem = some_problem()
    run = gradient_descent(problem, np.ones((3, 5)) + np.arange(3)[:, None], steps=4)
    directions = np.random.default_rng(0).normal(size=(3, 5))
    result = run.one_minus_cosine(directions)
    for k, direction in enumerate(directions):
        cosines = run.points[:, k] @ direction / (run.norms[:, k] * np.linalg.norm(direction))
        assert result[:, k] == pytest.approx(1 - cosines, abs=16 * EPS)


def test_a_scalar_start_is_refused() -> None:
    problem = some_problem(d=1)
    with pytest.raises(InvalidInput, match=r"start: shape \(\) does not end in d = 1"):
        descend(problem.keys, problem.scores, problem.loss, np.array(1.0), steps=1, log_step=0.0)
