"""The local regularization path that the implementation under test computes in a cone, and the claims about it.

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
from reference_attention.paths.local_path import Excess, LocalPath, SignedLog, local_path, order
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, log_excess_risk, scaled_gradient
from theorems.bounded import exact, with_rounding
from theorems.core.claim import Claim, Form, NotANumber, Refuted, at_least
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance

PATH_SEEDS = tolerance(
    "path-seeds",
    "8 (d + 8) eps R B",
    "the logarithms of the two compared excess risks have the rounding errors of exponents at points of norm at most R",
)


@dataclass(frozen=True, eq=False)
class LocalPathUnderTest:
    """The path R ↦ argmin L over C_{ε,R0}(q) ∩ {‖p‖ ≤ R} at r radii, as the implementation under test returned it.

    C_{ε,R0}(q) is the cone of the points p with 1 − cos(p, q) ≤ ε and ‖p‖ ≥ R0.

    Attributes:
        problem: keys, scores, loss.
        alpha: the tokens α of the reference risk L_α, (n,).
        under_test: the implementation that computed the path.
        axis: the axis q̄ of the cone, a unit vector, (d,).
        mu, radius: the width ε and the inner radius R0 of the cone.
        norms: the requested radii R, (r,).
        seeds: the points from which the search for the path starts, (s, d).
        path: the path that was returned.
        noise: a bound of the rounding error of log |L − L_α| at each radius, (r,).
        in_cone: the name of the claim that the path lies in the cone, with norms between R0 and R.
        lowest: the name of the claim that the risk on the path is no higher than at the seeds.
    """

    problem: Problem
    alpha: Int64[np.ndarray, "n"]
    under_test: Implementation
    axis: Float64[np.ndarray, "d"]
    mu: float
    radius: float
    norms: Float64[np.ndarray, "r"]
    seeds: Float64[np.ndarray, "s d"]
    path: LocalPath
    noise: Float64[np.ndarray, "r"]
    in_cone: str
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
        in_cone: str,
        lowest: str,
    ) -> LocalPathUnderTest:
        """Compute the path at the increasing radii ``norms``, from the points ``seeds``, in a cone around ``axis``.

        The cone consists of the points p with ‖p‖ ≥ ``radius`` and 1 − cos(p, ``axis``) ≤ ``mu``. ``reach`` is the
        largest ‖k_iα_i − k_it‖, ``seed`` the seed of the search; ``in_cone`` and ``lowest`` are names of claims.

        Raises:
            Refuted: the returned path does not have one finite point at each radius.
        """

        def gradient(p: Float64[np.ndarray, "*b d"]) -> ScaledGradient:
            return under_test[scaled_gradient](problem.keys, problem.scores, problem.loss, p)

        path = under_test[local_path](
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
        if path.points.shape != (len(norms), problem.d) or not np.array_equal(path.norms, norms):
            raise Refuted(in_cone, f"points have the shape {path.points.shape}, radii are {path.norms}", Form.EXACT)
        if not np.isfinite(path.points).all():
            raise NotANumber(in_cone, "a point of the path is not finite", Form.EXACT)
        noise = 8 * (problem.d + 8) * EPS * norms * reach
        return cls(problem, alpha, under_test, axis, mu, radius, norms, seeds, path, noise, in_cone, lowest)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the path lies in the cone and has no higher risk than its seeds.

        The claim about the risk states, as its branch, whether the optimiser found points of lower risk than the seeds
        at every radius, at some radii or at none. This claim is left out where the cone contains no seed.
        """
        yield self._lies_in_the_cone()
        sizes = norm(self.seeds, axis=1)
        inside = (self.seeds @ self.axis >= (1 - self.mu) * sizes) & (sizes >= self.radius)
        comparable = inside[:, None] & (sizes[:, None] <= self.norms)
        radii = np.flatnonzero(comparable.any(axis=0))
        if radii.size == 0:
            return
        excess = signed_excess(self.problem, self.alpha, self.under_test)
        paired_excesses = zip(excess(self.seeds), excess(self.path.points), strict=True)
        ranks = order(*(np.concatenate(parts) for parts in paired_excesses))
        of_seeds = np.array([ranks[: len(self.seeds)][comparable[:, k]].min() for k in radii])
        of_path, noise = ranks[len(self.seeds) :][radii], self.noise[radii]
        claim = at_least(self.lowest, Form.LIMIT, of_seeds, of_path, rounding=noise, why=PATH_SEEDS, points="radius")
        better = int(np.sum(of_seeds - of_path > noise))
        share = "at every radius" if better == radii.size else "at some radii" if better else "at no radius"
        yield replace(claim, branch=f"the optimiser improved on its seeds {share}")

    def _lies_in_the_cone(self) -> Claim:
        """Return the claim R0 ≤ ‖p̄(R)‖ ≤ R and ‖p̄(R)/‖p̄(R)‖ − q̄‖ ≤ √(2ε), up to the rounding of a boundary point."""
        points, axis = exact(self.path.points), with_rounding(self.axis)
        size = norm(points, axis=1)
        distance = norm(points / size[:, None] - axis / norm(axis), axis=1)
        room = 64 * self.problem.d * EPS
        across = np.sqrt(2 * self.mu) * (1 + 1e-6) + room
        slacks = np.stack([across - distance, self.norms * (1 + room) - size, size - self.radius * (1 - room)])
        scale = np.stack([np.full(len(self.norms), across), self.norms, np.full(len(self.norms), self.radius)])
        return at_least(self.in_cone, Form.EXACT, slacks, 0.0, scale=scale, points="radius")

    @cached_property
    def grows(self) -> bool:
        """Return whether the last point of the path, at the largest radius R, has a norm above R/2."""
        return bool(self.path.sizes[-1] > 0.5 * self.norms[-1])


def signed_excess(problem: Problem, alpha: Int64[np.ndarray, "n"], under_test: Implementation) -> Excess:
    """Return the function that maps points p, (*b, d), to sign and logarithm of L(p) − L_α under test, (*b,) each."""

    def excess(p: Float64[np.ndarray, "*b d"]) -> SignedLog:
        sign, size = under_test[log_excess_risk](problem.keys, problem.scores, problem.loss, p, alpha)
        return np.asarray(sign, dtype=np.float64), np.asarray(size, dtype=np.float64)

    return excess
