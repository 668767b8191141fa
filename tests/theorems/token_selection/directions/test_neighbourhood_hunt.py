"""The search for points of low risk near a direction: they lie in the neighbourhood, and the lowest are found."""

from __future__ import annotations

import numpy as np
import pytest

from theorems.token_selection.directions.neighbourhood_hunt import lowest_in_neighbourhood

RADII = np.array([1.0, 8.0, 64.0])
DELTA = 0.125


def axis_of(d: int) -> np.ndarray:
    axis = np.arange(1.0, d + 1)
    return np.asarray(axis / np.linalg.norm(axis))


def towards(expected: np.ndarray) -> object:
    """Return an excess risk that decreases along a vector, ``expected[k]`` at the k-th radius."""

    def excess(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = np.sum(points / np.linalg.norm(points, axis=-1, keepdims=True) * expected[:, None], axis=-1)
        return np.ones(along.shape), -along

    return excess


@pytest.mark.parametrize("d", [1, 2, 5])
def test_all_points_lie_in_the_neighbourhood_and_the_first_is_its_axis(d: int) -> None:
    axis, rng = axis_of(d), np.random.default_rng(0)
    hints = np.concatenate([np.eye(d), np.zeros((1, d)), axis[None]])
    result = lowest_in_neighbourhood(towards(rng.normal(size=(3, d))), axis, DELTA, RADII, hints, rng)  # type: ignore[arg-type]
    assert np.isfinite(result).all()
    assert np.linalg.norm(result, axis=-1) == pytest.approx(
        np.broadcast_to(RADII[:, None], result.shape[:2]), rel=1e-14
    )
    assert result[:, 0] == pytest.approx(RADII[:, None] * axis, rel=1e-14)
    off = np.linalg.norm(result / RADII[:, None, None] - axis, axis=-1)
    assert off.max() <= DELTA * (1 + 1e-12)


def test_given_hints_are_tried_with_either_sign() -> None:
    axis, rng = axis_of(3), np.random.default_rng(0)
    hint = np.array([2.0, 0.0, -1.0])
    result = lowest_in_neighbourhood(towards(np.ones((3, 3))), axis, DELTA, RADII, hint[None], rng)  # type: ignore[arg-type]
    tangent = hint - (hint @ axis) * axis
    for sign in (1.0, -1.0):
        due = axis + sign * DELTA * tangent / np.linalg.norm(tangent)
        apart = np.linalg.norm(result[0] - due / np.linalg.norm(due), axis=-1)
        assert apart.min() <= 1e-14


def test_the_search_finds_the_lowest_point_at_each_radius() -> None:
    """The lowest point is on the boundary, along the vector; in 12 dimensions random points alone get only half-way."""
    axis, rng = axis_of(12), np.random.default_rng(0)
    expected = rng.normal(size=(3, 12))
    result = lowest_in_neighbourhood(towards(expected), axis, DELTA, RADII, np.zeros((0, 12)), rng)  # type: ignore[arg-type]
    for points, radius, w in zip(result, RADII, expected, strict=True):
        tangent = w - (w @ axis) * axis
        best = axis + DELTA * tangent / np.linalg.norm(tangent)
        reached = (points / radius @ w).max() - axis @ w
        assert reached >= 0.7 * (best / np.linalg.norm(best) @ w - axis @ w)
