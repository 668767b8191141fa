"""From which radius on one exponential is below another, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.better_directions import leaving_only_higher
from reference_attention.directions import direction
from theorems.bounded import exact
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
def test_from_where_on_it_holds(log_constant: float, gap: float, radius: float) -> None:
    assert crossing(exact(log_constant), gap) == radius


def test_where_all_neighbours_are_higher_the_direction_is_kept() -> None:
    """Only with a lower one among them it is tilted, away from the lower one."""
    keys, q = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]]), np.array([1.0, 0.0])
    found, alpha = direction(keys, q), np.array([0])
    assert found.neighbours.tolist() == [[False, True, True]]
    assert leaving_only_higher(keys, found, np.array([[0.0, 1.0, 2.0]]), alpha, 0.1) is found
    tilted = leaving_only_higher(keys, found, np.array([[0.0, 1.0, -1.0]]), alpha, 0.1)
    assert tilted is not None
    assert tilted.neighbours.tolist() == [[False, True, False]]
