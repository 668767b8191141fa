"""Points at which lemmas are checked: they reach ties, margins and extreme norms, and local search improves them."""

from __future__ import annotations

import numpy as np

from reference_attention.problem import Problem
from theorems.core.points import (
    LARGEST_RADIUS,
    SMALLEST_RADIUS,
    climb,
    near_boundaries,
    points_around,
    probe_points,
    spread_points,
    with_margin,
)


def a_problem(scale: float = 1.0) -> Problem:
    rng = np.random.default_rng(5)
    return Problem(scale * rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 4)))


def test_the_same_seed_gives_the_same_points() -> None:
    problem, q = a_problem(), np.array([1.0, -2.0, 0.5])
    first, second, other = (probe_points(np.random.default_rng(seed), problem, q) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_norms_of_points_range_from_the_smallest_to_the_largest_radius_in_units_of_the_keys() -> None:
    for scale in (1.0, 2.0**-40, 2.0**60):
        problem = a_problem(scale)
        norms = np.linalg.norm(spread_points(np.random.default_rng(0), problem, 400), axis=1) * problem.key_scale
        assert SMALLEST_RADIUS <= norms.min() < 2 * SMALLEST_RADIUS
        assert LARGEST_RADIUS / 2 < norms.max() <= LARGEST_RADIUS * (1 + 1e-12)


def test_points_include_0_and_far_points_along_q_and_against_q() -> None:
    problem, q = a_problem(), np.array([1.0, -2.0, 0.5])
    points = probe_points(np.random.default_rng(0), problem, q)
    assert np.array_equal(points[0], np.zeros(3))
    norms = np.linalg.norm(points[1:], axis=1)
    cosines = points[1:] @ q / norms / np.linalg.norm(q)
    assert ((1 - cosines < 1e-6) & (norms > 100)).any()
    assert ((1 + cosines < 1e-6) & (norms > 100)).any()
    assert (1 - cosines < 1e-12).sum() < len(cosines) / 2


def test_points_are_finite_without_a_direction_and_with_direction_zero() -> None:
    for q in (None, np.zeros(3)):
        points = probe_points(np.random.default_rng(0), a_problem(), q, m=50)
        assert points.shape == (51, 3)
        assert np.isfinite(points).all()


def test_with_margin_moves_a_point_to_the_margin_unless_the_row_is_zero() -> None:
    points = np.array([[1.0, 2.0], [3.0, 4.0]])
    moved = with_margin(points, np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([1.0, 1.0]))
    assert np.array_equal(moved, [[1.0, 0.5], [3.0, 4.0]])


def test_some_points_have_tied_logits_and_some_unit_margins() -> None:
    problem = a_problem()
    rng = np.random.default_rng(0)
    points = near_boundaries(rng, problem, spread_points(rng, problem, 300) / 1e3)
    logits = np.einsum("ntd,bd->bnt", problem.keys, points)
    apart = np.abs(logits[..., :, None] - logits[..., None, :])
    off_diagonal = ~np.eye(problem.T, dtype=bool)
    smallest = np.where(off_diagonal, apart, np.inf).min(axis=(1, 2, 3))
    assert (smallest < 1e-13).sum() > 50
    assert ((smallest > 1e-12) & (smallest < 1e-3)).sum() > 20
    assert (np.abs(apart - 1).min(axis=(1, 2, 3)) < 1e-12).sum() > 50


def test_points_around_a_direction_tilt_by_every_order_of_magnitude() -> None:
    q = np.array([0.0, 0.0, 2.0])
    points = points_around(np.random.default_rng(0), q, np.full(400, 7.0))
    assert np.allclose(np.linalg.norm(points, axis=1), 7.0, rtol=1e-15, atol=0)
    tilts = np.hypot(points[:200, 0], points[:200, 1]) / 7.0
    assert tilts.min() < 1e-11
    assert tilts.max() > 0.3
    assert (points[:200, 2] > 0).all()
    assert (points[200:, 2] < 0).mean() > 0.9


def test_local_search_finds_a_narrow_peak_and_keeps_the_starting_points() -> None:
    target = np.array([3.0, -4.0, 1.0])

    def violation(points: np.ndarray) -> np.ndarray:
        return -np.linalg.norm(points - target, axis=1)

    start = spread_points(np.random.default_rng(1), a_problem(), 40)
    climbed = climb(np.random.default_rng(2), start, violation, rounds=25)
    assert np.array_equal(climbed[:40], start)
    assert violation(climbed).max() > violation(start).max() / 10


def test_local_search_prefers_points_whose_violation_is_nan() -> None:
    start = np.arange(12.0).reshape(6, 2)
    climbed = climb(
        np.random.default_rng(0), start, lambda p: np.where(p[:, 0] == 4.0, np.nan, p[:, 0]), best=1, rounds=1
    )
    assert climbed[-1, 0] == 4.0
