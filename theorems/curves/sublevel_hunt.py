"""A search in the sublevel set {‖p‖ ≤ R, L(p) ≤ L(R p̄_mm)} for points that violate Theorem 1.

Everything is computed in batches over r radii and b directions. A point counts as inside if the log excess risk under
test, log(L − L_opt), is at most that of R p̄_mm. Points are found by bisection along rays, so they lie on the boundary
of the set, where the cosine with p_mm and the margin are smallest. Then the rays are turned towards the points of
smallest cosine or margin. Lengths are in units of ‖p_mm‖.
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
"""The approximate number of floats in a batch of points."""

Inside = Callable[[Float64[np.ndarray, "r b d"]], Bool[np.ndarray, "r b"]]

BISECTIONS = 26
"""The number of halvings of an interval of log s, of length 41, after which s has a relative error of 1e-6."""


def boundary(
    inside: Inside,
    along: Callable[[Float64[np.ndarray, "r b"]], Float64[np.ndarray, "r b d"]],
    low: Float64[np.ndarray, "r b"],
    high: Float64[np.ndarray, "r b"],
) -> tuple[Float64[np.ndarray, "r b d"], Bool[np.ndarray, "r b"], Float64[np.ndarray, "r b"]]:
    """Find the last point inside the set on each ray s ↦ ``along(s)``, by bisection of log s from ``low`` to ``high``.

    Returns:
        The points, (r, b, d), a mask of the rays on which a tried point was inside, and the numbers s, (r, b).
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
    """Draw unit vectors orthogonal to p_mm: random, orthogonal to the neighbours' rows, ± single rows, ± ``centre``."""
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
    """Return the points ray + origin + s u, scaled to the norm of the point ``ray`` of the ray of p_mm."""
    q = ray[:, None] + (origins + s[..., None] * u) @ basis.T
    return np.asarray(q * (np.linalg.norm(ray, axis=-1)[:, None] / np.linalg.norm(q, axis=-1))[..., None])


def inwards(s: Float64[np.ndarray, "r b"], outer: Float64[np.ndarray, "r b d"]) -> Float64[np.ndarray, "r b d"]:
    """Return the points (1 − s) ``outer``; on a ray from 0, the margin is least at the first point inside the set."""
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
    """Return batches of points with a small margin or cosine with p_mm, and masks of those inside the sublevel set.

    All lengths are in units of ‖p_mm‖.

    Args:
        inside: the function that returns a mask of the points inside the set.
        direction: the unit vector p̄_mm, (d,).
        basis: an orthonormal basis of the orthogonal complement of p̄_mm, (d, e).
        rows: the rows ĝ_j of :class:`.Constraints`, (m, d).
        near: a mask of the rows of the SVM-neighbours, (m,).
        rhos: the radii, (r,).
        centres: for each radius the tangential part of a point inside the set, the origin of every other ray, (r, e).
        size: the approximate number of rays per radius.
        rounds: the number of times that rays are turned towards the points of smallest cosine or margin.
        rng: the random generator of points and directions.
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
    """Find points of small margin or cosine with p_mm in the sets ‖p‖ ≤ R, L(p) ≤ L(R p̄_mm), R = ρ‖p_mm‖.

    Returns:
        The points, among them R p̄_mm for each radius, and the index of the radius of each point.
    """
    direction, tangents, rows, frame = svm.direction, basis, constraints.rows, None
    if basis.shape[1] < problem.d - 1:
        # If d is large and there are few rows, use coordinates along p_mm and orthogonal to it within the span of the
        # rows; all directions outside this span are equivalent.
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
