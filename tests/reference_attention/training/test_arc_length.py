"""Parts of the integration of the flow in arc length: frame, Jacobian, curvature by differences, and the result where a
solver fails.

L is the risk. A wall is a point where another token's term of the gradient becomes the largest.
"""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import LSODA

from reference_attention import risk
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.training import arc_length
from reference_attention.training.arc_length import (
    ROUNDINGS,
    Tracer,
    _central_differences,
    _frame,
    _log_piece,
    _passage,
    _step,
)
from reference_attention.training.derivatives import gradient_field, newton_field
from reference_attention.training.descent import Stop
from reference_attention.training.flow import gradient_flow
from reference_attention.training.slope import slope_of
from reference_attention.training.wall_distance import WallDistance
from tests.reference_attention.training.test_flow import other_gradient, saddle, separable, two_tokens, valley

EPS = float(np.finfo(float).eps)


def tracer(problem: Problem, start: Any, *targets: float, gradient: Any = risk.scaled_gradient) -> Tracer:
    return Tracer(slope_of(problem, gradient), np.array(start), np.array(targets), 1e-9)


def failing(y: Any, message: str | None) -> Any:
    """Return a solver that fails in its first step, with the given point and message."""

    def solver(fun: Any, t: float, y0: Any, end: float, **options: Any) -> Any:
        made = SimpleNamespace(status="running", y=np.asarray(y0, dtype=float), t=t, t_bound=math.inf)

        def step() -> str | None:
            made.status, made.y = "failed", made.y if y is None else np.asarray(y)
            return message

        made.step = step
        return made

    return solver


@pytest.mark.parametrize("axis", [(2.0,), (-3.0,), (1.0, 2.0), (-1.0, 0.5), (0.0, -2.0, 0.0), (-1.0, 2.0, 3.0, -0.5)])
def test_a_frame_is_orthogonal_and_begins_with_its_axis(axis: tuple[float, ...]) -> None:
    unit = np.array(axis) / np.linalg.norm(axis)
    frame = _frame(np.array(axis))
    assert frame.T @ frame == pytest.approx(np.eye(len(axis)), abs=8 * EPS)
    assert frame[:, 0] == pytest.approx(unit, abs=8 * EPS)


@pytest.mark.parametrize("scale", [2.0**-40, 1.0, 2.0**40])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
def test_the_curvature_by_differences_is_the_curvature(scale: float, size: float) -> None:
    rng = np.random.default_rng(0)
    # Tokens tie along p, so that logits are of size 1e4 and weights of size 1.
    keys = rng.normal(size=(3, 4, 3)) * scale
    keys[..., 0] = rng.normal(size=(3, 1)) * scale
    scores, p = rng.normal(size=(3, 4)), np.array([size, 0.0, 0.0]) / scale
    value, direction, curvature = _central_differences(gradient_field(keys, scores, LOSSES["logistic"]), scale)(p)
    log_scale, exact, second = newton_field(keys, scores, LOSSES["logistic"])(p)
    factor = np.exp(value - log_scale)
    direction, curvature = factor * direction, factor * curvature
    assert direction == pytest.approx(exact, rel=1e-12, abs=1e-12 * np.abs(exact).max())
    # Central differences with the best step err by this much for logits of that size.
    assert curvature == pytest.approx(second, abs=16 * (EPS * (1 + size)) ** (2 / 3) * scale)


def test_the_jacobian_is_the_derivative_of_the_velocity() -> None:
    rng = np.random.default_rng(1)
    problem, p, h = Problem(rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3))), rng.normal(size=3), 1e-5
    trace = tracer(problem, p, 10.0)
    columns = [(trace._velocity(0.7, p + h * e) - trace._velocity(0.7, p - h * e)) / (2 * h) for e in np.eye(3)]
    assert trace._jacobian(0.7, p) == pytest.approx(np.transpose(columns), abs=1e-7)
    level = tracer(Problem(problem.keys, np.ones((2, 3))), p, 10.0)
    assert (level._jacobian(0.7, p) == 0).all()


def test_a_norm_is_reached_within_a_step_or_at_its_ends() -> None:
    def dense(u: float) -> Any:
        return np.array([3.0 * u, 4.0 * u])

    assert _passage(dense, 1.0, 2.0, 7.5) == pytest.approx(1.5, rel=4 * EPS)
    assert _passage(dense, 1.0, 2.0, 4.9) == 1.0
    assert _passage(dense, 1.0, 2.0, 10.1) == 2.0


@pytest.mark.parametrize("change", [0.0, 1e-14, 1e-11, 0.1, 5.0, -5.0])
def test_the_time_over_a_piece_is_exact_if_the_slope_is_exponential(change: float) -> None:
    mean = 1.0 if change == 0 else math.expm1(change) / change
    # The integral of e^{−(a + change s/l)} over s from 0 to the length l is l e^{−a} (1 − e^{−change})/change.
    expected = math.log(0.5) - 3.0 - change + math.log(mean)
    assert _log_piece(0.5, 3.0, 3.0 + change) == pytest.approx(expected, rel=1e-12)
    assert _log_piece(0.5, 3.0, -math.inf) == math.inf


def test_a_piece_of_no_length_takes_no_time() -> None:
    trace = tracer(valley(), [0.7], 10.0)
    assert trace._log_time(lambda u: np.array([0.7]), 2.5, (1.0, -3.0), (1.0, -3.0)) == 2.5


def test_the_absolute_tolerance_is_the_rounding_at_the_last_norm() -> None:
    trace = tracer(valley(), [0.7], 1.0, 1e9)
    assert trace.absolute == pytest.approx(ROUNDINGS * EPS * 1e9)


@pytest.mark.parametrize("factor", [2.0**-10, 1.0, 2.0**10])
def test_the_arc_length_of_a_straight_flow_is_its_distance(factor: float) -> None:
    flow = gradient_flow(two_tokens(factor, 0.5), np.zeros(1), norm=100.0 / factor)
    assert flow.arc_length == pytest.approx(flow.norms, rel=1e-7)


@pytest.mark.parametrize("gradient", [risk.scaled_gradient, other_gradient])
def test_where_a_solver_fails_only_a_nearby_stationary_point_is_accepted(gradient: Any) -> None:
    far = tracer(valley(), [0.05], 10.0, gradient=gradient)
    assert far.run(failing(None, "no way"), 10) == (Stop.FAILED, "no way (at norm 0.05)")
    assert far.run(failing([math.nan], None), 10) == (
        Stop.FAILED,
        "the solver returned NaN or infinite entries (at norm 0.05)",
    )
    assert far.run(failing([math.nan], "lost"), 10) == (Stop.FAILED, "lost (at norm 0.05)")
    # Where a solver fails, a saddle counts as a point of rest too.
    near = tracer(saddle(), [0.0, 1e-9, 0.0], 10.0, gradient=gradient)
    assert near.run(failing(None, "no way"), 10)[0] is Stop.STATIONARY
    assert near.run(LSODA, 1)[0] is Stop.STATIONARY


@pytest.mark.parametrize("factor", [2.0**-398, 1.0, 2.0**398])
def test_newton_s_method_distinguishes_a_saddle_from_a_minimum_at_any_scale(factor: float) -> None:
    keys = saddle()
    scaled = Problem(keys.keys * factor, keys.scores)
    beside = np.array([1e-6, 1e-6, 0.0]) / factor
    trace = tracer(scaled, beside, 10.0 / factor)
    reach = 1e-3 / factor
    assert trace._stationary_near(beside, reach, saddles=False) is None
    rest = trace._stationary_near(beside, reach, saddles=True)
    assert rest is not None
    assert np.abs(rest * factor).max() <= 1e-12
    bottom = tracer(Problem(valley(factor).keys, valley().scores), beside[:1], 10.0 / factor)
    assert bottom._stationary_near(beside[:1], reach, saddles=False) is not None
    assert bottom._stationary_near(beside[:1] + 0.5 / factor, reach, saddles=False) is None


def test_a_flow_passes_a_saddle_however_often_rest_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step counts as short, and a point of rest is looked for in every tenth step."""
    looks: list[bool] = []
    original = Tracer._stationary_near

    def near(self: Tracer, p: Any, reach: float, *, saddles: bool) -> Any:
        looks.append(original(self, p, reach, saddles=True) is not None)
        return original(self, p, reach, saddles=saddles)

    monkeypatch.setattr(arc_length, "SHORT", 1.0)
    monkeypatch.setattr(arc_length, "CHATTER", 10**9)
    monkeypatch.setattr(Tracer, "_stationary_near", near)
    trace = tracer(saddle(), [0.7, 1e-9, 0.0], 5.0)
    assert trace.run(LSODA, 10_000)[0] is Stop.NORM
    assert any(looks)


def test_a_start_at_rest_is_recorded_once() -> None:
    problem = Problem(np.random.default_rng(0).normal(size=(2, 3, 2)), np.ones((2, 3)))
    flow = gradient_flow(problem, np.ones(2), norm=10.0)
    assert flow.stop is Stop.STATIONARY
    assert (flow.points == 1).all()
    assert flow.norms == pytest.approx([math.sqrt(2)])
    assert flow.log_time.tolist() == [-math.inf]
    assert flow.log_gradient_norm.tolist() == [-math.inf]
    assert flow.arc_length.tolist() == [0]


def test_no_other_method_is_tried_after_one_that_reaches_the_norm() -> None:
    flow = gradient_flow(two_tokens(1.0, 0.5), np.zeros(1), norm=10.0)
    assert flow.method == "LSODA"
    assert flow.reason == ""
    unresolved = gradient_flow(saddle(), np.array([0.7, 1e-3, 1e8]), norm=1.5e8)
    assert unresolved.method == "LSODA"
    assert unresolved.reason.startswith("LSODA: a valley")
    assert "BDF" not in unresolved.reason


def test_walls_are_looked_for_in_the_direction_of_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direction of the flow is that of the step at the end of each step, and −∇L at the start."""
    requests: list[tuple[Any, Any]] = []
    monkeypatch.setattr(WallDistance, "arc", lambda self, p, velocity: requests.append((p, velocity)) or math.inf)
    problem, _ = separable(0)
    trace = tracer(problem, np.full(6, 0.1), 100.0)
    assert trace.run(LSODA, 10_000)[0] is Stop.NORM
    first = -trace._gradient(trace._start)[1]
    assert requests[0][1] == pytest.approx(first, abs=8 * EPS)
    for (before, _), (p, velocity) in pairwise(requests):
        length = np.linalg.norm(velocity)
        assert velocity @ (p - before) == pytest.approx(length * np.linalg.norm(p - before), rel=1e-12)
        assert length == pytest.approx(1.0, rel=0.01)  # an arc is hardly longer than its chord


def test_every_recorded_point_lies_in_its_step() -> None:
    problem, _ = separable(0)
    trace = tracer(problem, np.full(6, 0.1), 1.0, 2.0, 50.0, 100.0)
    assert trace.run(LSODA, 10_000)[0] is Stop.NORM
    for p, s, (number, at) in zip(trace.points[1:], trace.lengths[1:], trace._marks[1:], strict=True):
        dense, (begin, _), (end, _) = trace._steps[number]
        assert at is not None
        assert begin <= at[0] == s <= end
        assert dense(math.log1p(trace._kappa * s)) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 3.0, -1e3])
def test_a_common_offset_of_keys_does_not_hide_a_stationary_point(offset: float) -> None:
    keys = np.concatenate([valley().keys, np.full((2, 3, 1), offset)], axis=2)
    trace = tracer(Problem(keys, valley().scores), [1e-9, 0.5], 10.0)
    rest = trace._stationary_near(np.array([1e-9, 0.5]), 1e-3, saddles=False)
    assert rest is not None
    assert rest == pytest.approx([0.0, 0.5], abs=1e-12)


@pytest.mark.parametrize(("ends", "status"), [(0.5, "running"), (1.0, "finished")])
def test_a_step_shortened_by_a_wall_does_not_end_the_flow(ends: float, status: str) -> None:
    solver = SimpleNamespace(status="running", t=0.0, t_bound=1.0)

    def step() -> None:
        solver.t = solver.t_bound
        solver.status = "finished"

    solver.step = step
    _step(solver, ends)  # type: ignore[arg-type]
    assert (solver.t, solver.t_bound, solver.status) == (ends, 1.0, status)
