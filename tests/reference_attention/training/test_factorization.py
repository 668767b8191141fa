"""Training of the factors (K, Q) as one point: derivatives by differences, walls by formula, conservation, safe steps,
and refused input. A wall is a point where another token's term of the gradient becomes the largest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.derivatives import newton_field
from reference_attention.training.descent import Stop
from reference_attention.training.factored_descent import factored_gradient_descent
from reference_attention.training.factored_flow import factored_flow
from reference_attention.training.factorization import (
    Layout,
    QuadraticWallDistance,
    factor_gradients,
    factored_slope,
    first_passage,
    imbalance,
    log_curvatures,
    log_safe_step,
)

RNG = np.random.default_rng(0)
DATA = QueryDataset(RNG.normal(size=(3, 4, 3)), RNG.normal(size=(3, 2)), [1, -1, 1], [1.0, -0.5, 2.0])
"""Data with tokens of dimension 3 and queries of dimension 2."""
K, Q = RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))
LAYOUT = Layout(3, 2, 4)
ONE = QueryDataset([[[1, 2], [2, -1], [0, 1]]], [[1, 0.5]], [1], [1, 0])


def value(point: Any) -> float:
    problem = DATA.problem
    return float(risk.risk(problem.keys, problem.scores, problem.loss, LAYOUT.weights(point)))


def test_a_point_is_both_factors_flattened_row_by_row() -> None:
    point = LAYOUT.join(K, Q)
    assert all(np.array_equal(a, b) for a, b in zip(LAYOUT.split(point), (K, Q), strict=True))
    assert LAYOUT.weights(point) == pytest.approx((K @ Q.T).ravel(), rel=1e-15)
    step = 1e-7 * RNG.normal(size=point.shape)
    moved = LAYOUT.weights(point + step) - LAYOUT.weights(point - step)
    assert moved == pytest.approx(2 * LAYOUT.derivative(point) @ step, rel=1e-6, abs=1e-14)


def test_gradient_and_hessian_agree_with_the_risk() -> None:
    point, slope = LAYOUT.join(K, Q), factored_slope(DATA.problem, LAYOUT)
    assert slope.newton is not None
    log_scale, direction, curvature = slope.newton(point)
    assert slope.field(point)[1] * math.exp(slope.field(point)[0] - log_scale) == pytest.approx(direction, rel=1e-12)
    h, axes = 1e-5, np.eye(len(point))
    by_difference = [(value(point + h * a) - value(point - h * a)) / (2 * h) for a in axes]
    assert math.exp(log_scale) * direction == pytest.approx(by_difference, abs=1e-8)

    def gradient(p: Any) -> Any:
        log, result = slope.field(p)
        return math.exp(log - log_scale) * result

    columns = [(gradient(point + h * a) - gradient(point - h * a)) / (2 * h) for a in axes]
    assert curvature == pytest.approx(np.array(columns), abs=1e-7 * np.abs(curvature).max())


def test_the_wall_is_where_the_quadratic_logits_predict_it() -> None:
    result = first_passage(
        np.array([1.0, 1.0, 1.0, 2.0, 1.0]), np.array([1.0, 0, 3, -1, 0]), np.array([0.0, 4, -2, 3, -1])
    )
    assert result == pytest.approx([1.0, 0.5, 0.5, 1.0, math.inf])
    problem, point = DATA.problem, LAYOUT.join(3 * K, 3 * Q)
    ahead = QuadraticWallDistance(problem, LAYOUT)
    velocity = RNG.normal(size=point.shape)
    velocity /= np.linalg.norm(velocity)
    arc, (_, before) = ahead.arc(point, velocity), ahead.terms(LAYOUT.weights(point))
    top = before.argmax()
    assert math.isfinite(arc)
    # Terms at the wall have the key differences of the start, because the selected tokens are the same.
    moved = LAYOUT.weights(point + arc * velocity)
    rows = ahead.terms(LAYOUT.weights(point))[0].rows
    logs = before.ravel() + rows @ (moved - LAYOUT.weights(point))
    assert float((logs - logs[top]).max()) == pytest.approx(5.0, abs=1e-9)


def test_the_flow_of_factors_conserves_the_imbalance_and_keeps_rank_one() -> None:
    flow = factored_flow(DATA, K, Q, norm=100.0, relative=1e-12)
    assert flow.reached_norm
    assert imbalance(flow.K, flow.Q) == pytest.approx(np.tile(imbalance(K, Q), (len(flow.K), 1, 1)), abs=1e-7)
    assert np.all(np.diff(flow.log_risk * flow.sign) <= 0) or np.all(flow.sign > 0)
    thin = factored_flow(ONE, [[1.0, 0], [0.5, 0]], [[1.0, 0], [-1.0, 0]], norm=100.0)
    assert not thin.K[..., 1].any()
    assert not thin.Q[..., 1].any()


def test_the_flow_from_the_origin_is_stationary() -> None:
    assert factored_flow(ONE, np.zeros((2, 2)), np.zeros((2, 2)), norm=1.0).stop is Stop.STATIONARY


def test_the_flow_of_factors_agrees_with_short_steps_of_descent() -> None:
    flow = factored_flow(ONE, np.eye(2), np.zeros((2, 2)), norm=2.0, record=np.array([1.6, 1.8]))
    run = factored_gradient_descent(ONE, np.eye(2), np.zeros((2, 2)), steps=4000, length=1e-3)
    norms = np.sqrt(np.sum(run.K**2, axis=(1, 2)) + np.sum(run.Q**2, axis=(1, 2)))
    for k, norm in ((1, 1.6), (2, 1.8)):
        nearest = int(np.abs(norms - norm).argmin())
        assert run.W[nearest] == pytest.approx(flow.W[k], abs=5e-3)


def test_a_safe_step_lowers_the_risk_from_any_start() -> None:
    for size in (0.1, 1.0, 30.0):
        run = factored_gradient_descent(DATA, size * K, Q / size, steps=20)
        values = [value(point) for point in LAYOUT.join(run.K, run.Q)]
        gained = np.exp(run.log_steps + 2 * run.log_gradient_norm)[:-1] / 2
        assert (np.diff(values) <= -gained + 1e-15).all()
        assert run.log_steps[0] == log_safe_step(DATA.problem, size * K, Q / size, float(run.log_gradient_norm[0]))


def test_curvature_constants_bound_hessian_and_gradient() -> None:
    log_smooth, log_steep = log_curvatures(DATA.problem)
    field = newton_field(DATA.problem.keys, DATA.problem.scores, DATA.problem.loss)
    for W in np.random.default_rng(1).normal(size=(200, 6)) * 2:
        log_scale, direction, curvature = field(W)
        assert log_scale + math.log(np.linalg.norm(curvature, 2)) <= log_smooth
        assert log_scale + math.log(np.linalg.norm(direction)) <= log_steep


def test_records_are_thinned_and_an_overflowing_step_stops_the_run() -> None:
    run = factored_gradient_descent(DATA, K, Q, steps=7, record_every=3, log_step=-2.0)
    assert run.iterations.tolist() == [0, 3, 6, 7]
    assert run.stop is Stop.STEPS
    long = factored_gradient_descent(DATA, K, Q, steps=2, log_step=800.0)
    assert long.stop is Stop.OVERFLOW
    assert np.array_equal(long.K[-1], K)


def test_a_gradient_rule_that_is_not_the_reference_has_no_hessian() -> None:
    def rule(gradient: Any, K: Any, Q: Any) -> Any:
        return factor_gradients(gradient, K, Q)

    slope = factored_slope(DATA.problem, LAYOUT, rule=rule)
    assert slope.newton is None
    flow = factored_flow(DATA, K, Q, norm=10.0, rule=rule)
    assert flow.W[-1] == pytest.approx(factored_flow(DATA, K, Q, norm=10.0).W[-1], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"K": K[:2]}, "K: shape"),
        ({"Q": Q[:, :1]}, "Q: shape"),
        ({"norm": 1.0}, "norm: 1 must be finite and larger than"),
    ],
)
def test_a_flow_refuses_factors_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        factored_flow(DATA, **{"K": K, "Q": Q, "norm": 10.0, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": -1}, "steps: steps must be"),
        ({"log_step": 0.0, "length": 1.0}, "log_step: give"),
        ({"log_step": math.nan}, "log_step: give"),
        ({"length": 0.0}, "length: 0.0 is not"),
    ],
)
def test_a_descent_refuses_invalid_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        factored_gradient_descent(DATA, K, Q, **{"steps": 1, **options})
