"""The local path is feasible, never worse than a fine grid, and finds both branches of Theorem 4."""

from __future__ import annotations

import numpy as np
import pytest

from attention import risk
from attention.errors import InvalidInput
from attention.local_path import local_path, order
from attention.problem import Problem

ALPHA = np.array([0])
LOWER = Problem(np.array([[[0.0, 0.0], [-1.0, -1.0]]]), np.array([[0.0, -1.0]]))
HIGHER = Problem(np.array([[[0.0, 0.0], [-1.0, -1.0], [-3.0, 0.0]]]), np.array([[0.0, 1.0, -4.0]]))
Q = np.array([1.0, 0.0])


def grid(mu: float, low: float, high: float) -> np.ndarray:
    angles = np.linspace(-1, 1, 401) * np.arccos(1 - mu)
    units = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (np.geomspace(low, high, 200)[:, None, None] * units).reshape(-1, 2)


@pytest.mark.parametrize("problem", [LOWER, HIGHER])
@pytest.mark.parametrize("mu", [0.25, 1e-4])
def test_no_grid_point_is_better(problem: Problem, mu: float) -> None:
    path = local_path(problem, Q, ALPHA, [5.0, 30.0, 300.0], mu=mu, radius=1.0)
    assert (path.sizes <= path.norms * (1 + 1e-12)).all()
    cosine = path.points @ Q / path.sizes
    assert (cosine >= 1 - mu - 4 * 2.0**-52).all()
    for R, sign, size in zip(path.norms, path.sign, path.log_excess, strict=True):
        s, l = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, grid(mu, 1.0, R), ALPHA)
        ranks = order(np.append(s, sign), np.append(l, size))
        # The path is a local search: its logarithm may miss the best by the last polish, not by a grid cell.
        assert ranks[-1] <= ranks[:-1].min() + 1e-6 * abs(size)


def test_the_branches() -> None:
    away = local_path(LOWER, Q, ALPHA, [1e2, 1e4], mu=0.25, radius=1.0)
    assert np.allclose(away.sizes, away.norms)
    assert (away.points @ Q / away.sizes <= 0.75 + 1e-9).all()
    bounded = local_path(HIGHER, Q, ALPHA, [1e2, 1e4], mu=1e-4, radius=1.0)
    assert (bounded.sizes < 20).all()
    assert (bounded.sign < 0).all()


def test_order_ranks_signed_numbers_given_by_logarithms() -> None:
    sign, size = np.array([1.0, 1.0, 0.0, -1.0, -1.0]), np.array([-5.0, -1e5, -np.inf, -1e5, -5.0])
    assert np.argsort(order(sign, size)).tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("mu", "radius"), [(0.0, 1.0), (1.0, 1.0), (0.1, 0.0), (0.1, 3.0)])
def test_bad_cones_are_refused(mu: float, radius: float) -> None:
    with pytest.raises(InvalidInput, match=r"^(mu|norms)"):
        local_path(LOWER, Q, ALPHA, [2.0], mu=mu, radius=radius)
