"""Sign descent with constant steps moves to and fro in one coordinate for ever; with vanishing steps it does not."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import pytest

from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.steepest_descent import steepest_descent
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.steepest_descent.without.steepest_one_input import constant_steps

ROWS = np.array([[-1.0, 1.0, -1.0], [-1.0, -1.0, 2.0]])
PROBLEM = Problem(
    np.concatenate([np.zeros((1, 3)), -ROWS])[None], np.array([[1.0, 0.0, 0.0]]), loss_named("correlation")
)
"""A problem whose largest margin in ‖·‖_∞ is γ_∞ = 4/3, and on which steps of ¼ alternate in the third coordinate."""
CYCLE = Case(PROBLEM, start=np.array([0.0, 0.125, 0.0]), arrays=MappingProxyType({"step_norm": np.array(0.25)}))


def test_with_constant_steps_the_margin_stays_below_its_largest_value() -> None:
    claims = list(constant_steps.conclusion(CYCLE, REFERENCE))
    assert [claim.verdict for claim in claims] == [Verdict.FALSIFIED]
    assert "m/‖p‖_∞ → 1, γ_∞ = 4/3" in claims[0].detail
    assert claims[0].slack == pytest.approx(-1 / 3)


@pytest.mark.parametrize(("vanishing", "least"), [(False, 0.70), (True, 0.97)])
def test_with_vanishing_steps_the_margin_comes_near_its_largest_value(vanishing: bool, least: float) -> None:
    lengths = 0.25 / np.sqrt(np.arange(1.0, 4001)) if vanishing else np.full(4000, 0.25)
    start = np.array([[0.0, 0.125, 0.0]])
    p = steepest_descent(PROBLEM, start, lengths=lengths, norm=math.inf, gradient=scaled_gradient)[-1, 0]
    share = (ROWS @ p).min() / np.abs(p).max() / (4 / 3)
    assert least < share < least + 0.1
