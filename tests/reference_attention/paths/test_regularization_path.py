"""The regularization path: its offset in closed form, its rates, its minimality, and when it does not converge.

Notation: p̄(R) is the path's point of norm R, and its offset o its part across p_mm, the solution of ATT-SVM; Θ =
1/‖p_mm‖ is the largest margin; λ_j are the positive duals, S their set, G_S the Gram matrix of their rows, and c_j the
coefficient of e^{−margin} in the excess risk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.paths.excess_risk import Excess
from reference_attention.paths.regularization_path import Path, regularization_path
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

EPS = float(np.finfo(float).eps)


pytestmark = pytest.mark.filterwarnings("error")


def separable(seed: int, loss: str = "logistic", n: int = 2, T: int = 4, d: int = 6) -> tuple[Problem, MaxMargin]:
    rng = np.random.default_rng(seed)
    problem = Problem(rng.normal(size=(n, T, d)), rng.normal(size=(n, T)), LOSSES[loss])
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    return problem, svm


def predicted_offset(problem: Problem, svm: MaxMargin) -> np.ndarray:
    """Return o = G_S⁺ b without its part along p_mm, where b_j = log(c_j/λ_j), independently of the tested module."""
    i, t = np.nonzero(svm.duals > 0)
    best = problem.optimal[i]
    rows = problem.keys[i, best] - problem.keys[i, t]
    gaps = problem.scores[i, best] - problem.scores[i, t]
    b = problem.loss.log_slope(problem.scores[i, best]) + np.log(gaps / svm.duals[i, t])
    offset = np.linalg.pinv(rows) @ b
    return np.asarray(offset - (offset @ svm.direction) * svm.direction)


def offset_errors(path: Path, predicted: np.ndarray) -> np.ndarray:
    return np.linalg.norm(path.offsets - predicted, axis=1) / np.linalg.norm(predicted)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", [0, 1])
def test_offset_converges_to_the_prediction_at_rate_one_over_R(loss: str, seed: int) -> None:
    problem, svm = separable(seed, loss)
    assert svm.independent
    radii = np.array([1e3, 1e4, 1e5, 1e6]) / svm.margin
    path = regularization_path(problem, radii, max_margin=svm)
    assert path.converged.all(), path.reasons
    assert not path.interior.any()
    errors = offset_errors(path, predicted_offset(problem, svm))
    slope = np.polyfit(np.log(radii), np.log(errors), 1)[0]
    # For constants C, C' the error is C/R (1 + C'/R): from RΘ = 1e3 on, its logarithm has the slope −1 over log R, up
    # to C'·1e-3.
    assert abs(slope + 1) <= 0.05
    assert errors[-1] <= 1.1 * errors[0] / 1e3
    # The angle to p_mm has 1 − cos = |o|²/(2R²) (1 + O(1/R)).
    across = np.linalg.norm(predicted_offset(problem, svm))
    assert path.one_minus_cosine[-1] == pytest.approx(
        across**2 / (2 * radii[-1] ** 2), rel=4 * errors[-1] + 1e-9, abs=0
    )
    # The rounded points still carry the offset, up to the rounding of R.
    rounded = path.points - (path.points @ svm.direction)[:, None] * svm.direction
    assert (np.linalg.norm(rounded - path.offsets, axis=1) <= 16 * EPS * radii).all()


def test_the_predicted_offset_depends_on_loss_temperature_and_scores() -> None:
    problem, svm = separable(0)
    radii = np.array([1e4, 1e5]) / svm.margin
    predicted = predicted_offset(problem, svm)
    right = offset_errors(regularization_path(problem, radii, max_margin=svm), predicted)
    louder = problem.scores.copy()
    louder[0, problem.optimal[0]] += 0.1
    faulty = [replace(problem, loss=LOSSES["exponential"]), replace(problem, scores=louder)]
    for wrong in faulty:
        errors = offset_errors(regularization_path(wrong, radii, max_margin=svm), predicted)
        assert errors[1] > 10 * right[1]
        assert errors[1] > 0.5 * errors[0]  # and the error does not vanish as R grows


def exact_stationary_offset(problem: Problem, svm: MaxMargin, R: float, guess: np.ndarray) -> np.ndarray:
    """Return the zero of the tangential gradient of log(L − L_opt) in 60 digits, from the exact p_mm; d = 3."""
    with mpmath.workdps(60):
        exact = [mpmath.mpf(int(x.p)) / mpmath.mpf(int(x.q)) for x in svm.exact.p]
        norm = mpmath.sqrt(mpmath.fsum(x * x for x in exact))
        unit = [x / norm for x in exact]
        seed_axis = min(range(3), key=lambda j: abs(unit[j]))
        first = [(1 if j == seed_axis else 0) - unit[seed_axis] * unit[j] for j in range(3)]
        size = mpmath.sqrt(mpmath.fsum(x * x for x in first))
        first = [x / size for x in first]
        second = [
            unit[1] * first[2] - unit[2] * first[1],
            unit[2] * first[0] - unit[0] * first[2],
            unit[0] * first[1] - unit[1] * first[0],
        ]

        def tangential(a: Any, b: Any) -> list[Any]:
            z = [a * x + b * y for x, y in zip(first, second, strict=True)]
            along = mpmath.sqrt(mpmath.mpf(R) ** 2 - a * a - b * b)
            p = [along * u + x for u, x in zip(unit, z, strict=True)]
            gradient = [mpmath.mpf(0)] * 3
            for keys, scores, best in zip(problem.keys, problem.scores, problem.optimal, strict=True):
                rows = [[mpmath.mpf(x) - mpmath.mpf(y) for x, y in zip(k, keys[best], strict=True)] for k in keys]
                # The exponentials are divided by e^{−RΘ}, so that the equations are of order one.
                raised = [mpmath.exp(mpmath.fdot(row, p) + R / norm) for row in rows]
                total = 1 + mpmath.fsum(w for t, w in enumerate(raised) if t != best) * mpmath.exp(-R / norm)
                mean = mpmath.fsum(
                    w / total * (mpmath.mpf(g) - mpmath.mpf(scores[best]))
                    for t, (w, g) in enumerate(zip(raised, scores, strict=True))
                    if t != best
                ) * mpmath.exp(-R / norm)
                slope = 1 / (1 + mpmath.exp(mpmath.mpf(scores[best]) + mean))
                for t, row in enumerate(rows):
                    if t != best:
                        c = -slope * raised[t] / total * (mpmath.mpf(scores[t]) - mpmath.mpf(scores[best]) - mean)
                        gradient = [g + c * x for g, x in zip(gradient, row, strict=True)]
            radial = mpmath.fdot(gradient, p) / mpmath.mpf(R) ** 2
            rest = [g - radial * x for g, x in zip(gradient, p, strict=True)]
            return [mpmath.fdot(rest, first), mpmath.fdot(rest, second)]

        start = [mpmath.fdot(map(mpmath.mpf, guess), axis) for axis in (first, second)]
        a, b = mpmath.findroot(tangential, start, tol=1e-80)
        return np.array([float(a * x + b * y) for x, y in zip(first, second, strict=True)])


@pytest.mark.parametrize("R", [50.0, 1e5])
def test_offset_agrees_with_that_of_60_digit_arithmetic(R: float) -> None:
    problem, svm = separable(3, n=1, T=4, d=3)
    path = regularization_path(problem, [R], max_margin=svm)
    exact = exact_stationary_offset(problem, svm, R, path.offsets[0])
    error = np.linalg.norm(path.offsets[0] - exact) / np.linalg.norm(exact)
    # Along weak directions the curvature is Θ/R: the rounding of the slope is amplified by R ‖p_mm‖.
    assert error <= min(64 * EPS * (1 + R * svm.norm), 1e-6)


def test_no_point_of_the_ball_has_lower_risk_than_the_path_s() -> None:
    problem, svm = separable(4, n=3, T=3, d=3)
    radii = [0.5, 3.0, 20.0]
    path = regularization_path(problem, radii, max_margin=svm)
    rng = np.random.default_rng(1)
    for R, best in zip(path.norms, path.log_excess, strict=True):
        points = rng.normal(size=(20_000, 3))
        points *= R * rng.uniform(size=(20_000, 1)) ** (1 / 3) / np.linalg.norm(points, axis=1, keepdims=True)
        _, result = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, points, problem.optimal)
        assert result.min() >= best - 64 * EPS * (1 + abs(best) + R)
        # As a second opinion, SLSQP starts from the best of the sampled points.
        second = minimize(
            lambda p: float(risk.log_excess_risk(problem.keys, problem.scores, problem.loss, p, problem.optimal)[1]),
            points[result.argmin()],
            constraints={"type": "ineq", "fun": lambda p, R=R: R * R - p @ p},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        # SLSQP violates its constraint by its tolerance; log excess changes by at most max‖k − k'‖ per unit of p.
        violation = max(0.0, float(np.linalg.norm(second.x)) - R)
        assert second.fun >= best - 1e-9 * (1 + abs(best)) - 10 * violation
        assert second.fun <= best + 1e-4 * (1 + abs(best))


def test_points_are_sorted_by_norm_and_lie_on_their_spheres() -> None:
    problem, svm = separable(0)
    path = regularization_path(problem, [100.0, 1.0, 10.0], max_margin=svm)
    assert path.norms.tolist() == [1.0, 10.0, 100.0]
    assert np.linalg.norm(path.points, axis=1) == pytest.approx(path.norms, rel=8 * EPS)
    assert (np.diff(path.log_excess) < 0).all()
    _, again = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, path.points, problem.optimal)
    assert path.log_excess == pytest.approx(again, rel=64 * EPS, abs=64 * EPS * 100)


def test_the_same_seed_gives_the_same_path() -> None:
    problem, svm = separable(1)
    first, second = (regularization_path(problem, [1.0, 30.0], max_margin=svm, seed=7) for _ in range(2))
    assert (first.points == second.points).all()


@pytest.mark.parametrize("factor", [2.0**-398, 2.0**398])
def test_a_path_for_keys_in_another_unit_is_the_same_path_in_that_unit(factor: float) -> None:
    problem, svm = separable(2)
    scaled = Problem(problem.keys * factor, problem.scores, problem.loss)
    other = max_margin(scaled.keys, scaled.optimal)
    assert isinstance(other, MaxMargin)
    here = regularization_path(problem, [10.0, 1e5], max_margin=svm)
    there = regularization_path(scaled, np.array([10.0, 1e5]) / factor, max_margin=other)
    assert there.converged.all(), there.reasons
    for k, R in enumerate(here.norms):
        assert np.abs(there.offsets[k] * factor - here.offsets[k]).max() <= 64 * EPS * (1 + R * svm.norm) * (
            1 + np.linalg.norm(here.offsets[k])
        )
    # The cosine belongs to the same point of the path, and does not depend on units.
    assert there.one_minus_cosine == pytest.approx(here.one_minus_cosine, rel=1e-9, abs=0)


def test_where_p_mm_does_not_exist_the_path_may_end_inside_the_ball() -> None:
    # The inputs prefer opposite ends, and each prefers the middle to the other's end: p = 0 is the global minimiser.
    keys = np.array([[[1.0], [0.0], [-1.0]], [[-1.0], [0.0], [1.0]]])
    problem = Problem(keys, np.array([[1.0, 0.8, 0.0], [1.0, 0.8, 0.0]]))
    assert isinstance(max_margin(keys, problem.optimal), Infeasible)
    path = regularization_path(problem, [0.5, 5.0, 50.0])
    assert path.interior.all()
    assert path.converged.all(), path.reasons
    # Newton's method stops at steps below 1e-11 and converges quadratically.
    assert np.abs(path.points).max() <= 1e-11
    assert np.isnan(path.offsets).all()


VALLEY = np.array([[[1.0], [0.0], [-1.0]], [[-1.0], [0.0], [1.0]]])


@pytest.mark.parametrize("factor", [2.0**-398, 1.0, 2.0**398])
@pytest.mark.parametrize("away", [0.0, 40.0])
def test_an_interior_minimum_is_found_in_any_units_and_at_any_place(away: float, factor: float) -> None:
    # The risk has a valley in one coordinate and a steeper one in the other; a fifth input pulls the minimum along the
    # first.
    keys = np.zeros((5, 3, 2))
    keys[:2, :, :1], keys[2:4, :, 1:], keys[4, 0, 0] = VALLEY, 3 * VALLEY, 1.0
    keys[0, 0, 0] *= 1 + away
    scores = np.array([[1.0, 0.8, 0.0]] * 4 + [[0.1, 0.0, 0.0]])
    problem, scaled = Problem(keys, scores), Problem(keys * factor, scores)
    path = regularization_path(scaled, np.array([8.0, 50.0]) / factor)
    assert path.interior.all()
    assert path.converged.all(), path.reasons
    points = path.points * factor
    assert np.abs(points[1] - points[0]).max() <= 1e-10 * (1 + np.abs(points[0]).max())
    gradient = risk.scaled_gradient(problem.keys, problem.scores, problem.loss, points)
    # Newton's method stops at steps below 1e-11 and converges quadratically.
    assert (np.exp(gradient.log_norm) <= 1e-11).all()


def test_an_interior_minimum_need_not_be_unique() -> None:
    # The keys lie on a line that is no axis: the risk is constant across the line.
    problem = Problem(VALLEY * np.array([0.3, 0.5, -0.7]), np.array([[1.0, 0.8, 0.0], [1.0, 0.7, 0.0]]))
    path = regularization_path(problem, [5.0, 50.0])
    assert path.interior.all()
    assert path.converged.all(), path.reasons


@pytest.mark.parametrize("factor", [2.0**-398, 2.0**398])
def test_without_p_mm_the_lowest_of_many_minima_is_the_same_in_any_units(factor: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(4):
        keys, scores = rng.normal(size=(6, 3, 2)), rng.normal(size=(6, 3))
        here = regularization_path(Problem(keys, scores), [1.0, 10.0, 100.0])
        there = regularization_path(Problem(keys * factor, scores), np.array([1.0, 10.0, 100.0]) / factor)
        assert there.log_excess == pytest.approx(here.log_excess, abs=1e-9)
        assert (there.converged == here.converged).all()
        assert (there.interior == here.interior).all()


def test_the_path_selects_the_widest_margin_among_tokens_of_highest_score() -> None:
    keys = np.array([[[2.0, 4.0], [-6.0, 4.0], [0.0, 0.0]], [[2.0, -3.0], [6.0, -6.0], [-3.0, -2.0]]])
    problem = Problem(keys, np.array([[1.0, 1.0, 0.0]] * 2))
    narrow = max_margin(keys, problem.optimal)
    assert isinstance(narrow, MaxMargin)
    R = 1e5
    path = regularization_path(problem, [1.0, 30.0, R], max_margin=narrow)
    # Margins count only tokens of lower score; the excess is e^{−margin} up to a factor.
    logits = keys @ (path.points[-1] / R)
    margin = float((logits[:, :2].max(axis=1) - logits[:, 2]).min())
    angles = np.linspace(-np.pi, np.pi, 100_001)
    seen = keys @ np.stack([np.cos(angles), np.sin(angles)])
    assert margin >= float((seen[:, :2].max(axis=1) - seen[:, 2]).min(axis=0).max()) * (1 - 1e-4)
    assert margin > 3 * narrow.margin
    assert path.log_excess[-1] == pytest.approx(-R * margin, rel=1e-3)


@pytest.mark.parametrize("tilt", [0.0, 2.5])
def test_slope_and_curvature_on_the_sphere_are_derivatives_of_the_value(tilt: float) -> None:
    problem, svm = separable(3, n=1, T=4, d=3)
    R, basis = 3.0, np.linalg.qr(np.column_stack([svm.direction, np.eye(3)]))[0][:, 1:]
    excess = Excess(problem, problem.optimal)
    logits = (R * excess.differences.rows @ svm.direction).reshape(1, 3), 0.0

    def at(y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        result = excess.on_sphere(R, svm.direction, basis, y, logits)
        assert result is not None
        return result

    y, h = np.array([0.6, -0.8]) * tilt, 1e-5
    value, slope, curvature = at(y)
    p = np.sqrt(R * R - y @ y) * svm.direction + basis @ y
    assert value == pytest.approx(excess.value_and_slope(p)[0], rel=64 * EPS)
    for j, axis in enumerate(np.eye(2)):
        ahead, behind = at(y + h * axis), at(y - h * axis)
        # Central differences err by h² times third derivatives, of up to R/ρ³, and by rounding divided by h.
        assert (ahead[0] - behind[0]) / (2 * h) == pytest.approx(slope[j], abs=1e-7)
        assert (ahead[1] - behind[1]) / (2 * h) == pytest.approx(curvature[j], abs=1e-7)


def test_a_flat_risk_is_reported_as_not_converged() -> None:
    # No prompt selects the best token of both inputs: the first input is selected for good, and the risk stops
    # changing.
    keys = np.array([[[1.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]]])
    problem = Problem(keys, np.array([[3.0, 0.0], [0.1, 0.0]]), LOSSES["correlation"])
    path = regularization_path(problem, [1.0, 1e4])
    assert path.converged[0]
    assert not path.converged[1]
    assert path.reasons[1]
    assert np.linalg.norm(path.points, axis=1) == pytest.approx(path.norms, rel=8 * EPS)


def test_paths_for_equal_scores_and_in_one_dimension_exist() -> None:
    flat = Problem(np.random.default_rng(0).normal(size=(2, 3, 2)), np.ones((2, 3)))
    path = regularization_path(flat, [1.0, 1e5])
    assert (path.log_excess == -np.inf).all()
    line = Problem(np.array([[[2.0], [0.0]]]), np.array([[1.0, 0.0]]))
    svm = max_margin(line.keys, line.optimal)
    assert isinstance(svm, MaxMargin)
    path = regularization_path(line, [1.0, 1e5], max_margin=svm)
    assert path.converged.all(), path.reasons
    assert path.points[:, 0].tolist() == [1.0, 1e5]
    assert (path.one_minus_cosine == 0).all()


def test_bad_input_is_refused() -> None:
    problem, svm = separable(0)
    for radii in ([0.0, 1.0], [-1.0], [], [1.0, np.nan], [np.inf]):
        with pytest.raises(InvalidInput, match="norms: radii must be positive and finite"):
            regularization_path(problem, radii, max_margin=svm)
    with pytest.raises(InvalidInput, match="alpha: the path is relative to tokens of highest score"):
        regularization_path(problem, [1.0], alpha=(problem.optimal + 1) % 4)


def test_an_alpha_below_the_highest_score_is_refused() -> None:
    problem = Problem(np.random.default_rng(0).normal(size=(1, 2, 2)), np.array([[1.0, 0.75]]))
    with pytest.raises(InvalidInput, match="alpha: the path is relative to tokens of highest score"):
        regularization_path(problem, [1.0], alpha=np.array([1]))


def test_the_cosine_agrees_with_the_points_at_any_radius() -> None:
    for seed in range(3):
        problem, svm = separable(seed)
        path = regularization_path(problem, [1e-3, 0.1, 1.0, 10.0, 100.0], max_margin=svm)
        along = path.points @ svm.direction / np.linalg.norm(path.points, axis=1)
        assert path.one_minus_cosine == pytest.approx(1 - along, abs=8 * EPS)


def test_a_short_prompt_may_point_away_from_p_mm() -> None:
    """Near p = 0 the second-best token, with key −5, outweighs the best, with key 1, so that the path begins at
    p < 0.
    """
    problem = Problem([[[1.0], [0.0], [-5.0]]], [[1.0, 0.0, 0.9]])
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    path = regularization_path(problem, [1e-2, 100.0], max_margin=svm)
    assert path.points.ravel().tolist() == [-1e-2, 100.0]
    assert path.one_minus_cosine.tolist() == [2.0, 0.0]


def test_where_all_tokens_score_alike_the_path_stays_at_zero_without_direction() -> None:
    problem = Problem(np.random.default_rng(0).normal(size=(2, 3, 6)), np.ones((2, 3)))
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    path = regularization_path(problem, [1.0], max_margin=svm)
    assert path.log_excess.tolist() == [-np.inf]
    assert not path.points.any()
    assert np.isnan(path.one_minus_cosine).all()
