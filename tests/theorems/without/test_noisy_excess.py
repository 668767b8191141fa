"""Computations of hunts for counterexamples: gradients for any loss, logarithms of excess risks, least risk in
a ball.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from jaxtyping import Float64

from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.claim import Form, Verdict
from theorems.core.implementation import REFERENCE
from theorems.without.ball_minimum import far_out, near, path_claim
from theorems.without.risks import decreasing_risk, linear_risk
from theorems.without.slopes import descent, gradient, lasting

RNG = np.random.default_rng(0)
KEYS = RNG.normal(size=(2, 3, 2))
SCORES = np.array([[0.5, 2.0, -1.0], [3.0, 1.5, 0.0]])
POINTS = np.concatenate([RNG.normal(size=(4, 2)), 8 * RNG.normal(size=(3, 2))])


def exact_risk(problem: Problem, p: list[mpmath.mpf]) -> mpmath.mpf:
    """Return L(p) in mpmath's working precision."""
    total = mpmath.mpf(0)
    for keys, scores in zip(problem.keys, problem.scores, strict=True):
        weights = [mpmath.exp(sum(mpmath.mpf(k) * x for k, x in zip(row, p, strict=True))) for row in keys.tolist()]
        u = sum(w * mpmath.mpf(g) for w, g in zip(weights, scores.tolist(), strict=True)) / sum(weights)
        total += {"squared": (1 - u) ** 2 / 2, "cubic": -(u**3), "correlation": -u}[problem.loss.name]
    return total / problem.n


def exact_gradient(problem: Problem, p: Float64[np.ndarray, "d"]) -> list[mpmath.mpf]:
    at = [mpmath.mpf(x) for x in p.tolist()]
    h = mpmath.mpf(10) ** -30
    moved = [[x + (h if j == k else 0) for k, x in enumerate(at)] for j in range(len(at))]
    back = [[x - (h if j == k else 0) for k, x in enumerate(at)] for j in range(len(at))]
    return [(exact_risk(problem, a) - exact_risk(problem, b)) / (2 * h) for a, b in zip(moved, back, strict=True)]


@pytest.mark.parametrize("name", ["squared", "cubic", "correlation"])
def test_the_gradient_of_any_loss_is_within_its_error(name: str) -> None:
    problem = Problem(KEYS, SCORES, loss_named(name))
    scales, result = gradient(problem, POINTS)
    with mpmath.workdps(100):
        for p, scale, value, error in zip(POINTS, scales, result.value, result.error, strict=True):
            for j, exact in enumerate(exact_gradient(problem, p)):
                unit = mpmath.exp(mpmath.mpf(float(scale)))
                assert abs(exact / unit - float(value[j])) <= float(error[j])
                assert error[j] < 1e-11


def test_a_loss_that_increases_reverses_the_gradient() -> None:
    """For scores above 1 the squared loss increases with the output, so its gradient has the other sign."""
    tokens, scores = np.array([[[1.0], [0.0]]]), np.array([[3.0, 2.0]])
    up = descent(Problem(tokens, scores, loss_named("correlation")), np.zeros((1, 1)), np.ones(1))
    down = descent(Problem(tokens, scores, loss_named("squared")), np.zeros((1, 1)), np.ones(1))
    assert up.value[0] == pytest.approx(1.0)
    assert down.value[0] == pytest.approx(-1.0)


@pytest.mark.parametrize("name", ["cubic", "correlation"])
def test_risks_at_large_norms_are_within_their_error(name: str) -> None:
    problem = Problem(KEYS, np.array([[0.0, -2.0, -1.0], [3.0, 1.5, 0.0]]), loss_named(name))
    points = POINTS * 8
    result = linear_risk(problem, REFERENCE)(points)
    with mpmath.workdps(900):
        least = sum(problem.loss.value(np.array([0.0, 3.0]))) / 2
        for p, sign, log, noise in zip(points, result.sign, result.log_size, result.log_noise, strict=True):
            exact = exact_risk(problem, [mpmath.mpf(x) for x in p.tolist()]) - mpmath.mpf(float(least))
            value = sign * mpmath.exp(mpmath.mpf(float(log)))
            assert abs(exact - value) <= mpmath.exp(mpmath.mpf(float(noise)))
            assert noise < log - 20


def test_the_excess_risk_of_a_flat_loss_is_known_far_below_the_smallest_float() -> None:
    """The excess risk is δ³ with δ = e^{−10⁶}, and the error of its logarithm stays small."""
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[0.0, -1.0]]), loss_named("cubic"))
    result = decreasing_risk(problem, np.array([[1e6]]))
    assert result.log_size[0] == pytest.approx(-3e6)
    assert result.log_noise[0] < result.log_size[0] - 10


TRIANGLE = Problem(np.array([[[0.0, 0.0], [-1.0, 1.0], [-1.0, -2.0]]]), np.array([[1.0, 0.0, 0.0]]))


@pytest.mark.parametrize("loss", ["correlation", "logistic"])
def test_a_path_near_its_limit_is_upheld_and_one_elsewhere_is_not(loss: str) -> None:
    problem = Problem(TRIANGLE.keys, TRIANGLE.scores, loss_named(loss))
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    risk, unit = linear_risk(problem, REFERENCE), svm.norm
    turned = np.array([-svm.direction[1], svm.direction[0]])
    (right,) = path_claim("path", risk, 2, unit, near(svm.direction))
    (wrong,) = path_claim("path", risk, 2, unit, near(turned))
    (out,) = path_claim("path", risk, 2, unit, far_out)
    assert right.verdict is Verdict.UPHELD
    assert -wrong.slack > 100 * wrong.tolerance
    assert out.verdict is Verdict.UPHELD


def test_a_claim_at_several_points_is_violated_only_if_it_fails_at_all() -> None:
    error = np.array([0.1, 0.1])
    assert lasting("x", Form.LIMIT, (np.array([-1.0, 1.0]), error), "exact", "").verdict is Verdict.UPHELD
    assert lasting("x", Form.LIMIT, (np.array([-1.0, -0.5]), error), "exact", "").slack == -0.5
    assert lasting("x", Form.LIMIT, (np.array([-1.0, np.nan]), error), "exact", "").slack != -1.0
