"""The claims that compare the steps of a descent with the gradient: right runs pass, slightly wrong ones do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.training.descent import gradient_descent, normalized_gradient_descent
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import starts_claim, steps_claim

RNG = np.random.default_rng(5)
PROBLEM = Problem(RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 4)), loss_named("logistic"))
STARTS = np.concatenate([np.zeros((1, 3)), RNG.normal(size=(3, 3)), 1e3 * RNG.normal(size=(1, 3))])


def steps_claim_of(points: np.ndarray, log_step: float, *, normalized: bool = False) -> Claim:
    at = AttentionAt(PROBLEM, points[:-1].reshape(-1, 3))
    gradient = at.gradient_of(REFERENCE, "step").reshape(points[:-1].shape)
    log_scale = at.log_scale.reshape(points.shape[0] - 1, -1)
    return steps_claim("step", points[:-1], points[1:], gradient, log_scale, log_step, normalized=normalized)


@pytest.mark.parametrize("normalized", [False, True])
def test_the_reference_s_steps_pass_and_a_change_in_the_eleventh_digit_fails(normalized: bool) -> None:
    if normalized:
        points = normalized_gradient_descent(PROBLEM, STARTS, steps=40, step=0.3).points
    else:
        points = gradient_descent(PROBLEM, STARTS, steps=40, log_step=math.log(0.3)).points
    assert steps_claim_of(points, math.log(0.3), normalized=normalized).verdict is Verdict.UPHELD
    for t in (1, 20, 40):
        wrong = np.array(points)
        wrong[t, 1, 2] *= 1 + 1e-11
        assert steps_claim_of(wrong, math.log(0.3), normalized=normalized).verdict is Verdict.FALSIFIED
    assert steps_claim_of(points, math.log(0.3) + 1e-9, normalized=normalized).verdict is Verdict.FALSIFIED


def test_where_the_gradient_is_zero_a_normalized_step_does_not_move() -> None:
    same = np.ones((3, 4, 2))
    flat = Problem(same, RNG.normal(size=(3, 4)), loss_named("logistic"))
    points = normalized_gradient_descent(flat, np.ones((1, 2)), steps=2, step=1.0).points
    at = AttentionAt(flat, points[:-1].reshape(-1, 2))
    gradient = at.gradient_of(REFERENCE, "step").reshape(2, 1, 2)
    scale = at.log_scale.reshape(2, 1)
    right = steps_claim("step", points[:-1], points[1:], gradient, scale, 0.0, normalized=True)
    wrong = steps_claim("step", points[:-1], points[1:] + 1.0, gradient, scale, 0.0, normalized=True)
    assert (right.verdict, wrong.verdict) == (Verdict.UPHELD, Verdict.FALSIFIED)


def test_a_run_must_begin_at_its_start_and_have_the_requested_iterates() -> None:
    points = gradient_descent(PROBLEM, STARTS, steps=3, log_step=0.0).points
    assert starts_claim("run", points, STARTS, 3).verdict is Verdict.UPHELD
    assert starts_claim("run", points, STARTS, 4).verdict is Verdict.FALSIFIED
    assert starts_claim("run", points, np.nextafter(STARTS, 1e9), 3).verdict is Verdict.FALSIFIED
