"""The regularization path at increasing radii: predicted from the SVM, and followed with the implementation under test.

The notation is that of :mod:`theorems.curves.reduced_program`: F_ρ(y) is the logarithm of the excess risk, up to a
constant, as a function of the *tangential part* y of a point, its part orthogonal to p̄_mm, at the radius ρ in units of
‖p_mm‖.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import exact
from theorems.core.claim import Claim, Ended, Form, Undecided, at_least, undecided_claim
from theorems.core.claim_name import premise
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import Constraints
from theorems.curves.reduced_program import Reduced, tangent_span
from theorems.curves.sphere import Sphere

PATH_ROUNDING = tolerance(
    "path-rounding",
    "2 (ε Σ_j w_j |H⁻¹(e_j − ē)| + m eps Σ_j w_j |e_j| / λ_min(H)) + 8 d eps ρ",
    "a minimiser moves by −H⁻¹δ∇F: ε is the error of an exponent (exponent-rounding), the second term the error of the"
    " sums in the gradient, the third the error of the point and the direction; the sum is doubled, because both the"
    " predicted and the followed minimiser have this error",
)

FOLLOWED = "the path is followed"
PATH_IS_STATIONARY = premise("path-is-stationary", when=FOLLOWED)
PATH_IS_LOWEST = premise("path-is-lowest", when=FOLLOWED)
PATH_PREMISES = (PATH_IS_STATIONARY, PATH_IS_LOWEST)
"""The names of the premises of a path: claims that the path is what a theorem assumes."""
LOWER_TRIES = 12
"""The number of points of each kind, near the path and anywhere on the sphere, at which a risk below that of the path
is sought at each radius."""


@dataclass(frozen=True, eq=False)
class Followed:
    """The path at one radius: predicted from the SVM, and followed with the implementation under test (see the module).

    Attributes:
        sphere: the implementation under test on the sphere of this radius.
        predicted: the minimiser of F_ρ, shape (e,).
        solved: whether Newton's method converged to ``predicted``.
        followed: the tangential part y of the minimiser of the risk under test, shape (e,).
        converged: whether the search for ``followed`` converged.
        rounding: a bound of the distance between ``predicted`` and ``followed`` that rounding can cause.
        exponent_rounding: a bound of the rounding error of an exponent of F_ρ at ``predicted``.
    """

    sphere: Sphere
    predicted: Float64[np.ndarray, "e"]
    solved: bool
    followed: Float64[np.ndarray, "e"]
    converged: bool
    rounding: float
    exponent_rounding: float

    @classmethod
    def at(cls, sphere: Sphere, constraints: Constraints) -> Followed:
        """Return the predicted and the followed minimiser on a sphere; both searches start on the ray of p_mm."""
        reduced = sphere.reduced
        start = np.zeros(reduced.rows.shape[1])
        predicted, solved = reduced.newton(start)
        error = float(constraints.exponent_rounding(sphere.point(predicted) / sphere.svm.norm))
        moved = reduced.displacement(predicted, error, norm(constraints.row_errors, axis=1))
        moved += predicted.size * 4 * EPS * reduced.rho
        followed, converged = sphere.follow(start, moved, error)
        return cls(sphere, predicted, solved, followed, converged, 2 * moved, error)

    @property
    def rho(self) -> float:
        """The radius ρ, in units of ‖p_mm‖."""
        return self.sphere.reduced.rho

    @property
    def one_minus_cosine(self) -> float:
        """The number 1 − cos(p̄(R), p_mm) = 1 − √(1 − |y|²/ρ²) of the followed minimiser, without cancellation."""
        y = self.followed
        return float(y @ y) / (self.rho * (self.rho + self.sphere.reduced.height(y)))

    @property
    def why_undecided(self) -> str:
        """The reason why the predicted and the followed minimiser cannot be compared; empty if they can."""
        if not self.solved:
            return f"Newton's method on the reduced program did not converge at RΘ = {self.rho:g}"
        return "" if self.converged else f"the path was not followed to RΘ = {self.rho:g}"


@dataclass(frozen=True, eq=False)
class FollowedPath:
    """The path at r radii, in units of ‖p_mm‖ (symbols: see the module).

    Attributes:
        at: the path at each radius.
        constraints, basis, svm: the constraints of ATT-SVM, a basis of the orthogonal complement of p̄_mm, and the
            solution p_mm.
        rng: the random generator of the points at which a lower risk is sought.
        claim: the name of the claim that is undecided if the path was not followed.
    """

    at: list[Followed]
    constraints: Constraints
    basis: Float64[np.ndarray, "d e"]
    svm: MaxMargin
    rng: np.random.Generator
    claim: str

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that predicted minimisers are stationary under test, and that no tried point has less risk.

        Raises:
            Ended: no minimiser was predicted.
            Undecided: a minimiser was not predicted, or not followed.
        """
        predicted = [f for f in self.at if f.solved]
        if not predicted:
            yield undecided_claim(PATH_IS_STATIONARY, self.at[0].why_undecided, Form.SHARP)
            raise Ended(PATH_IS_STATIONARY)
        stationary = np.array([np.linalg.norm(f.sphere.newton_step(f.predicted)) for f in predicted])
        # A NaN means that the risk under test does not decrease outwards, so that no minimiser is nearby.
        stationary = np.where(np.isnan(stationary), np.inf, stationary)
        error = np.array([f.rounding for f in predicted])

        yield at_least(
            PATH_IS_STATIONARY, Form.SHARP, 0.0, stationary, rounding=error, why=PATH_ROUNDING, points="radius"
        )
        if missing := next((f.why_undecided for f in self.at if f.why_undecided), ""):
            raise Undecided(self.claim, missing, Form.LIMIT)
        yield self._lowest()

    @cached_property
    def rho(self) -> Float64[np.ndarray, "r"]:
        """The radii, (r,)."""
        return np.array([f.rho for f in self.at])

    @cached_property
    def size(self) -> Float64[np.ndarray, "r"]:
        """The lengths |y| of the tangential parts of the path, (r,)."""
        return np.array([np.linalg.norm(f.followed) for f in self.at])

    @cached_property
    def one_minus_cosine(self) -> Float64[np.ndarray, "r"]:
        """The numbers 1 − cos(p̄(R), p_mm) of the path's points p̄(R), (r,)."""
        return np.array([f.one_minus_cosine for f in self.at])

    @cached_property
    def rounding(self) -> Float64[np.ndarray, "r"]:
        """Bounds of the distances between predicted and followed path due to rounding (:data:`PATH_ROUNDING`), (r,)."""
        return np.array([f.rounding for f in self.at])

    @cached_property
    def far(self) -> tuple[Reduced, Float64[np.ndarray, "k"], bool]:
        """The function F_∞ on the span of the neighbours' rows, its minimiser, and whether Newton's method found it."""
        far = Reduced.limit(self.constraints, tangent_span(self.constraints, self.basis))
        return far, *far.newton(np.zeros(far.rows.shape[1]))

    @cached_property
    def limit(self) -> Float64[np.ndarray, "e"]:
        """The minimiser of F_∞, or the last point of Newton's method if the method did not converge."""
        return np.asarray(self.basis.T @ (tangent_span(self.constraints, self.basis) @ self.far[1]))

    @cached_property
    def dual(self) -> Float64[np.ndarray, "r"]:
        """Lower bounds of F_∞ at the points of the path, (r,).

        Each bound is the larger of :attr:`.Constraints.dual_value` and Jensen's bound with the weights of the terms at
        the minimiser in :attr:`far`.
        """
        far, coordinates, _ = self.far
        dual, residual = far.approximate_dual(coordinates)
        return np.maximum(self.constraints.dual_value, dual - residual * self.size)

    def values(self, tries: list[Float64[np.ndarray, "e"]]) -> Float64[np.ndarray, "r"]:
        """Return F_ρ(y) for each radius ρ, where y is the entry of ``tries`` for the radius."""
        return np.array([f.sphere.reduced.value(y) for f, y in zip(self.at, tries, strict=True)])

    @cached_property
    def value_rounding(self) -> Float64[np.ndarray, "r"]:
        """Bounds of the rounding error of the difference of F_ρ and :attr:`.Constraints.dual_value`, (r,)."""
        values = np.array([f.sphere.reduced.value_rounding(f.predicted) for f in self.at])
        return np.asarray(values + self.constraints.dual_rounding)

    def _lowest(self) -> Claim:
        """Claim that no tried point of the sphere (near the path, far, random, on the ray of p_mm) has a lower risk."""
        others, path, rng = [], [], self.rng
        for f in self.at:
            e, rho, sphere = f.followed.size, f.rho, f.sphere
            sizes = np.exp(rng.uniform(np.log(1e-3), np.log(rho), (LOWER_TRIES, 1)))
            near = f.followed + sizes * rng.normal(size=(LOWER_TRIES, e))
            ray = rho * sphere.svm.direction[None]
            points = np.concatenate([rho * sphere.svm.direction + near @ sphere.basis.T, ray])
            points = np.concatenate([points, rng.normal(size=(LOWER_TRIES, points.shape[1]))])
            path_point = exact(sphere.point(f.followed)[None])
            # All points are moved to the sphere through the path's point, because at large radii even a rounding of the
            # radius changes the risk.
            on_sphere = points * (norm(path_point) / norm(exact(points), axis=1))[:, None]
            others.append(sphere.log_excess_of(on_sphere, PATH_IS_LOWEST))
            path.append(np.broadcast_to(sphere.log_excess_of(path_point, PATH_IS_LOWEST), len(points)))
        left, right = np.concatenate(others), np.concatenate(path)
        return at_least(PATH_IS_LOWEST, Form.LIMIT, left, right, points="other point of the sphere")
