"""Steepest and mirror descent, compared with their formulas in plain floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import normalized_gradient_descent
from reference_attention.training.steepest_descent import mirror_descent, primal_point, steepest_descent

RNG = np.random.default_rng(0)
PROBLEM = Problem(RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 4)), loss_named("logistic"))
STARTS = RNG.normal(size=(2, 3))
LENGTHS = np.array([0.3, 0.2, 0.1, 0.1])


def gradient(p: np.ndarray) -> np.ndarray:
    gradient = scaled_gradient(PROBLEM.keys, PROBLEM.scores, PROBLEM.loss, p)
    return np.exp(gradient.log_scale)[..., None] * gradient.direction


def test_steepest_descent_in_the_euclidean_norm_is_normalized_gradient_descent() -> None:
    run = steepest_descent(PROBLEM, STARTS, lengths=np.full(5, 0.3), norm=2.0)
    right = normalized_gradient_descent(PROBLEM, STARTS, steps=5, step=0.3).points
    np.testing.assert_allclose(run, right, rtol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("norm", [1.0, 1.5, 3.0, math.inf])
def test_steps_are_those_of_steepest_descent_for_the_mean_gradient(norm: float, momentum: float) -> None:
    run = steepest_descent(PROBLEM, STARTS, lengths=LENGTHS, norm=norm, momentum=momentum)
    dual = {1.0: math.inf, math.inf: 1.0}.get(norm, norm / (norm - 1) if norm > 1 else 1.0)
    held = np.zeros_like(STARTS)
    for t, length in enumerate(LENGTHS):
        held = momentum * held + (1 - momentum) * gradient(run[t])
        step = run[t + 1] - run[t]
        np.testing.assert_allclose(np.linalg.norm(step, ord=norm, axis=1), length, rtol=1e-12)
        reached = -np.sum(held * step, axis=1)
        np.testing.assert_allclose(reached, length * np.linalg.norm(held, ord=dual, axis=1), rtol=1e-12)


@pytest.mark.parametrize("norm", [1.5, 2.0, 4.0])
def test_steps_of_mirror_descent_are_those_of_its_formula(norm: float) -> None:
    plain = mirror_descent(PROBLEM, STARTS, steps=3, log_step=math.log(0.2), norm=norm)
    other = mirror_descent(PROBLEM, STARTS, steps=3, log_step=math.log(0.2), norm=norm, normalized=True)
    np.testing.assert_allclose(primal_point(plain[0], norm), STARTS, rtol=1e-12)
    for t in range(3):
        g = gradient(primal_point(plain[t], norm))
        np.testing.assert_allclose(plain[t + 1], plain[t] - 0.2 * g, rtol=1e-12)
        length = np.linalg.norm(other[t + 1] - other[t], ord=norm / (norm - 1), axis=1)
        np.testing.assert_allclose(length, 0.2, rtol=1e-12)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="norm"):
        steepest_descent(PROBLEM, STARTS, lengths=LENGTHS, norm=0.5)
    with pytest.raises(InvalidInput, match="β"):
        steepest_descent(PROBLEM, STARTS, lengths=LENGTHS, norm=2.0, momentum=1.0)
    with pytest.raises(InvalidInput, match="norm"):
        mirror_descent(PROBLEM, STARTS, steps=1, log_step=0.0, norm=math.inf)
