"""The minimisers p̄(R) = argmin of L over ‖p‖ ≤ R that the optimiser under test computes.

The function ``regularization_path`` returns such minimisers to users. Here such minimisers are compared with the path
that :mod:`theorems.curves.followed_path` computes by Newton's method with the gradient under test (the *followed
path*).

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.paths.regularization_path import Path, regularization_path
from reference_attention.span import tangential
from theorems.bounded import exact
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict, at_least
from theorems.core.claim_name import premise
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.tolerances import EXACT, tolerance
from theorems.curves.followed_path import Followed
from theorems.curves.missing_points import missing_claim

PATH_VALUE = tolerance(
    "path-value",
    "the errors of both log-excesses, plus 64 eps (1 + |log excess| + κR)",
    "of minima whose risks differ by no more than the rounding of a logit, the optimiser returns the first",
)

CONVERGED = "the optimiser reports convergence"
ON_THE_SPHERE = premise("minimised-path-is-on-the-sphere")
IS_LOWEST = premise("minimised-path-is-lowest", when=CONVERGED)
OPTIMISER_PREMISES = (ON_THE_SPHERE, IS_LOWEST)
"""The names of the premises that the optimiser's points are minimisers."""

RADII = 2
"""The number of radii at which the optimiser is run: the first and the middle radius of the path that is followed."""


@dataclass(frozen=True, eq=False)
class OptimiserPath:
    """The minimisers that the optimiser under test returned at some radii at which the path was followed, too.

    Attributes:
        followed_to: the points of the followed path (:mod:`theorems.curves.followed_path`) at these radii.
        path: the path that the optimiser returned.
        under_test: the implementation whose optimiser returned the path.
    """

    followed_to: list[Followed]
    path: Path
    under_test: Implementation

    @classmethod
    def of(cls, followed: list[Followed], under_test: Implementation) -> OptimiserPath:
        """Run the optimiser at the first and the middle radius of the followed path.

        Raises:
            Undecided: the path could not be followed to any radius.
        """
        usable = [f for f in followed if not f.why_undecided]
        if not usable:
            raise Undecided(ON_THE_SPHERE, followed[0].why_undecided, Form.EXACT)
        ends = [usable[0], usable[len(usable) // 2]][: min(RADII, len(usable))]
        return cls(ends, cls._path_of(ends, under_test), under_test)

    @staticmethod
    def _path_of(followed: list[Followed], implementation: Implementation) -> Path:
        """Return the implementation's regularization path at the radii of the followed points."""
        problem, svm = followed[0].sphere.problem, followed[0].sphere.svm
        radii = np.array([f.rho * svm.norm for f in followed])
        return implementation[regularization_path](problem, radii, max_margin=svm)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the minimisers lie on spheres ‖p‖ = R, and that no known point there has a lower risk.

        The known points are R p̄_mm and the point of the followed path.

        Raises:
            Ended: a minimiser is not on its sphere, or is missing although the reference finds a minimiser.
            Undecided: the optimiser does not report convergence at any radius.
        """
        radii, path = self._radii, self.path
        if path.points.shape != (len(radii), self.followed_to[0].sphere.problem.d) or not np.array_equal(
            path.norms, radii
        ):
            why = f"the points have the shape {path.points.shape}, and the radii are {path.norms} instead of {radii}"
            yield Claim(ON_THE_SPHERE, Form.EXACT, -1.0, 0.0, EXACT, why)
            raise Ended(ON_THE_SPHERE)
        if not np.isfinite(path.points).all():
            raise NotANumber(ON_THE_SPHERE, "a point of the path is not finite", Form.EXACT)
        if self.under_test.replaces(regularization_path):
            missing = missing_claim(
                ON_THE_SPHERE, path.reasons, lambda: self._path_of(self.followed_to, REFERENCE).reasons
            )
            if missing is not None and missing.verdict is Verdict.FALSIFIED:
                yield missing
                raise Ended(ON_THE_SPHERE)
        if not self.good.size:
            why = f"the optimiser found no minimum: {path.reasons[0]} at R = {radii[0]:.3g}"
            raise Undecided(ON_THE_SPHERE, why, Form.EXACT, not_found=True)
        # Nothing is claimed at radii where the optimiser reports no convergence; the report counts them.
        branch = f"a minimum found at {self.good.size} of {len(radii)} radii"
        radii = radii[self.good]
        deviation = np.abs(norm(exact(self.points), axis=1) - radii)
        # The optimiser computes a point as h · p̄_mm + offset, with a square root h.
        allowed = exact(np.zeros(len(radii))).widen(8 * EPS * radii)
        on = at_least(ON_THE_SPHERE, Form.EXACT, allowed, deviation, scale=radii, points="radius")
        yield replace(on, branch=branch)
        if on.verdict is Verdict.FALSIFIED:
            raise Ended(ON_THE_SPHERE)
        yield self._lowest()

    @cached_property
    def good(self) -> Int64[np.ndarray, "g"]:
        """The indices of the radii at which the optimiser reports convergence, (g,)."""
        return np.flatnonzero(self.path.converged)

    @property
    def at(self) -> list[Followed]:
        """The points of the followed path at the radii at which the optimiser reports convergence."""
        return [self.followed_to[k] for k in self.good]

    @property
    def points(self) -> Float64[np.ndarray, "g d"]:
        """The optimiser's minimisers at the radii at which it reports convergence, (g, d)."""
        return self.path.points[self.good]

    @property
    def offsets(self) -> Float64[np.ndarray, "two g e"]:
        """The minimisers' offsets from the ray of p_mm, in units of ‖p_mm‖: as reported, and computed from points."""
        sphere = self.followed_to[0].sphere
        reported = tangential(self.path.offsets[self.good], sphere.svm.direction, sphere.basis) / sphere.svm.norm
        return np.stack([reported, [sphere.coordinates(p) for p in self.points]])

    @property
    def predicted_offsets(self) -> Float64[np.ndarray, "g e"]:
        """The offsets that :mod:`theorems.curves.reduced_program` predicts at the radii with convergence, (g, e)."""
        return np.array([f.predicted for f in self.at])

    @property
    def rounding(self) -> Float64[np.ndarray, "g"]:
        """Bounds of the rounding error of the difference between a minimiser's offset and the predicted one, (g,)."""
        return np.array([f.rounding for f in self.at])

    @property
    def _radii(self) -> Float64[np.ndarray, "r"]:
        """Return the radii R of the followed points, (r,)."""
        return np.array([f.rho * f.sphere.svm.norm for f in self.followed_to])

    def _lowest(self) -> Claim:
        """Return the claim that a minimiser has at most the risk of R p̄_mm and of the point of the followed path."""
        others: list[Any] = []
        minimisers: list[Any] = []
        for f, p in zip(self.at, self.points, strict=True):
            problem, svm = f.sphere.problem, f.sphere.svm
            ray = f.rho * svm.norm * svm.direction
            excesses: Any = f.sphere.log_excess_of(exact(np.stack([p, ray, f.sphere.point(f.followed)])), IS_LOWEST)
            noise = 64 * EPS * (1 + np.abs(excesses.value[0]) + problem.key_scale * f.rho * svm.norm)
            others.append(excesses[1:])
            minimisers.append(excesses[[0, 0]].widen(noise))
        left, right = np.concatenate(others), np.concatenate(minimisers)
        return at_least(IS_LOWEST, Form.LIMIT, left, right, why=PATH_VALUE, points="competitor")
