"""The local regularization path of a cone, followed with what is under test, and points that it must not lie above.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 4, equation (66).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.paths.local_path import Excess, LocalPath, SignedLog, order
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance

PATH_SEEDS = tolerance(
    "path-seeds",
    "8 (d + 8) eps R B",
    "the logarithms of two excesses carry the rounding of their exponents, at points of norm R at the most",
)


@dataclass(frozen=True, eq=False)
class FollowedLocalPath:
    """argmin of L over C_{ε,R0}(q) ∩ {‖p‖ ≤ R}, at r radii.

    Attributes:
        problem, alpha, under_test: what it is a path of, L_α, and what followed it.
        axis: q̄.
        mu, radius: ε and R0.
        seeds: points that the search is given, (s, d).
        path: what came back.
        noise: the rounding of a logarithm of an excess at each radius, (r,).
        lowest: the name of the claim that it is no higher than the seeds.
    """

    problem: Problem
    alpha: Int64[np.ndarray, "n"]
    under_test: Implementation
    axis: Float64[np.ndarray, "d"]
    mu: float
    radius: float
    seeds: Float64[np.ndarray, "s d"]
    path: LocalPath
    noise: Float64[np.ndarray, "r"]
    lowest: str

    @classmethod
    def of(
        cls,
        problem: Problem,
        alpha: Int64[np.ndarray, "n"],
        under_test: Implementation,
        axis: Float64[np.ndarray, "d"],
        mu: float,
        radius: float,
        norms: Float64[np.ndarray, "r"],
        seeds: Float64[np.ndarray, "s d"],
        reach: float,
        seed: int,
        lowest: str,
    ) -> FollowedLocalPath:
        """To these norms; ``reach`` is B = max ‖k_iα_i − k_it‖."""

        def gradient(p: Float64[np.ndarray, "*b d"]) -> ScaledGradient:
            return under_test.scaled_gradient(problem.keys, problem.scores, problem.loss, p)

        path = under_test.local_path(
            problem,
            axis,
            alpha,
            norms,
            mu=mu,
            radius=radius,
            starts=seeds,
            seed=seed,
            excess=signed_excess(problem, alpha, under_test),
            gradient=gradient,
        )
        noise = 8 * (problem.d + 8) * EPS * path.norms * reach
        return cls(problem, alpha, under_test, axis, mu, radius, seeds, path, noise, lowest)

    def premises(self) -> Iterator[Claim]:
        """The path is no higher than its seeds; and whether the optimiser has found better points by itself.

        Nothing where the cone is too narrow for any of them.
        """
        sizes = norm(self.seeds, axis=1)
        inside = (self.seeds @ self.axis >= (1 - self.mu) * sizes) & (sizes >= self.radius)
        known = inside[:, None] & (sizes[:, None] <= self.path.norms)
        radii = np.flatnonzero(known.any(axis=0))
        if radii.size == 0:
            return
        excess = signed_excess(self.problem, self.alpha, self.under_test)
        both = zip(excess(self.seeds), excess(self.path.points), strict=True)
        ranks = order(*(np.concatenate(parts) for parts in both))
        of_seeds = np.array([ranks[: len(self.seeds)][known[:, k]].min() for k in radii])
        of_path, noise = ranks[len(self.seeds) :][radii], self.noise[radii]
        claim = at_least(self.lowest, Form.LIMIT, of_seeds, of_path, rounding=noise, why=PATH_SEEDS, points="radius")
        better = int(np.sum(of_seeds - of_path > noise))
        said = "at every radius" if better == radii.size else "at some radii" if better else "at no radius"
        yield replace(claim, branch=f"the optimiser improved on its seeds {said}")

    @cached_property
    def grows(self) -> bool:
        """Whether its norm is about as large as it may be at the end."""
        return bool(self.path.sizes[-1] > 0.5 * self.path.norms[-1])


def signed_excess(problem: Problem, alpha: Int64[np.ndarray, "n"], under_test: Implementation) -> Excess:
    """p ↦ sign and logarithm of L(p) − L_α under test, (*b,) for points (*b, d)."""

    def excess(p: Float64[np.ndarray, "*b d"]) -> SignedLog:
        sign, size = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, p, alpha)
        return np.asarray(sign, dtype=np.float64), np.asarray(size, dtype=np.float64)

    return excess
