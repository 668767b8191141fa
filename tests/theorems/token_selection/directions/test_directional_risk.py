"""The radius from which one exponential is below another, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from generators.case import Case
from reference_attention.better_directions import higher_neighbours_direction
from reference_attention.directions import direction
from reference_attention.problem import Problem
from theorems.bounded import exact
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.directions.directional_risk import crossing


@pytest.mark.parametrize(
    ("log_constant", "gap", "radius"),
    [
        (2.0, 0.5, 4.0),
        (-3.0, 1.0, 0.0),
        (0.0, 2.0, 0.0),
        (1.0, 0.0, math.inf),
        (1.0, -1.0, math.inf),
        (5.0, math.inf, 0.0),
        (-math.inf, 1.0, 0.0),
        (-math.inf, 0.0, 0.0),
        (-math.inf, -1.0, 0.0),
    ],
)
def test_the_radius_from_which_one_exponential_is_below_another(log_constant: float, gap: float, radius: float) -> None:
    assert crossing(exact(log_constant), gap) == radius


def test_a_direction_whose_neighbours_all_score_higher_is_kept() -> None:
    """If a neighbour scores lower, the direction is tilted so that only higher neighbours remain; otherwise it
    is kept.
    """
    keys, q = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]]), np.array([1.0, 0.0])
    result, alpha = direction(keys, q), np.array([0])
    assert result.neighbours.tolist() == [[False, True, True]]
    assert higher_neighbours_direction(keys, result, np.array([[0.0, 1.0, 2.0]]), alpha, 0.1) is result
    tilted = higher_neighbours_direction(keys, result, np.array([[0.0, 1.0, -1.0]]), alpha, 0.1)
    assert tilted is not None
    assert tilted.neighbours.tolist() == [[False, True, False]]


def test_lemma_8_is_decided_for_a_loss_that_is_flat_at_the_chosen_token_only() -> None:
    # The largest slope of the loss is e^697 times that at score 706; its product with the square of the score gap e^7
    # would overflow float64.
    keys = np.array([[[1.5e-4, 721.7], [0.7e-4, -1286.9]]])
    case = Case(Problem(keys, [[-396.2, 706.4]], "sigmoid"), arrays={"q1": np.array([0.126, -0.132])})
    wider = case.replace(arrays={**case.arrays, "q2": np.array([0.345, -0.861])})
    outcome = check(statement_named("lemma-8"), wider, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    assert "leading-term-of-first" in {claim.name for claim in outcome.claims}
