"""Points p at which a conclusion "for every p" is checked: random ones, and those that a search makes worse.

m points are an array (m, d). They depend only on the seed of the case.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.problem import Problem

Violation = Callable[[Float64[np.ndarray, "k d"]], Float64[np.ndarray, "k"]]
"""A function from points, (m, d), to the amount by which a conclusion is violated at each point, (m,); larger is
worse."""

SMALLEST_RADIUS, LARGEST_RADIUS = 1e-3, 1e4
"""The least and the largest norm of random points, in units of 1/(size of the keys, ``Problem.key_scale``)."""


ENTRIES = 1 << 19
"""Approximate bound on n T d times the number of points, which limits time and memory."""
LEAST_POINTS = 10
"""Least number of points, however large the problem is."""


def affordable(problem: Problem, m: int, entries: int = ENTRIES) -> int:
    """Return m, or fewer points if n T d is large, so that time and memory stay bounded."""
    return min(m, max(LEAST_POINTS, entries // problem.keys.size))


def log_uniform(rng: np.random.Generator, low: float, high: float, size: int) -> Float64[np.ndarray, "m"]:
    """Draw numbers in [low, high] whose logarithm is uniform."""
    return np.asarray(np.exp(rng.uniform(np.log(low), np.log(high), size)))


def directions(rng: np.random.Generator, m: int, d: int) -> Float64[np.ndarray, "m d"]:
    """Draw m unit vectors, uniform on the sphere."""
    raw = rng.standard_normal((m, d))
    raw[np.all(raw == 0, axis=1)] = 1.0
    return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True))


def radii(rng: np.random.Generator, problem: Problem, m: int) -> Float64[np.ndarray, "m"]:
    """Draw m norms, log-uniform between :data:`SMALLEST_RADIUS` and :data:`LARGEST_RADIUS`, in their units."""
    return log_uniform(rng, SMALLEST_RADIUS, LARGEST_RADIUS, m) / problem.key_scale


def spread_points(rng: np.random.Generator, problem: Problem, m: int) -> Float64[np.ndarray, "m d"]:
    """Draw m points in uniform directions, with the norms of :func:`radii`."""
    return np.asarray(directions(rng, m, problem.d) * radii(rng, problem, m)[:, None])


def points_around(
    rng: np.random.Generator, q: Float64[np.ndarray, "d"], norms: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """Draw points of the given norms near the ray of q (half of them) and of −q, at angles of 1e-12 to 1."""
    m, d = len(norms), q.size
    tilt = log_uniform(rng, 1e-12, 1.0, m)[:, None] * directions(rng, m, d)
    raw = q / np.linalg.norm(q) + tilt
    raw *= (norms / np.linalg.norm(raw, axis=1))[:, None]
    raw[m // 2 :] *= -1
    return np.asarray(raw)


def with_margin(
    points: Float64[np.ndarray, "m d"],
    rows: Float64[np.ndarray, "m d"],
    margins: Float64[np.ndarray, "m"],
) -> Float64[np.ndarray, "m d"]:
    """Move each point p along the row of the same index until row·p is the given margin; a zero row moves no point."""
    size = np.sum(rows * rows, axis=1)
    missing = margins - np.sum(rows * points, axis=1)
    return np.asarray(points + np.where(size > 0, missing / np.where(size > 0, size, 1.0), 0.0)[:, None] * rows)


def near_boundaries(
    rng: np.random.Generator, problem: Problem, base: Float64[np.ndarray, "m d"]
) -> Float64[np.ndarray, "m d"]:
    """Move each point p of ``base`` until the logits of two random tokens of a random input nearly tie.

    The difference of the two logits becomes 0, ± a random number from 1e-12 to 1, or exactly ±1.
    """
    m = len(base)
    i = rng.integers(problem.n, size=m)
    t = rng.integers(problem.T, size=m)
    u = (t + 1 + rng.integers(problem.T - 1, size=m)) % problem.T
    kinds = rng.integers(3, size=m)
    sign = rng.choice([-1.0, 1.0], size=m)
    margins = sign * np.choose(kinds, [np.zeros(m), log_uniform(rng, 1e-12, 1.0, m), np.ones(m)])
    return with_margin(base, problem.keys[i, t] - problem.keys[i, u], margins)


def probe_points(
    rng: np.random.Generator,
    problem: Problem,
    q: Float64[np.ndarray, "d"] | None = None,
    *,
    m: int = 150,
) -> Float64[np.ndarray, "points d"]:
    """Return the origin and m random points: over all directions and norms, around ±q, and where logits nearly tie.

    The norms of points around ±q are log-uniform, for some in the units of :func:`radii`, for others in units of ‖q‖.
    """
    parts = 3 if q is None or not np.any(q) else 5
    sizes = [m // parts] * (parts - 1) + [m - m // parts * (parts - 1)]
    batches = [
        np.zeros((1, problem.d)),
        spread_points(rng, problem, sizes[0]),
        near_boundaries(rng, problem, spread_points(rng, problem, sizes[1])),
    ]
    if parts == 3 or q is None:
        batches.append(spread_points(rng, problem, sizes[2]))
    else:
        in_logits = float(np.linalg.norm(q)) * log_uniform(rng, 1e-2, 1e3, sizes[2])
        batches.append(points_around(rng, q, in_logits))
        batches.append(points_around(rng, q, radii(rng, problem, sizes[3])))
        tied = points_around(rng, q, float(np.linalg.norm(q)) * log_uniform(rng, 1e-1, 1e2, sizes[4]))
        batches.append(near_boundaries(rng, problem, tied))
    return np.concatenate(batches)


def climb(
    rng: np.random.Generator,
    points: Float64[np.ndarray, "m d"],
    violation: Violation,
    *,
    best: int = 6,
    tries: int = 16,
    rounds: int = 5,
) -> Float64[np.ndarray, "points d"]:
    """Return the points, followed by the ``best`` points of a random local search for large violations.

    The search starts from the given points with the largest violation. Each round makes ``tries`` random copies of
    each of its ``best`` points, and keeps the ``best`` of the old points and the copies. A copy is the point multiplied
    by a random number, or moved by 1e-8 to 1 times its norm, with equal probability.

    Args:
        rng: source of the random changes.
        points: the starting points, (m, d).
        violation: the function to be increased; NaN counts as the largest value.
        best: the number of points that a round keeps.
        tries: changes of each of these points in one round.
        rounds: the number of rounds.
    """
    worst = _best_points(points, violation, best)
    for _ in range(rounds):
        repeated = np.repeat(worst, tries, axis=0)
        k, d = repeated.shape
        norms = np.linalg.norm(repeated, axis=1, keepdims=True)
        sizes = log_uniform(rng, 1e-8, 1.0, k)[:, None] * np.where(norms > 0, norms, 1.0)
        moved = repeated + sizes * directions(rng, k, d)
        stretched = repeated * np.exp(rng.uniform(-1, 1, (k, 1)))
        moved = np.where(rng.integers(2, size=(k, 1)) == 0, moved, stretched)
        worst = _best_points(np.concatenate([worst, moved]), violation, best)
    return np.concatenate([points, worst])


def _best_points(
    points: Float64[np.ndarray, "m d"],
    violation: Violation,
    best: int,
) -> Float64[np.ndarray, "kept d"]:
    values = violation(points)
    order: Int64[np.ndarray, "m"] = np.argsort(np.where(np.isnan(values), -np.inf, -values), kind="stable")
    return np.asarray(points[order[:best]])
