"""What Theorem 4 says about the local regularization path itself, followed to 10⁴ margin units and beyond R_q.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 4, equation (66).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.paths.local_path import LocalPath, SignedLog, order
from reference_attention.risk import ScaledGradient
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.token_selection.directions.directional_risk import to_units
from theorems.token_selection.directions.excluded_neighbourhood import Beaten, Cone, Region

PATH_NORM = tolerance(
    "path-norm",
    "8 (d + 8) eps B (1 + 1/(μ + Bδ))",
    "the points compared carry the rounding of their exponents, (d + 8) eps R B, which moves the norm at"
    " which the risks"
    " are equal by as much over the margin there",
)

PATH_SEEDS = tolerance(
    "path-seeds",
    "8 (d + 8) eps R B",
    "the logarithms of two excesses carry the rounding of their exponents, at points of norm R at the most",
)

PATH_CLAIMS = {
    "path-leaves-or-stays-bounded": "the given cone has a radius that rounding leaves decidable",
    "narrow-path-leaves-or-stays-bounded": "the narrow cone has a radius that rounding leaves decidable",
    "path-is-no-higher-than-its-seeds": "the given cone has a radius that rounding leaves decidable",
    "narrow-path-is-no-higher-than-its-seeds": "the narrow cone has a radius that rounding leaves decidable",
    "narrow-path-norm-grows": "the same, in case (A1) or (B)",
    "narrow-path-norm-bounded": "the same, in case (A2)",
}
"""The claims of :func:`path_claims`, and when they are made."""
PATH_RADII = (1e1, 1e2, 1e3, 1e4)
"""In margin units: multiples of 1/θ(x*)."""
BEYOND = (2.0,)
"""Further radii, in units of R_q."""
FARTHEST = 1e9
"""No radius beyond this many margin units."""


def follow_local_path(
    region: Region, cone: Cone, under_test: Implementation, seed: int
) -> tuple[LocalPath, Float64[np.ndarray, "s d"]] | None:
    """The local path in that cone and the points that it was seeded with; None if rounding hides what the theorem
    compares at all radii.
    """
    problem, costs = region.costs.problem, region.costs
    unit = 1 / region.better.margin
    few = PATH_RADII if cone is region.narrow else PATH_RADII[1::2]
    wanted = [*(unit * x for x in few), *(max(region.radius, cone.radius) * x for x in BEYOND)]
    inner = max(cone.radius, region.first)
    norms = np.array([R for R in wanted if inner * 1.5 < R < FARTHEST * unit])
    norms = norms[decidable(region, norms)]
    if norms.size == 0:
        return None

    def excess(p: Float64[np.ndarray, "*b d"]) -> SignedLog:
        sign, size = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, p, costs.alpha)
        return np.asarray(sign, dtype=np.float64), np.asarray(size, dtype=np.float64)

    def gradient(p: Float64[np.ndarray, "*b d"]) -> ScaledGradient:
        return under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, p)

    starts = np.array([region.better.unit * size for size in (*norms, region.first) if size > 0])
    path = under_test.local_path(
        problem,
        region.found.unit,
        costs.alpha,
        norms,
        mu=cone.mu,
        radius=cone.radius,
        starts=starts,
        seed=seed,
        excess=excess,
        gradient=gradient,
    )
    return path, starts


def decidable(region: Region, norms: Float64[np.ndarray, "r"]) -> np.ndarray:
    """Where rounding of an exponent, (d + 8) eps R B, is far below what the theorem compares (or below R_q)."""
    noise = 8 * (region.costs.problem.d + 8) * EPS * norms * region.costs.reach
    if isinstance(region, Beaten):
        return np.asarray((norms <= region.radius) | (noise < region.log_lead(norms)))
    return np.asarray(noise < 1.0)


def path_claims(region: Region, cone: Cone, under_test: Implementation, seed: int) -> Iterator[Claim]:
    """The path in the given cone and in the narrow one: bounded, or δ away from q."""
    for name, one in (("path", cone), ("narrow-path", region.narrow)):
        found = follow_local_path(region, one, under_test, seed)
        if found is None:
            continue
        path, seeds = found
        size = norm(exact(path.points), axis=1)
        apart = norm(path.points / size[:, None] - to_units(region.found.unit), axis=1)
        leaves_or_bounded = np.maximum(apart / region.delta, region.radius / size)
        claim = at_least(f"{name}-leaves-or-stays-bounded", Form.LIMIT, leaves_or_bounded, 1.0, points="radius")
        yield _describe_end(claim, path, apart.value)
        yield from _against_seeds(name, region, one, under_test, path, seeds)
        if one is not region.narrow:
            continue
        if isinstance(region, Beaten):
            slack = 8 * (region.found.q.size + 8) * EPS * path.norms * region.costs.reach * (1 + 1 / region.near)
            yield at_least(
                "narrow-path-norm-grows",
                Form.LIMIT,
                path.sizes / path.norms,
                region.norm_at_least(path.norms) / path.norms,
                rounding=slack / path.norms + 8 * EPS,
                why=PATH_NORM,
                points="radius",
            )
        else:
            yield at_least("narrow-path-norm-bounded", Form.LIMIT, region.radius, size, points="radius")


def _against_seeds(
    name: str,
    region: Region,
    cone: Cone,
    under_test: Implementation,
    path: LocalPath,
    seeds: Float64[np.ndarray, "s d"],
) -> Iterator[Claim]:
    """The path is no higher than the points of the better direction that it was seeded with; and whether the optimiser
    has found better ones by itself. Nothing where the cone is too narrow for any of them.
    """
    problem, costs = region.costs.problem, region.costs
    sizes = norm(seeds, axis=1)
    inside = (seeds @ region.found.unit >= (1 - cone.mu) * sizes) & (sizes >= cone.radius)

    def excess(p: Float64[np.ndarray, "*b d"]) -> SignedLog:
        sign, size = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, p, costs.alpha)
        return np.asarray(sign), np.asarray(size)

    known = inside[:, None] & (sizes[:, None] <= path.norms)
    radii = np.flatnonzero(known.any(axis=0))
    if radii.size == 0:
        return
    ranks = order(*(np.concatenate(both) for both in zip(excess(seeds), excess(path.points), strict=True)))
    lowest = np.array([ranks[: len(seeds)][known[:, k]].min() for k in radii])
    noise = 8 * (problem.d + 8) * EPS * path.norms[radii] * costs.reach
    claim = at_least(
        f"{name}-is-no-higher-than-its-seeds",
        Form.LIMIT,
        lowest,
        ranks[len(seeds) :][radii],
        rounding=noise,
        why=PATH_SEEDS,
        points="radius",
    )
    better = int(np.sum(lowest - ranks[len(seeds) :][radii] > noise))
    said = "at every radius" if better == radii.size else "at some radii" if better else "at no radius"
    yield replace(claim, branch=f"the optimiser improved on its seeds {said}")


def _describe_end(claim: Claim, path: LocalPath, apart: Float64[np.ndarray, "r"]) -> Claim:
    """The claim with the end of the path in words, and which branch occurred."""
    last = f"‖p̄(R)‖ = {path.sizes[-1]:.6g} and ‖p̄(R)/‖p̄(R)‖ − q‖ = {apart[-1]:.3g} at R = {path.norms[-1]:.6g}"
    grows = path.sizes[-1] > 0.5 * path.norms[-1]
    branch = "the norm grows, the direction stays away" if grows else "the norm stays bounded"
    return replace(claim, detail=f"{branch}: {last}", branch=branch) if math.isfinite(claim.slack) else claim
