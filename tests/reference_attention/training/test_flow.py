"""Gradient flow: closed forms, agreement with descent, the rate of its direction, points of rest, and failure.

Notation: p is the prompt, R its norm, t the time, and the offset the part of p across p_mm, the solution of ATT-SVM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.loss import Loss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training import flow as flow_module
from reference_attention.training.derivatives import newton_field
from reference_attention.training.descent import Stop, gradient_descent
from reference_attention.training.flow import Flow, gradient_flow
from tests.reference_attention.test_risk import negated, without_cross_term
from tests.reference_attention.training.test_descent import other_gradient

EPS = float(np.finfo(float).eps)


pytestmark = pytest.mark.filterwarnings("error")


def cooler(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    """Return the gradient of a softmax of temperature 1.01."""
    return risk.scaled_gradient(keys, scores, loss, p / 1.01)


def separable(seed: int, n: int = 2, T: int = 4, d: int = 6) -> tuple[Problem, MaxMargin]:
    """Return a problem with one score gap per input (Assumption B) whose optimal tokens are separable."""
    rng = np.random.default_rng(seed)
    scores = np.zeros((n, T))
    scores[:, 0] = rng.uniform(0.5, 2, size=n)
    problem = Problem(rng.normal(size=(n, T, d)), scores)
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    return problem, svm


def two_tokens(k: float, gap: float) -> Problem:
    return Problem(np.array([[[k], [0.0]]]), np.array([[gap, 0.0]]), LOSSES["correlation"])


@pytest.mark.parametrize("gradient", [risk.scaled_gradient, other_gradient])
def test_the_time_of_a_flow_in_one_dimension_agrees_with_the_closed_form(gradient: Any) -> None:
    # For x = k p and a = gap k², dx/dt = a σ(x)σ(−x), so that t = (2 sinh x + 2 x)/a from x = 0.
    k, gap = 1.25, 0.5
    flow = gradient_flow(two_tokens(k, gap), np.zeros(1), norm=1e6, gradient=gradient)
    assert flow.stop is Stop.NORM
    x = k * flow.norms[1:]
    small = np.minimum(x, 300.0)
    expected = np.where(x < 300, np.log(2 * np.sinh(small) + 2 * small), x) - np.log(gap * k * k)
    # Allowed errors: h⁴ for steps of h = 0.1 in the logarithm of the arc length, though Richardson's rule errs by far
    # less, and ten times the solver's absolute error of p, as a share of ‖p‖.
    allowed = 0.1**4 + 10 * flow.absolute / flow.norms[1:]
    assert (np.abs(flow.log_time[1:] - expected) <= allowed).all()
    wrong = gradient_flow(two_tokens(k, gap), np.zeros(1), norm=1e6, gradient=cooler)
    assert (np.abs(wrong.log_time[1:] - expected) > allowed).any()
    assert flow.arc_length == pytest.approx(flow.norms, rel=1e3 * flow.relative, abs=1e3 * flow.absolute)


@pytest.mark.parametrize("relative", [1e-9, 1e-3])
def test_the_time_of_a_flow_is_right_where_long_steps_could_miss_the_peak_of_the_gradient(
    relative: float,
) -> None:
    # From x0 = −375 the gradient rises by e^375 and falls again: t = (2 sinh x + 2 x − 2 sinh x0 − 2 x0)/a, and
    # log(2 sinh x − 2 sinh x0) = log(e^x + e^−x0) up to e^−375.
    k, gap = 1.25, 0.5
    flow = gradient_flow(two_tokens(k, gap), np.array([-300.0]), norm=1e3, relative=relative)
    assert flow.stop is Stop.NORM
    x = k * flow.points[1:, 0]
    expected = np.logaddexp(x, 375.0) - np.log(gap * k * k)
    assert flow.log_time[1:] == pytest.approx(expected, abs=0.1**4 + 10 * relative)


def test_the_evaluations_of_a_flow_are_the_number_of_gradients_computed() -> None:
    calls = []

    def counted(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
        calls.append(p)
        return risk.scaled_gradient(keys, scores, loss, p)

    flow = gradient_flow(two_tokens(1.25, 0.5), np.zeros(1), norm=10.0, gradient=counted)
    assert flow.stop is Stop.NORM
    assert flow.evaluations == len(calls)


def distance_to_descent(problem: Problem, start: np.ndarray, path: Flow, steps: int) -> float:
    """Return the distance of the flow's last point from that many steps of gradient descent over the same time."""
    log_step = float(path.log_time[-1]) - np.log(steps)
    run = gradient_descent(problem, start, steps=steps, log_step=log_step, record_every=steps)
    return float(np.linalg.norm(run.final - path.final))


def test_small_steps_of_descent_converge_to_the_flow_at_first_order() -> None:
    problem, _ = separable(0)
    start = np.full(6, 0.1)
    path = gradient_flow(problem, start, norm=3.0)
    steps = np.array([200, 400, 800, 1600, 3200])
    apart = [distance_to_descent(problem, start, path, int(s)) for s in steps]
    # The error of N Euler steps is C/N (1 + c/N + …): the slope between N and 2N differs from −1 by about c/N, which
    # halves each time.
    missed = np.abs(np.diff(np.log2(apart)) + 1)
    assert (missed[1:] <= 0.75 * missed[:-1]).all()
    assert missed[-1] <= 0.1
    for fault in (cooler, without_cross_term):
        wrong = gradient_flow(problem, start, norm=3.0, gradient=fault)
        assert distance_to_descent(problem, start, wrong, 3200) > 2 * apart[-1]


@pytest.mark.parametrize("seed", range(3))
def test_one_input_converges_to_p_mm_at_the_rate_of_a_bounded_offset(seed: int) -> None:
    problem, svm = separable(seed, n=1)
    flow = gradient_flow(problem, np.zeros(6), norm=1e6)
    apart = flow.one_minus_cosine(svm.direction)
    far = flow.norms >= 1e4
    slope = np.polyfit(np.log(flow.norms[far]), np.log(apart[far]), 1)[0]
    # With a bounded offset o, in units of ‖p_mm‖, 1 − cos = |o|²/(2 R²) (1 + O(1/R)): from R = 1e4 on the slope is −2.
    assert abs(slope + 2) <= 10 * svm.norm / 1e4
    assert apart[-1] <= (10 * svm.norm) ** 2 / 1e12
    assert flow.evaluations < 10_000
    backwards = gradient_flow(problem, np.zeros(6), norm=1e6, gradient=negated)
    assert not (backwards.reached_norm and backwards.one_minus_cosine(svm.direction)[-1] <= (10 * svm.norm) ** 2 / 1e12)


@pytest.mark.parametrize("factor", [-100.0, -1.0, 100.0])
def test_the_flow_converges_to_p_mm_from_far_and_opposite_starts(factor: float) -> None:
    problem, svm = separable(1, n=1)
    sideways = np.random.default_rng(0).normal(size=6)
    flow = gradient_flow(problem, factor * svm.direction + sideways, norm=1e6)
    assert flow.stop is Stop.NORM, flow.reason
    # The offset is at most of the size 100 of the start: 1 − cos ≤ (‖start‖ + O(log R))²/R².
    assert flow.one_minus_cosine(svm.direction)[-1] <= (2 * abs(factor) + 100) ** 2 / 1e12


@pytest.mark.parametrize("c", [1.0, 0.5, 0.0, -0.5, -1.0, -1.5])
def test_the_flow_converges_to_p_mm_from_the_six_starts_of_figure_1a(c: float) -> None:
    keys = np.array([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    problem = Problem(keys, np.array([[1.0, 0.9, 0.9]]))
    svm = max_margin(keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    flow = gradient_flow(problem, np.array([0.0, c]), norm=1e6)
    assert flow.stop is Stop.NORM, flow.reason
    assert flow.one_minus_cosine(svm.direction)[-1] <= 100 / 1e12


def test_the_flow_converges_to_p_mm_for_ill_conditioned_keys_and_duplicates() -> None:
    # Token 1 is nearly the optimal token (Θ = 5e-4), and token 3 equals token 2.
    keys = np.array([[[1.0, 0.0, 0.0], [0.999, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]])
    problem = Problem(keys, np.array([[1.0, 0.0, 0.0, 0.0]]))
    svm = max_margin(keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    flow = gradient_flow(problem, np.array([0.0, 1.0, 0.5]), norm=1e6 / svm.margin)
    assert flow.stop is Stop.NORM, flow.reason
    # Offsets are measured in units of ‖p_mm‖ here.
    assert flow.one_minus_cosine(svm.direction)[-1] <= 1e4 / 1e12


def test_equal_scores_of_the_selected_token_do_not_stop_the_flow() -> None:
    # Two tokens of equal, low score are selected in turn; only −E[δγ], the mean gap, moves p along their boundary, and
    # it is e^{−300} and less: computed as a difference it is zero and the flow chatters.
    keys = np.array([[[1.0, 0.2], [-1.0, 0.2], [0.1, 1.0]]])
    problem = Problem(keys, np.array([[0.0, 0.0, 1.0]]))
    flow = gradient_flow(problem, np.array([30.0, -1000.0]), norm=1e5)
    assert flow.stop is Stop.NORM, flow.reason
    svm = max_margin(keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    assert flow.one_minus_cosine(svm.direction)[-1] <= 1e4**2 / 1e10


def valley(factor: float = 1.0) -> Problem:
    """Return a problem whose inputs prefer opposite ends, but the middle to the other's end: the risk is least at p =
    0.
    """
    keys = factor * np.array([[[1.0], [0.0], [-1.0]], [[-1.0], [0.0], [1.0]]])
    return Problem(keys, np.array([[1.0, 0.8, 0.0], [1.0, 0.8, 0.0]]))


def test_a_finite_stationary_point_is_never_convergence() -> None:
    rest = gradient_flow(valley(), np.array([0.7]), norm=1e6)
    assert rest.stop is Stop.STATIONARY
    assert not rest.reached_norm
    assert abs(rest.final[0]) <= 1e-12
    assert rest.log_time[-1] == np.inf
    assert rest.log_gradient_norm[-1] == -np.inf


@pytest.mark.parametrize("factor", [2.0**-398, 1.0, 2.0**398])
def test_terms_that_cancel_in_rounding_are_not_a_stationary_point(factor: float) -> None:
    """The risk log(1 + e^{−s}) + log(1 + e^s) decreases for ever as s → 0; from s ≈ 1e-16 on its slope rounds to 0."""
    keys = factor * np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]] * 2)
    path = gradient_flow(Problem(keys, [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.ones(2) / factor, norm=1e6 / factor)
    assert path.stop is Stop.FAILED
    assert "below the rounding" in path.reason
    assert path.norms[-1] * factor > 10
    begun_there = gradient_flow(Problem(keys, [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), path.final, norm=1e6 / factor)
    assert begun_there.stop is Stop.FAILED


@pytest.mark.parametrize("factor", [2.0**-398, 1.0, 2.0**398])
def test_where_the_steps_run_out_only_a_nearby_stationary_point_is_accepted(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_module, "METHODS", {"LSODA": (flow_module.METHODS["LSODA"][0], 3)})
    far = gradient_flow(valley(factor), np.array([0.5]) / factor, norm=1e3 / factor)
    assert far.stop is Stop.FAILED
    assert far.reason.startswith("LSODA: 3 steps without reaching the norm")
    near = gradient_flow(valley(factor), np.array([1e-4]) / factor, norm=1e3 / factor)
    assert near.stop is Stop.STATIONARY
    assert abs(near.final[0]) * factor <= 1e-12


def saddle() -> Problem:
    """Return a problem with the valley along the first coordinate, both ends ahead of the middle along the second, and
    a third coordinate that is idle.
    """
    keys = np.zeros((3, 3, 3))
    keys[:2, :, 0], keys[2, :, 1] = valley().keys[:, :, 0], [3.0, 0.0, -3.0]
    return Problem(keys, np.array([[1.0, 0.8, 0.0], [1.0, 0.8, 0.0], [2.0, 0.0, 2.0]]))


def test_a_flow_that_passes_a_saddle_reaches_its_norm() -> None:
    flow = gradient_flow(saddle(), np.array([0.7, 1e-9, 0.0]), norm=5.0)
    assert flow.stop is Stop.NORM, flow.reason
    assert abs(flow.final[0]) <= 1e-9


def test_a_flow_passes_a_saddle_even_where_every_step_is_short_relative_to_the_norm() -> None:
    flow = gradient_flow(saddle(), np.array([0.7, 1e-3, 1e6]), norm=float(np.hypot(1e6, 5.0)))
    assert flow.stop is Stop.NORM, flow.reason
    assert abs(flow.final[0]) <= 1e-6


@pytest.mark.parametrize("norm", [1e8, 1e10])
def test_a_flow_whose_slope_is_hidden_by_rounding_is_not_taken_to_rest(norm: float) -> None:
    """Across the valley the slope is zero; along the valley it is e^{−37}, less than the rounding of the slope
    across.
    """
    flow = gradient_flow(saddle(), np.array([0.7, 1e-3, norm]), norm=1.5 * norm)
    assert flow.stop is Stop.FAILED
    assert "rounding" in flow.reason


def test_a_point_of_rest_is_found_where_the_flow_approaches_on_a_curve() -> None:
    # Three valleys in the plane, slightly bent: steps shorten towards the point of rest before any direction flips.
    rng = np.random.default_rng(0)
    pulls = np.repeat(rng.normal(size=(3, 2)), 2, axis=0) * np.tile([[1.0], [-1.0]], (3, 1))
    keys = np.stack([pulls, np.zeros((6, 2)), -pulls], axis=1) + 0.05 * rng.normal(size=(6, 3, 2))
    problem = Problem(keys, np.tile([1.0, 0.8, 0.0], (6, 1)))
    flow = gradient_flow(problem, 0.5 * rng.normal(size=2), norm=1e4)
    assert flow.stop is Stop.STATIONARY, flow.reason
    _, direction, curvature = newton_field(problem.keys, problem.scores, problem.loss)(flow.final)
    assert np.linalg.norm(direction) <= 1e3 * EPS
    assert np.linalg.eigvalsh(curvature)[0] > 0


def vanishing(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    """Return a gradient that is zero from the norm 3 on."""
    gradient = risk.scaled_gradient(keys, scores, loss, p)
    return ScaledGradient(np.where(np.linalg.norm(p, axis=-1) < 3, gradient.log_scale, -np.inf), gradient.direction)


def test_where_the_gradient_is_zero_the_flow_rests() -> None:
    flow = gradient_flow(two_tokens(1.25, 0.5), np.zeros(1), norm=1e3, gradient=vanishing)
    assert flow.stop is Stop.STATIONARY, flow.reason
    assert flow.final[0] == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("factor", [2.0**-398, 1.0, 2.0**398])
@pytest.mark.parametrize("gradient", [risk.scaled_gradient, other_gradient])
def test_a_point_of_rest_is_found_where_the_softmax_is_saturated(gradient: Any, factor: float) -> None:
    # At x = p·e1 the inputs pull about as e^{−x} 2^{10} and −e^{−(40 − x)}, which balance near x = 20 + 3.5.
    keys = np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0], [-39.0, 0.0]]])
    problem = Problem(keys, np.array([[1.0, 0.0, 0.0], [0.0, -1.0, -1.0]]), LOSSES["exponential"])
    scaled = Problem(keys * factor, problem.scores, problem.loss)
    flow = gradient_flow(scaled, np.array([0.5, 0.1]) / factor, norm=1e6 / factor, gradient=gradient)
    assert flow.stop is Stop.STATIONARY, (flow.stop, flow.reason)
    rest = flow.final * factor
    _, direction, curvature = newton_field(problem.keys, problem.scores, problem.loss)(rest)
    assert np.linalg.norm(direction) <= 1e3 * EPS * (1 + 39 * np.linalg.norm(rest))
    assert np.linalg.eigvalsh(curvature)[-1] > 0


@pytest.mark.parametrize("given", [risk.scaled_gradient, other_gradient])
def test_records_lie_at_the_requested_norms(given: Any) -> None:
    problem, _ = separable(2)
    expected = np.array([1.0, 10.0, 1e3])
    flow = gradient_flow(problem, np.full(6, 0.01), norm=1e4, record=expected, gradient=given)
    assert flow.norms[1:] == pytest.approx([1.0, 10.0, 1e3, 1e4], rel=8 * EPS)
    assert (np.diff(flow.log_time) > 0).all()
    assert (np.diff(flow.log_risk) < 0).all()
    assert (flow.sign == 1).all()


@pytest.mark.parametrize("factor", [2.0**-398, 1.0, 2.0**398])
def test_by_default_eight_points_per_decade_are_recorded_from_a_thousandth_of_a_logit_on(
    factor: float,
) -> None:
    problem = two_tokens(factor, 0.5)
    decade = 10 ** (np.arange(1, 9) / 8)
    far = gradient_flow(problem, np.array([1.0]) / factor, norm=100.0 / factor)
    assert far.norms[1:] * factor == pytest.approx(np.concatenate([decade, 10 * decade]), rel=64 * EPS)
    for norm, first in ((1e-1, 1e-3), (1e-5, 1e-6)):  # records begin at a tenth of the norm, if that is less
        near = gradient_flow(problem, np.zeros(1), norm=norm / factor)
        assert near.norms[1:] * factor == pytest.approx(first * 10 ** (np.arange(1, len(near.norms)) / 8), rel=64 * EPS)
        assert near.norms[-1] * factor == pytest.approx(norm, rel=64 * EPS)


def test_points_are_not_recorded_at_norms_that_are_not_between_those_of_start_and_end() -> None:
    flow = gradient_flow(two_tokens(1.0, 0.5), np.array([1.0]), norm=10.0, record=np.array([0.5, 1.0, 3.0, 10.0, 30.0]))
    assert flow.norms == pytest.approx([1.0, 3.0, 10.0], rel=8 * EPS)


def test_one_minus_cosine_does_not_depend_on_the_length_of_the_direction() -> None:
    problem, _ = separable(1, n=1)
    flow = gradient_flow(problem, np.ones(6), norm=10.0)
    direction = np.array([3.0, -1.0, 0.0, 2.0, 0.5, 1.0])
    expected = 1 - flow.points @ direction / (flow.norms * np.linalg.norm(direction))
    assert flow.one_minus_cosine(direction) == pytest.approx(expected, abs=16 * EPS)


def test_another_method_is_tried_after_one_that_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, svm = separable(1, n=1)
    methods = dict(flow_module.METHODS)
    monkeypatch.setattr(flow_module, "METHODS", methods | {"LSODA": (methods["LSODA"][0], 3)})
    flow = gradient_flow(problem, np.zeros(6), norm=1e3)
    assert flow.stop is Stop.NORM
    assert flow.method == "BDF"
    assert flow.one_minus_cosine(svm.direction)[-1] <= 1e2**2 / 1e6
    monkeypatch.setattr(flow_module, "METHODS", {name: (m, 3) for name, (m, _) in methods.items()})
    failed = gradient_flow(problem, np.zeros(6), norm=1e3)
    assert failed.stop is Stop.FAILED
    assert not failed.reached_norm
    assert "LSODA: 3 steps without reaching the norm" in failed.reason
    assert "Radau: 3 steps" in failed.reason


@pytest.mark.parametrize("factor", [2.0**-398, 2.0**398])
def test_the_flow_for_keys_in_another_unit_is_the_same_flow_in_that_unit(factor: float) -> None:
    problem, _ = separable(0, n=1)
    scaled = Problem(problem.keys * factor, problem.scores, problem.loss)
    flow = gradient_flow(scaled, np.full(6, 0.1) / factor, norm=1e4 / factor)
    here = gradient_flow(problem, np.full(6, 0.1), norm=1e4)
    assert flow.stop is Stop.NORM, flow.reason
    # Over hundreds of steps two runs of a solver with tolerance `relative` differ by this much.
    apart = np.abs(flow.final * factor - here.final).max()
    assert apart <= here.evaluations * (here.relative * 1e4 + here.absolute)


def test_bad_input_is_refused() -> None:
    problem, _ = separable(0)
    with pytest.raises(InvalidInput, match=r"norm: 1 must be finite and larger than the norm 2\.44949 of start"):
        gradient_flow(problem, np.ones(6), norm=1.0)
    with pytest.raises(InvalidInput, match="norm: 2 must be finite and larger than the norm 2 of start"):
        gradient_flow(problem, 2 * np.eye(6)[0], norm=2.0)
    with pytest.raises(InvalidInput, match=r"start: give one finite point of shape \(6,\)"):
        gradient_flow(problem, np.ones(5), norm=10.0)


def test_in_a_frame_along_p_mm_the_flow_follows_a_valley_of_width_one_to_norm_1e10() -> None:
    # Token 1 has a higher score and leads away from p_mm: without the frame the solver's error would be enough to reach
    # it.
    keys = np.array([[[1.0, -2.0], [-3.0, 2.0 - 2.0**-28], [0.0, 0.0], [-1.0, 0.0]]])
    problem = Problem(keys, np.array([[-1.0, 1.0, 0.0, -1.0]]), LOSSES["logistic"])
    svm = max_margin(keys, np.array([2]))
    assert isinstance(svm, MaxMargin)
    start = 1e10 * svm.direction
    across = np.array([1.0, -1.0]) / np.sqrt(2)
    framed = gradient_flow(problem, start, norm=1e11, axis=svm.p)
    assert framed.reached_norm
    # The offset is the one that the duals (0.5, 1.5) give, up to the rounding of p at that norm.
    offsets = framed.points[1:] @ across
    assert np.ptp(offsets) < 64 * EPS * 1e11
    plain = gradient_flow(problem, start, norm=1e11, relative=1e-8)
    assert not plain.reached_norm or np.abs(plain.points @ across).max() > 1e9


@pytest.mark.parametrize("scale", [1.0, 16.0])
def test_the_gradient_norms_of_a_flow_belong_to_its_points(scale: float) -> None:
    problem = Problem(scale * np.random.default_rng(5).standard_normal((3, 4, 2)), np.eye(3, 4))
    run = gradient_flow(problem, np.array([0.1, 0.2]) / scale, norm=5.0 / scale)
    gradient = risk.scaled_gradient(problem.keys, problem.scores, problem.loss, run.points)
    moving = np.isfinite(run.log_gradient_norm)
    assert moving.sum() >= 3
    assert run.log_gradient_norm[moving] == pytest.approx(gradient.log_norm[moving], abs=1e-12)
