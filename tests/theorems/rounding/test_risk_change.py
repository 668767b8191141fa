"""Bounds of the change L(p + h) − L(p) contain the value by ball arithmetic, and are not absurdly wide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from tests.theorems import oracle
from tests.theorems.bounded.balls import escaped, used
from tests.theorems.rounding.hard_problems import PROBLEMS, points_of
from theorems.bounded import Bounded
from theorems.core.points import directions, log_uniform
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.risk_change import risk_change


def truth(at: AttentionAt, steps: np.ndarray) -> np.ndarray:
    """Return the true changes L(p + h) − L(p), divided by the evaluation's scale at p."""
    out = np.empty(len(steps), dtype=object)
    for k, (p, h, scale) in enumerate(zip(at.points, steps, at.log_scale.tolist(), strict=True)):
        result = oracle.risk_change(at.problem, p, h) * (-oracle.arb(oracle.rational(scale))).exp()
        # Replace a ball that contains 0 and has a negligible radius by 0.
        out[k] = oracle.arb(0) if result.overlaps(oracle.arb(0)) and result.rad() < 1e-300 else result
    return out


def steps_of(problem: Problem, points: np.ndarray, shortest: float, longest: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    lengths = log_uniform(rng, shortest, longest, len(points)) / problem.key_scale
    return directions(rng, len(points), problem.d) * lengths[:, None]


@pytest.mark.parametrize(("shortest", "longest"), [(1e-12, 1.0), (1e-30, 1e-9), (1.0, 200.0), (100.0, 2000.0)])
def test_bounds_contain_the_true_change_of_the_risk(shortest: float, longest: float) -> None:
    ratios, relative, known = [], [], 0
    with oracle.precision(2000):
        for problem in PROBLEMS:
            at = AttentionAt(problem, points_of(problem))
            steps = steps_of(problem, at.points, shortest, longest, 7)
            result = risk_change(at, steps)
            exact = truth(at, steps)
            assert escaped(exact, result)[:3] == []
            sure = np.isfinite(result.error)
            known += int(sure.sum())
            ratios += used(exact, result)[sure & (result.value != 0)].tolist()
            relative += (result.error / np.abs(result.value))[sure & (result.value != 0)].tolist()
    print(f"used {max(ratios):.3g}, median {np.median(ratios):.3g}; relative error {np.median(relative):.3g}")
    assert known > (100 if longest <= 200 else 10)
    assert max(ratios) > 1 / 50
    assert np.median(relative) < 1e-11


def test_steps_that_overflow_give_infinite_bounds() -> None:
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))
    at = AttentionAt(problem, np.zeros((2, 1)))
    change = risk_change(at, np.array([[1.0], [-1e3]]))
    by_hand = math.log1p(math.exp(-1 / (1 + math.exp(-1)))) - math.log1p(math.exp(-0.5))
    assert change.value[0] * math.exp(at.log_scale[0]) == pytest.approx(by_hand, rel=16 * EPS, abs=0)
    assert change.error[0] < 1e-13
    assert math.isinf(change.error[1])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_change_of_uncertain_sign_has_a_finite_bound(loss: str) -> None:
    """Two unselected tokens change so that they cancel up to a rounding; scores are of order one and of 10⁸."""
    for size in (1.0, 1e8):
        keys = np.array([[[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0]]])
        problem = Problem(keys, size * np.array([[1.0, 0.25, 0.25]]), LOSSES[loss])
        at = AttentionAt(problem, np.array([[0.0, -1.0]]))
        steps = np.array([[1e-9, 1e-18]])
        change = risk_change(at, steps)
        assert isinstance(change, Bounded)
        with oracle.precision(2000):
            assert escaped(truth(at, steps), change) == []
        assert np.isfinite(change.error).all()


def test_the_change_under_a_linear_loss_is_that_of_the_output() -> None:
    """A duplicate of the selected token has a different score, and a third token has negligible weight."""
    keys, scores = np.array([[[1.0], [1.0], [0.0]]]), np.array([[1.0, 0.0, -1.0]])
    at = AttentionAt(Problem(keys, scores, LOSSES["correlation"]), np.array([[2000.0]]))
    change = risk_change(at, np.array([[1e-3]]))
    with oracle.precision(20_000):
        assert escaped(truth(at, np.array([[1e-3]])), change) == []
    assert 0 < change.error[0] < 1e-9 * abs(change.value[0])
