"""Flows integrated in a batch end at the points where each ends alone. L is the risk."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.training import batched_flow
from reference_attention.training.batched_flow import gradient_flows
from reference_attention.training.batched_gradient import BatchedGradient
from reference_attention.training.derivatives import gradient_field, newton_field
from reference_attention.training.descent import Stop
from reference_attention.training.flow import RELATIVE, gradient_flow
from tests.reference_attention.training.test_flow import valley

NORM = 1e4
WITHIN = 10 * RELATIVE * NORM
"""Allowed distance of the ends of two flows: because flows contract, the error of each is about the tolerance."""


def problems(b: int, n: int, tokens: int, d: int, loss: str = "logistic") -> tuple[list[Problem], np.ndarray]:
    rng = np.random.default_rng(n * tokens + d)
    batch = [
        Problem(rng.normal(size=(n, tokens, d)), rng.normal(size=(n, tokens)), loss=LOSSES[loss]) for _ in range(b)
    ]
    return batch, 0.3 * rng.normal(size=(b, d))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("tokens", "d"), [(3, 4), (30, 30)])
def test_hessians_of_a_batch_agree_with_those_of_each_problem(loss: str, tokens: int, d: int) -> None:
    batch, starts = problems(4, 3, tokens, d, loss)
    field = BatchedGradient(np.stack([p.keys for p in batch]), np.stack([p.scores for p in batch]), LOSSES[loss])
    for size in (0.0, 1.0, 30.0, 3000.0):
        log_scale, direction, curvature = field.newton(size * starts)
        for k, problem in enumerate(batch):
            log, slope, bent = newton_field(problem.keys, problem.scores, problem.loss)(size * starts[k])
            factor, unit = np.exp(log_scale[k] - log), np.abs(bent).max()
            np.testing.assert_allclose(direction[k] * factor, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())
            np.testing.assert_allclose(curvature[k] * factor, bent, rtol=1e-8, atol=1e-8 * unit)


@pytest.mark.parametrize(("b", "n", "tokens", "d"), [(6, 2, 3, 2), (3, 4, 6, 3), (2, 1, 2, 1)])
def test_flows_in_a_batch_end_where_each_ends_alone(b: int, n: int, tokens: int, d: int) -> None:
    batch, starts = problems(b, n, tokens, d)
    flows = gradient_flows(batch, starts, norms=np.full(b, NORM))
    for k, problem in enumerate(batch):
        flow = gradient_flow(problem, starts[k], norm=NORM)
        assert flows.stops[k] == flow.stop
        assert np.linalg.norm(flows.points[k] - flow.final) <= WITHIN
        assert flows.one_minus_cosine(np.array([flow.final] * b))[k] <= (WITHIN / np.linalg.norm(flow.final)) ** 2
    # The batch follows each flow to its norm or, like some flows of the first problems, until it comes to rest; those
    # are handed over to be followed alone.
    assert (flows.alone == [stop is Stop.STATIONARY for stop in flows.stops]).all()
    assert (Stop.STATIONARY in flows.stops) == (n > 1)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_each_problem_has_its_own_norm_and_units(unit: float) -> None:
    batch, starts = problems(2, 2, 4, 3)
    scaled = [batch[0], Problem(batch[0].keys * unit, batch[0].scores)]
    norms = np.array([1e4, 1e4 / unit])
    flows = gradient_flows(scaled, np.array([starts[0], starts[0] / unit]), norms=norms)
    assert (flows.points[1] * unit == flows.points[0]).all()
    assert np.linalg.norm(flows.points, axis=1) == pytest.approx(norms, rel=1e-12)
    assert not flows.alone.any()


def test_a_flow_that_comes_to_rest_is_handed_over_in_any_units() -> None:
    """The flow is handed over, to be followed alone, long before the batch's steps run out."""
    for unit in (2.0**-20, 1.0, 2.0**20):
        flat = Problem(valley().keys * unit, valley().scores)
        flows = gradient_flows([flat], np.array([[0.7]]) / unit, norms=np.array([1e4 / unit]))
        assert flows.alone.all()
        assert flows.stops == (Stop.STATIONARY,)
        assert flows.steps[0] < batched_flow.MOST / 2


def test_the_final_point_of_a_flow_has_exactly_the_requested_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_flow, "ARRIVED", 1e-2)
    batch, starts = problems(3, 2, 4, 3)
    flows = gradient_flows(batch, starts, norms=np.full(3, 50.0))
    assert np.linalg.norm(flows.points, axis=1) == pytest.approx(50.0, rel=1e-14)


def test_walls_are_looked_for_in_the_direction_of_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direction of the flow is that of the step at the end of each step, and −∇L at the start."""
    requests: list[tuple[np.ndarray, np.ndarray]] = []
    original = BatchedGradient.ahead

    def heard(self: BatchedGradient, p: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        requests.append((p[0], velocity[0]))
        return original(self, p, velocity)

    monkeypatch.setattr(BatchedGradient, "ahead", heard)
    batch, starts = problems(1, 2, 4, 3)
    assert gradient_flows(batch, starts, norms=np.full(1, 100.0)).stops == (Stop.NORM,)
    _, direction = gradient_field(batch[0].keys, batch[0].scores, batch[0].loss)(starts[0])
    due = -direction / np.linalg.norm(direction)
    before = starts[0]
    for p, velocity in requests:
        if (p != before).any():
            due, before = (p - before) / np.linalg.norm(p - before), p
        assert velocity == pytest.approx(due, abs=1e-12)


def test_no_step_is_accepted_whose_error_exceeds_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    original, tried = batched_flow._Run._extrapolate, list[tuple[np.ndarray, np.ndarray, np.ndarray]]()

    def heard(self: batched_flow._Run, *arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        after, error = original(self, *arguments)  # type: ignore[arg-type]
        tried.append((arguments[4][0], after[0], error[0]))
        return after, error

    monkeypatch.setattr(batched_flow._Run, "_extrapolate", heard)
    batch, starts = problems(6, 2, 4, 3)
    taken = []
    for problem, start in zip(batch, starts, strict=True):
        tried.clear()
        run = batched_flow._Run([problem], start[None].copy(), np.array([NORM]), RELATIVE)
        run.follow()
        for (p, after, error), (following, *_) in pairwise(tried):
            off = error / (run._absolute[0] + RELATIVE * np.maximum(np.abs(p), np.abs(after)))
            taken.append(((following != p).any(), np.sqrt(np.mean(off**2))))
    assert max(off for was, off in taken if was) <= 1
    assert 1 < min(off for was, off in taken if not was) < 2


def test_the_arc_length_of_a_straight_flow_is_its_distance() -> None:
    batch, starts = problems(1, 1, 2, 1)
    run = batched_flow._Run(batch, starts.copy(), np.array([100.0]), RELATIVE)
    run.follow()
    arc = np.expm1(run._u) / run._kappa
    assert arc == pytest.approx(np.abs(run.p - starts)[:, 0], rel=1e-6)


def test_the_estimated_error_is_of_order_seven_and_far_above_the_true_error() -> None:
    """Where the flow is smooth, halving a step divides its estimated error by 2⁷."""
    batch, starts = problems(1, 1, 2, 2)
    run = batched_flow._Run(batch, starts, np.array([NORM]), RELATIVE)
    field, on = BatchedGradient(run._keys, run._scores, run._loss), np.arange(1)

    def step(h: float, u: float, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, direction, curvature = field.newton(p)
        length = np.linalg.norm(direction)
        unit, bent = direction[0] / length, curvature[0] / length
        jacobian = -np.exp(u) / run._kappa[0] * (bent - np.outer(unit, unit @ bent))
        return run._extrapolate(field, on, np.array([u]), np.array([h]), p, jacobian[None])

    told = []
    for h in (0.8, 0.4):
        after, error = step(h, 0.0, starts)
        fine = starts
        for k in range(8):
            fine = step(h / 8, k * h / 8, fine)[0]
        told.append(float(np.linalg.norm(error)))
        assert np.linalg.norm(after - fine) < told[-1] / 10
    assert 6.5 < np.log2(told[0] / told[1]) < 7.5


@pytest.mark.parametrize("fault", ["curvature", "weights"])
def test_a_batch_whose_steps_are_faulty_hands_its_flows_over(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Without the curvature a stiff flow makes no progress; with extrapolation weights for other numbers of substeps,
    no step is accurate.
    """
    batch, starts = problems(3, 1, 2, 1) if fault == "weights" else problems(3, 2, 3, 3)
    monkeypatch.setattr(batched_flow, "MOST", 31)
    if fault == "curvature":
        newton = BatchedGradient.newton
        monkeypatch.setattr(BatchedGradient, "newton", lambda self, p: (*newton(self, p)[:2], 0 * newton(self, p)[2]))
    else:
        monkeypatch.setattr(batched_flow, "SUBSTEPS", (1, 1.5, 2))
        monkeypatch.setattr(batched_flow, "range", lambda parts: range(round(parts)), raising=False)
    flows = gradient_flows(batch, starts, norms=np.full(3, NORM))
    assert flows.alone.all()
    assert (flows.steps <= 31).all()
    assert fault == "weights" or (flows.steps == 31).all()


def test_bad_input_of_a_batch_of_flows_is_refused() -> None:
    batch, starts = problems(2, 2, 3, 2)
    other, _ = problems(1, 2, 3, 4)
    with pytest.raises(InvalidInput, match="problems: all must have the same shape"):
        gradient_flows([batch[0], *other], starts, norms=np.full(2, 10.0))
    with pytest.raises(InvalidInput, match="starts: give"):
        gradient_flows(batch, starts[:1], norms=np.full(2, 10.0))
    with pytest.raises(InvalidInput, match="norms: each must be finite"):
        gradient_flows(batch, starts, norms=np.full(2, 1e-9))
    with pytest.raises(InvalidInput, match="norms: each must be finite"):
        gradient_flows(batch, starts, norms=np.linalg.norm(starts, axis=1))
