"""The rounding bounds against ball arithmetic: never exceeded, and not absurdly loose."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from tests.theorems import oracle
from tests.theorems.token_selection.faults import FAULTS
from theorems.core.implementation import REFERENCE
from theorems.core.points import probe_points
from theorems.rounding.evaluation import Evaluation, scaled_gradient_of
from theorems.rounding.forward_error import dot_error, log_weight_error, logit_error

LOOSEST = 1 / 500
"""A bound whose worst case uses less than this part of it would hide faults."""


def nasty_problems() -> Iterator[Problem]:
    """Random ones, tiny and huge score gaps, a common offset of all keys, ties, one dimension."""
    rng = np.random.default_rng(20230613)
    for k, loss in enumerate(3 * list(LOSSES)):
        n, tokens, d = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(1, 6))
        keys = rng.standard_normal((n, tokens, d)) * np.exp(rng.uniform(-6, 0, (n, tokens, 1)))
        scores = rng.standard_normal((n, tokens))
        if k % 4 == 1:
            keys += 10.0
        if k % 4 == 2:
            scores = np.round(scores) + 1e-12 * rng.standard_normal((n, tokens))
        if k % 4 == 3:
            keys[:, 1] = keys[:, 0]
            scores *= 8.0
        yield Problem(keys, scores, LOSSES[loss])


PROBLEMS = list(nasty_problems())


def ratio(error: object, bound: object) -> float:
    """error / bound, 0 where both vanish."""
    e, b = np.abs(np.asarray(error, dtype=float)), np.asarray(bound, dtype=float)
    return float(np.max(np.where(e == 0, 0.0, e / np.where(b > 0, b, np.finfo(float).tiny))))


def points_of(problem: Problem, m: int = 12) -> np.ndarray:
    rng = np.random.default_rng(problem.n + 10 * problem.T)
    return probe_points(rng, problem, rng.standard_normal(problem.d), m=m)


def truth_of_gradient(problem: Problem, points: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
    return np.array(
        [
            [oracle.scaled(x, float(m)) for x in oracle.gradient(problem, p)]
            for p, m in zip(points, log_scale, strict=True)
        ]
    )


def test_log_weights_and_outputs() -> None:
    weights, outputs = [], []
    for problem in PROBLEMS:
        at = Evaluation(problem, points_of(problem))
        for b, p in enumerate(at.points):
            with oracle.precision(oracle.bits_for(problem, p)):
                log_weights = [[float(s.log().mid()) for s in row] for row in oracle.weights(problem, p)]
                means = [
                    float((x - oracle.arb(float(y))).mid())
                    for x, y in zip(oracle.outputs(problem, p), at.outputs[b], strict=True)
                ]
            weights.append(ratio(at.log_weights[b] - log_weights, at.log_weights_error[b]))
            outputs.append(ratio(means, at.outputs_error[b]))
    assert LOOSEST < max(weights) <= 1
    assert LOOSEST < max(outputs) <= 1


@pytest.mark.parametrize("evaluated", ["mine", "reference"])
def test_gradient(evaluated: str) -> None:
    ratios = []
    for problem in PROBLEMS:
        points = points_of(problem)
        own = Evaluation(problem, points).gradient
        direction = own.direction
        if evaluated == "reference":
            direction = scaled_gradient_of(REFERENCE, problem, points, own.log_scale)
        truth = truth_of_gradient(problem, points, own.log_scale)
        ratios.append(ratio(direction - truth, own.error))
    # One evaluation may use half of the bound, which pays for two.
    assert LOOSEST < max(ratios) <= 0.5


def test_textbook_gradient_and_that_it_needs_its_bound() -> None:
    textbook = FAULTS["cancelling-gradient"]
    ratios, without = [], []
    for problem in PROBLEMS:
        points = points_of(problem)
        at = Evaluation(problem, points)
        theirs = scaled_gradient_of(textbook, problem, points, np.zeros(len(points)))
        truth = truth_of_gradient(problem, points, np.zeros(len(points)))
        ratios.append(ratio(theirs - truth, at.textbook_gradient_error(EPS)))
        scale = np.exp(np.maximum(at.gradient.log_scale, -700.0))[:, None]
        without.append(ratio(theirs - truth, at.gradient.error * scale))
    assert LOOSEST / 10 < max(ratios) <= 1
    assert max(without) > 1e6


def test_dot_error() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((200, 9)), rng.standard_normal((200, 9))
    with oracle.precision(oracle.BITS):
        exact = [oracle._dot(x.tolist(), y.tolist()) for x, y in zip(a, b, strict=True)]
        error = [
            float(oracle.arb(e - oracle.rational(float(f))).mid())
            for e, f in zip(exact, np.sum(a * b, axis=1), strict=True)
        ]
    assert LOOSEST < ratio(error, dot_error(a, b, np.zeros_like(a))) <= 1


def test_oracle_agrees_with_a_closed_form() -> None:
    # Two tokens, keys ±1/2: f = tanh(p/2)/2, so L = −f for the correlation loss and L' = −1/(4 cosh²(p/2)).
    problem = Problem(np.array([[[0.5], [-0.5]]]), np.array([[0.5, -0.5]]), LOSSES["correlation"])
    p = np.array([1.5])
    assert float(oracle.risk(problem, p).mid()) == pytest.approx(-math.tanh(0.75) / 2, rel=4 * EPS)
    (slope,) = oracle.gradient(problem, p)
    assert float(slope.mid()) == pytest.approx(-1 / (4 * math.cosh(0.75) ** 2), rel=4 * EPS)
    assert float(oracle.excess_risk(problem, p, np.array([0])).mid()) == pytest.approx(
        0.5 - math.tanh(0.75) / 2, rel=8 * EPS
    )


def test_ties_that_only_a_suppressed_token_breaks() -> None:
    """Figure 1(a) far against the optimal token: all of the gradient comes through a weight of e^{−4928}."""
    keys, scores = np.array([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]]), np.array([[1.0, 0.9, 0.9]])
    problem = Problem(keys, scores)
    points = np.array([[-3e-5, -4927.0]])
    own = Evaluation(problem, points).gradient
    truth = truth_of_gradient(problem, points, own.log_scale)
    assert np.abs(truth).max() > 0.5
    assert ratio(own.direction - truth, own.error) <= 0.5
    reported = scaled_gradient_of(REFERENCE, problem, points, own.log_scale)
    assert ratio(reported - truth, own.error) <= 0.5


def test_duplicates_of_the_selected_token_do_not_hide_the_gradient() -> None:
    """Two equal keys with different scores, a third one suppressed: the scale is that of the third."""
    problem = Problem(np.array([[[1.0], [1.0], [0.0]]]), np.array([[1.0, 0.0, -1.0]]))
    points = np.array([[2000.0]])
    own = Evaluation(problem, points).gradient
    assert own.log_scale[0] == pytest.approx(-2000, abs=5)
    truth = truth_of_gradient(problem, points, own.log_scale)
    assert np.abs(truth).max() > 0.1
    assert ratio(own.direction - truth, own.error) <= 0.5


def test_bounds_are_the_documented_formulas() -> None:
    """Written out entry by entry: a count or a sign that is off hides behind the room that every bound has."""
    rows = np.array([[[1.0, -2.0, 4.0], [0.5, 0.25, -8.0]]])
    p = np.array([[3.0, -1.0, 0.5], [0.0, 2.0, -4.0]])
    sizes = [[[abs(x) * abs(y) for x, y in zip(row, q, strict=True)] for row in rows[0]] for q in p]
    logits = logit_error(np.stack([rows, rows]), p)
    for m in range(2):
        for t in range(2):
            assert logits[m, 0, t] == pytest.approx((3 + 3) * EPS * sum(sizes[m][t]), rel=1e-12, abs=0)
    log_weights = np.log(np.array([[0.25, 0.75]]))
    errors = np.array([[1e-3, 3e-3]])
    mean = 0.25 * 1e-3 + 0.75 * 3e-3
    for t, found in enumerate(log_weight_error(errors, log_weights)[0]):
        wanted = errors[0, t] + mean + EPS * (2 + 6 + 2 * abs(log_weights[0, t]))
        assert found == pytest.approx(wanted, rel=1e-12, abs=0)
    # At the size of rounding itself, where a missing term is seen.
    tiny = log_weight_error(np.zeros((1, 2)), log_weights)[0]
    assert tiny == pytest.approx([EPS * (8 + 2 * math.log(4)), EPS * (8 + 2 * math.log(4 / 3))], rel=1e-12, abs=0)
    a, b = np.array([1.0, -2.0, 3.0, 0.5]), np.array([4.0, 0.5, -0.25, 8.0])
    own = (4 + 2) * EPS * (4 + 1 + 0.75 + 4)
    assert float(dot_error(a, b, np.zeros(4))) == pytest.approx(own, rel=1e-12, abs=0)
    inherited = 1e-6 * (4 + 0.5 + 0.25 + 8)
    assert float(dot_error(a, b, np.full(4, 1e-6))) == pytest.approx(inherited + own, rel=1e-12, abs=0)
