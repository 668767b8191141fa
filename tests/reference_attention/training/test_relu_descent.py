"""Descent under a ReLU head: its gradient, by differences of the definition, and its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from generators.relu_heads import RELU
from reference_attention.heads import Head
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.relu_descent import ReluRun, active_scores


def test_the_gradient_agrees_with_differences_of_the_risk_under_a_relu_head() -> None:
    """Compare with central differences of Σ ℓ(Y h), of labels Y and outputs h, at random W, where no unit is at its
    kink.
    """
    rng = np.random.default_rng(0)
    keys, features = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 3))
    head = Head(features, np.array([1.0, -2.0, 0.5]), np.full(3, RELU), np.array([1.0, -1.0]))
    p, u = rng.normal(size=4), rng.normal(size=4)
    problem = Problem(keys, rng.normal(size=(2, 3)))

    def risk(p: Any) -> float:
        logits = keys @ p
        s = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return float(np.mean(problem.loss.value(head.outputs(s))))

    gradient = scaled_gradient(keys, active_scores(problem, head, p), problem.loss, p)
    slope = float(np.exp(gradient.log_scale) * (np.asarray(gradient.direction) @ u))
    assert slope == pytest.approx((risk(p + 1e-6 * u) - risk(p - 1e-6 * u)) / 2e-6, rel=1e-6)


def test_steps_have_equal_length_unless_every_unit_of_the_head_is_inactive() -> None:
    problem = Problem(np.eye(2)[None], np.zeros((1, 2)))
    on = Head(np.array([[[2.0], [1.0]]]), np.ones(1), np.array([RELU]), np.ones(1))
    run = ReluRun.of(problem, on, 0.25, 8)
    assert np.allclose(np.linalg.norm(np.diff(run.points, axis=0), axis=1), 0.25)
    assert run.weights(8)[0, 0] > run.weights(0)[0, 0] == 0.5
    assert run.mean_scores(8, 2).tolist() == run.at(8).scores.tolist() == [[2.0, 1.0]]
    assert np.allclose(run.mean(8, 2), run.points[6:].mean(axis=0))
    off = Head(np.array([[[-2.0], [-1.0]]]), np.ones(1), np.array([RELU]), np.ones(1))
    assert not ReluRun.of(problem, off, 0.25, 8).points.any()
