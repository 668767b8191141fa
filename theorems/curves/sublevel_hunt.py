"""Search in the sublevel set {‖p‖ ≤ R, L(p) ≤ L(R p̄_mm)} for points that violate Theorem 1.

Everything is batched over radii and directions. A point counts as inside if the log-excess risk under test is at most
that of R p̄_mm. Points are found by bisection along rays, so they lie on the boundary of the set, where cos and margin
are smallest. Then the rays are turned towards the points of smallest cos or margin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.implementation import Implementation
from theorems.curves.constraints import Constraints, log_excess
from theorems.curves.reduced_program import Reduced

HUNT_BUDGET = 150_000
"""Approximate number of floats in a batch of points."""

Inside = Callable[[Float64[np.ndarray, "r b d"]], Bool[np.ndarray, "r b"]]

BISECTIONS = 26
"""The number of halvings of an interval of log s of length 41, which leave a relative error of 1e-6 in s."""


def boundary(
    inside: Inside,
    along: Callable[[Float64[np.ndarray, "r b"]], Float64[np.ndarray, "r b d"]],
    low: Float64[np.ndarray, "r b"],
    high: Float64[np.ndarray, "r b"],
) -> tuple[Float64[np.ndarray, "r b d"], Bool[np.ndarray, "r b"], Float64[np.ndarray, "r b"]]:
    """Find the last point ``along(s)`` inside the set by bisection of log s between ``low`` and ``high``.

    Returns:
        The points, a mask of the rays on which a point was inside, and the numbers s.
    """
    log_low, log_high = np.log(low), np.log(high)
    best, best_s = along(low), np.array(low)
    ever_inside = inside(best)
    for _ in range(BISECTIONS):
        middle = (log_low + log_high) / 2
        s = np.exp(middle)
        points = along(s)
        good = inside(points)
        best = np.where(good[..., None], points, best)
        best_s = np.where(good, s, best_s)
        ever_inside |= good
        log_low, log_high = np.where(good, middle, log_low), np.where(good, log_high, middle)
    return best, ever_inside, best_s


def special_directions(
    rows: Float64[np.ndarray, "m e"],
    near: Bool[np.ndarray, "m"],
    centre: Float64[np.ndarray, "e"],
    size: int,
    rng: np.random.Generator,
) -> Float64[np.ndarray, "b e"]:
    """Draw unit tangents: random, random and orthogonal to the neighbours' rows, ± single rows, and ± the centre."""
    e = rows.shape[1]
    tries = [rng.normal(size=(max(4, size // 3), e))]
    if near.any():
        _, values, vt = np.linalg.svd(rows[near], full_matrices=True)
        flat = vt[int((values > 1e-9 * max(float(values.max(initial=0.0)), 1e-300)).sum()) :]
        if len(flat):
            tries.append(rng.normal(size=(max(4, size // 3), len(flat))) @ flat)
    order = rng.permutation(len(rows))[: max(2, size // 6)]
    tries += [-rows[order], rows[order], centre[None], -centre[None]]
    stacked = np.concatenate(tries)
    norms = np.linalg.norm(stacked, axis=1)
    return np.asarray(stacked[norms > 0] / norms[norms > 0, None])


def on_sphere(
    s: Float64[np.ndarray, "r b"],
    u: Float64[np.ndarray, "r b e"],
    origins: Float64[np.ndarray, "r b e"],
    ray: Float64[np.ndarray, "r d"],
    basis: Float64[np.ndarray, "d e"],
) -> Float64[np.ndarray, "r b d"]:
    """Return the points ray + origin + s u, scaled to the spheres through ``ray``."""
    q = ray[:, None] + (origins + s[..., None] * u) @ basis.T
    return np.asarray(q * (np.linalg.norm(ray, axis=-1)[:, None] / np.linalg.norm(q, axis=-1))[..., None])


def inwards(s: Float64[np.ndarray, "r b"], outer: Float64[np.ndarray, "r b d"]) -> Float64[np.ndarray, "r b d"]:
    """Return the points (1 − s) ``outer``; on a ray from 0 the margin is smallest where the ray enters the set."""
    return np.asarray(outer * (1 - s)[..., None])


def hunt(
    inside: Inside,
    direction: Float64[np.ndarray, "d"],
    basis: Float64[np.ndarray, "d e"],
    rows: Float64[np.ndarray, "m d"],
    near: Bool[np.ndarray, "m"],
    rhos: Float64[np.ndarray, "r"],
    centres: Float64[np.ndarray, "r e"],
    *,
    size: int,
    rounds: int,
    rng: np.random.Generator,
) -> list[tuple[Float64[np.ndarray, "r b d"], Bool[np.ndarray, "r b"]]]:
    """Return batches of points of little margin or correlation, each with a mask of the points inside the set.

    All lengths are in units of ‖p_mm‖.

    Args:
        inside: the function that returns a mask of the points inside the set.
        direction: p̄_mm.
        basis: a basis of the complement of p̄_mm.
        rows: the constraints ĝ_j.
        near: a mask of the rows of SVM-neighbours.
        rhos: radii.
        centres: tangential parts of interior points, the origins of every other ray.
        size: the approximate number of rays per radius.
        rounds: number of times that rays are turned towards the worst points.
        rng: source of points and directions.
    """
    d, r = direction.size, rhos.size
    ray = rhos[:, None] * direction
    anywhere = rng.normal(size=(r, size, d))
    sizes = rhos[:, None] * rng.uniform(0, 1, (r, size)) ** (1 / d)
    anywhere *= (sizes / np.linalg.norm(anywhere, axis=-1))[..., None]
    radial = ray[:, None] * np.linspace(-1, 1, 9)[:, None]
    batches = [(points, inside(points)) for points in (anywhere, radial)]
    if d == 1:
        return batches
    tangents = [special_directions(rows @ basis, near, c, size, rng) for c in centres]
    count = min(len(t) for t in tangents)
    u = np.stack([t[:count] for t in tangents])
    even = np.arange(count) % 2 == 0
    origins = np.where(even[None, :, None], centres[:, None], 0.0)
    limits = np.tile(rhos[:, None], (1, count))
    for _ in range(1 + rounds):
        along = partial(on_sphere, u=u, origins=origins, ray=ray, basis=basis)
        edge, good, s = boundary(inside, along, limits * 1e-12, limits * 1e6)
        batches.append((edge, good))
        for outer in (along(s / 2), edge):
            deepest, deep, _ = boundary(
                inside, partial(inwards, outer=outer), np.full((r, count), 1e-14), np.ones((r, count))
            )
            batches.append((deepest, deep))
        cosine = np.where(good, edge @ direction, np.inf)
        margin = np.where(deep, np.min(deepest @ rows.T, axis=-1), np.inf)
        worst = [np.take_along_axis(u, np.argmin(x, axis=1)[:, None, None], axis=1) for x in (cosine, margin)]
        noise = rng.normal(size=u.shape) * (0.5 / np.sqrt(d)) * rng.uniform(0, 1, (r, count, 1))
        bent = np.where((np.arange(count) % 4 < 2)[None, :, None], worst[0], worst[1]) + noise
        u = bent / np.linalg.norm(bent, axis=-1, keepdims=True)
    return batches


def sublevel_points(
    problem: Problem,
    under_test: Implementation,
    svm: MaxMargin,
    constraints: Constraints,
    basis: Float64[np.ndarray, "d e"],
    rhos: Float64[np.ndarray, "r"],
    rng: np.random.Generator,
) -> tuple[Float64[np.ndarray, "m d"], Int64[np.ndarray, "m"]]:
    """Find points with little margin or correlation in the sets ‖p‖ ≤ R, L(p) ≤ L(R p̄_mm), R = ρ‖p_mm‖.

    Returns:
        The points, R p̄_mm among them, and the index of the radius of each.
    """
    direction, tangents, rows, frame = svm.direction, basis, constraints.rows, None
    if basis.shape[1] < problem.d - 1:
        # For few inputs in a large space, use coordinates along p_mm and across it within the span of rows; other
        # directions are equivalent.
        frame = np.column_stack([svm.direction, basis])
        direction, tangents, rows = np.eye(len(frame.T))[0], np.eye(len(frame.T))[:, 1:], rows @ frame
        keys = (problem.keys - problem.keys[:, :1]) @ frame
        problem = Problem(keys, problem.scores, problem.loss)
    ray = rhos[:, None] * direction
    edge = log_excess(under_test, problem, svm.norm * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        excess = log_excess(under_test, problem, svm.norm * points)
        short = np.linalg.norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (excess <= edge[:, None]))

    flat = np.zeros(basis.shape[1])
    centres = np.array([Reduced.at(constraints, basis, rho).newton(flat, 60)[0] for rho in rhos])
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * problem.keys.size), 6, 32))
    batches = hunt(
        inside,
        direction,
        tangents,
        rows,
        constraints.neighbours,
        rhos,
        centres,
        size=size,
        rounds=2,
        rng=rng,
    )
    batches.append((ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_)))
    points = svm.norm * np.concatenate([batch[good] for batch, good in batches])
    if frame is not None:
        points = points @ frame.T
    return points, np.concatenate([np.nonzero(good)[0] for _, good in batches])
