"""The local path is feasible, is never worse than a fine grid, and finds both branches of Theorem 4."""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.paths.local_path import _Cone, local_path, order
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient

ALPHA = np.array([0])
LOWER = Problem(np.array([[[0.0, 0.0], [-1.0, -1.0]]]), np.array([[0.0, -1.0]]))
HIGHER = Problem(np.array([[[0.0, 0.0], [-1.0, -1.0], [-3.0, 0.0]]]), np.array([[0.0, 1.0, -4.0]]))
Q = np.array([1.0, 0.0])
EPS = float(np.finfo(float).eps)


def grid(mu: float, low: float, high: float) -> np.ndarray:
    angles = np.linspace(-1, 1, 401) * np.arccos(1 - mu)
    units = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (np.geomspace(low, high, 200)[:, None, None] * units).reshape(-1, 2)


@pytest.mark.parametrize("problem", [LOWER, HIGHER])
@pytest.mark.parametrize("mu", [0.25, 1e-4])
def test_no_point_of_a_grid_in_the_cone_is_better_than_the_local_path(problem: Problem, mu: float) -> None:
    path = local_path(problem, Q, ALPHA, [5.0, 30.0, 300.0], mu=mu, radius=1.0)
    assert (path.sizes <= path.norms * (1 + 1e-12)).all()
    cosine = path.points @ Q / path.sizes
    assert (cosine >= 1 - mu - 4 * 2.0**-52).all()
    for R, sign, size in zip(path.norms, path.sign, path.log_excess, strict=True):
        s, l = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, grid(mu, 1.0, R), ALPHA)
        ranks = order(np.append(s, sign), np.append(l, size))
        # The path is a local search: log |L − L_α| may miss the best value by the last polish, not by a grid cell.
        assert ranks[-1] <= ranks[:-1].min() + 1e-6 * abs(size)


def test_the_path_takes_each_branch_of_theorem_4() -> None:
    away = local_path(LOWER, Q, ALPHA, [1e2, 1e4], mu=0.25, radius=1.0)
    assert np.allclose(away.sizes, away.norms)
    assert (away.points @ Q / away.sizes <= 0.75 + 1e-9).all()
    bounded = local_path(HIGHER, Q, ALPHA, [1e2, 1e4], mu=1e-4, radius=1.0)
    assert (bounded.sizes < 20).all()
    assert (bounded.sign < 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_in_more_than_two_dimensions_no_start_and_no_point_nearby_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = Problem(rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3)))
    axis, mu, R = rng.normal(size=3), 0.2, 5.0
    starts = rng.normal(size=(300, 3)) * rng.uniform(0.5, 4.0, size=(300, 1))
    starts *= np.sign(starts @ axis)[:, None]
    path = local_path(problem, axis, problem.optimal, [R], mu=mu, radius=1.0, starts=starts)
    assert 1 - 4 * EPS <= path.sizes[0] <= R * (1 + 4 * EPS)
    assert path.points[0] @ axis >= (1 - mu - 4 * EPS) * path.sizes[0] * np.linalg.norm(axis)
    steps = rng.normal(size=(300, 3)) * np.geomspace(1e-6, 1.0, 300)[:, None]
    for others in (starts, path.points + steps):
        sizes = np.linalg.norm(others, axis=1)
        within = (sizes >= 1) & (sizes <= R) & (others @ axis >= (1 - mu) * sizes * np.linalg.norm(axis))
        assert within.sum() > 10
        s, l = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, others[within], problem.optimal)
        ranks = order(np.append(s, path.sign), np.append(l, path.log_excess))
        # On a smooth function SLSQP's error is about the square root of its tolerance 1e-14.
        assert ranks[-1] <= ranks[:-1].min() + 1e-6 * (1 + abs(path.log_excess[0]))


def test_the_path_stays_in_its_cone_when_a_polish_is_cut_short() -> None:
    rng, mu = np.random.default_rng(0), 0.01
    for _ in range(10):
        problem = Problem(rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 4)), LOSSES["correlation"])
        axis, alpha = rng.normal(size=5), np.zeros(2, dtype=np.int64)
        path = local_path(problem, axis, alpha, [5.0], mu=mu, radius=1.0)
        cosine = path.points @ axis / (path.sizes * np.linalg.norm(axis))
        assert (cosine >= 1 - mu - 4 * EPS).all()
        assert (path.sizes >= 1 - 4 * EPS).all()
        assert (path.sizes <= path.norms * (1 + 4 * EPS)).all()


def test_a_polished_point_outside_the_cone_is_moved_back_at_any_inner_radius() -> None:
    rng, mu = np.random.default_rng(10), 0.3
    problem = Problem(rng.normal(size=(2, 3, 4)) * rng.choice([1, 4]), rng.normal(size=(2, 3)), LOSSES["correlation"])
    alpha = np.argsort(problem.scores, axis=1)[:, -1 - int(rng.integers(0, 3))]
    axis = rng.normal(size=4)
    for radius in (0.25, 1.0, 3.0):
        path = local_path(problem, axis, alpha, [5.0], mu=mu, radius=radius)
        assert path.points[0] @ axis >= (1 - mu - 4 * EPS) * path.sizes[0] * np.linalg.norm(axis)
        assert radius * (1 - 4 * EPS) <= path.sizes[0] <= 5.0 * (1 + 4 * EPS)


@pytest.mark.parametrize("depth", [1e-4, 1e4])
def test_a_well_between_the_scanned_norms_is_followed_to_its_bottom(depth: float) -> None:
    """The excess L − L_α = depth·((log ‖p‖ − 5.4)² − 0.04) is positive at the scanned norms e⁰, e¹, …, e¹¹."""

    def excess(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = depth * ((np.log(np.linalg.norm(p, axis=-1)) - 5.4) ** 2 - 0.04)
        return np.sign(value), np.log(np.abs(value))

    def gradient(p: np.ndarray) -> ScaledGradient:
        size = np.linalg.norm(p)
        return ScaledGradient(np.log(2 * depth), (np.log(size) - 5.4) * p / size**2)

    line = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))
    path = local_path(line, np.ones(1), ALPHA, [np.exp(11.0)], mu=0.5, radius=1.0, excess=excess, gradient=gradient)
    # On a smooth function SLSQP's error is about the square root of its tolerance 1e-14.
    assert np.log(path.sizes) == pytest.approx([5.4], abs=1e-6)
    assert path.sign == [-1]


def test_order_ranks_signed_numbers_given_by_logarithms() -> None:
    sign, size = np.array([1.0, 1.0, 0.0, -1.0, -1.0]), np.array([-5.0, -1e5, -np.inf, -1e5, -5.0])
    assert np.argsort(order(sign, size)).tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("mu", "radius"), [(0.0, 1.0), (1.0, 1.0), (0.1, 0.0), (0.1, 3.0)])
def test_cones_with_invalid_parameters_are_refused(mu: float, radius: float) -> None:
    with pytest.raises(InvalidInput, match=r"^(mu|norms)"):
        local_path(LOWER, Q, ALPHA, [2.0], mu=mu, radius=radius)


def test_of_numbers_given_by_sign_and_logarithm_only_zero_has_rank_zero() -> None:
    sign = np.array([1.0, 1.0, 0.0, 0.0, -1.0, -1.0, -1.0])
    size = np.array([0.25, -np.inf, -np.inf, 3.0, -np.inf, 0.25, 0.5])
    ranks = order(sign, size)
    assert (ranks[1:5] == 0).all()
    assert ranks[0] > 0 > ranks[5] > ranks[6]


def test_cone_coordinates_are_of_the_direction_or_of_the_nearest_boundary_point() -> None:
    rng, mu = np.random.default_rng(0), 0.2
    cone = _Cone(np.array([1.0, -2.0, 0.5, 1.0]), mu, np.eye(4))
    x = 0.1 * (cone.axis + 0.6 * rng.normal(size=(3, 40, 4)))
    along, across = x @ cone.axis, np.linalg.norm(x @ cone.basis, axis=-1)
    inside = along > (1 - mu) * np.linalg.norm(x, axis=-1)
    assert 20 < inside.sum() < 100
    assert (cone.contains(x) == inside).all()
    assert not cone.contains(np.zeros(4))
    assert not cone.contains(-cone.axis)
    y = cone.coordinates(x)
    units = cone.units(y)
    assert units[inside] == pytest.approx((x / np.linalg.norm(x, axis=-1, keepdims=True))[inside], abs=16 * EPS)
    assert (along < 0).any()
    assert units[~inside] @ cone.axis == pytest.approx(1 - mu)
    # A point outside the cone has the coordinates of the boundary point at the same azimuth.
    assert y[~inside] == pytest.approx((x @ cone.basis)[~inside] / across[~inside][:, None])


@pytest.mark.parametrize("norms", [[], [0.5, 5.0], [1.0], [np.inf], [5.0, np.nan]])
def test_norms_that_are_not_beyond_the_inner_radius_are_refused(norms: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"^norms"):
        local_path(LOWER, Q, ALPHA, norms, mu=0.1, radius=1.0)


def sides_of(problem: Problem, axis: np.ndarray, alpha: np.ndarray, R: float, mu: float, radius: float) -> list[bool]:
    """Assert that the path ends at a stationary point of log |L − L_α|, and return whether that lies on the cone's
    boundary, inside the outer ball and outside the inner one.
    """
    p = local_path(problem, axis, alpha, [R], mu=mu, radius=radius).points[0]
    _, log_size = risk.log_excess_risk(problem.keys, problem.scores, problem.loss, p, alpha)
    gradient = risk.scaled_gradient(problem.keys, problem.scores, problem.loss, p)
    slope = np.exp(gradient.log_scale - log_size) * gradient.direction
    size, unit = float(np.linalg.norm(p)), axis / np.linalg.norm(axis)
    radial, tangential = float(slope @ p), size * (slope - (slope @ p) * p / size**2)
    # The objective log |L − L_α| is minimised to a tolerance of 1e-14, which leaves slopes of about its square root.
    room = 1e-4 * max(1.0, abs(float(log_size)))
    beside, within, outside = p @ unit < (1 - mu) * size * (1 + 1e-6), size < R * (1 - 1e-6), size > radius * (1 + 1e-6)
    if beside:
        outwards = p @ unit * p / size**2 - unit
        outwards /= np.linalg.norm(outwards)
        assert tangential @ outwards <= room
        tangential -= (tangential @ outwards) * outwards
    assert np.linalg.norm(tangential) <= room
    assert not within or radial >= -room
    assert not outside or radial <= room
    return [bool(beside), within, outside]


@pytest.mark.parametrize("d", [2, 3])
def test_the_path_is_a_stationary_point_of_its_cone(d: int) -> None:
    rng, met = np.random.default_rng(d), []
    for _ in range(8):
        problem = Problem(rng.normal(size=(2, 3, d)), rng.normal(size=(2, 3)))
        met.append(sides_of(problem, rng.normal(size=d), rng.integers(0, 3, size=2), R=20.0, mu=0.3, radius=0.5))
    assert np.any(met, axis=0).all()


@pytest.mark.parametrize("seed", [17, 33, 41])
def test_a_minimum_with_negative_excess_is_reached_from_a_positive_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, T = rng.integers(2, 6), rng.integers(3, 5)
    problem = Problem(rng.normal(size=(2, T, d)) * rng.choice([1, 4]), rng.normal(size=(2, T)))
    alpha = np.argsort(problem.scores, axis=1)[:, -1 - int(rng.integers(0, 2))]
    sides_of(problem, rng.normal(size=d), alpha, R=5.0, mu=float(rng.choice([0.01, 0.3, 0.9])), radius=1.0)
