"""The limit and sharp claims of Theorem 1: the path itself, its rate and its offset from the ray of p_mm.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; :mod:`.path_offset`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.claim import Claim, Form, at_least, undecided
from theorems.core.tolerances import tolerance
from theorems.rounding.bounded import exact
from theorems.token_selection.global_paths.followed_path import Sphere
from theorems.token_selection.global_paths.path_constants import Constraints
from theorems.token_selection.global_paths.path_offset import Reduced, closed_form, tangent_span

PATH_ROUNDING = tolerance(
    "path-rounding",
    "2 (ε Σ_j w_j |H⁻¹(e_j − ē)| + m eps Σ_j w_j |e_j| / λ_min(H)) + 8 d eps ρ",
    "a minimiser moves by −H⁻¹δ∇F: ε is the error of an exponent (exponent-rounding), the second term that of the"
    " sums of the gradient, the third that of the point and of the direction themselves; doubled, because the"
    " predicted and the followed minimiser both carry it",
)
PATH_DUAL_GAP = tolerance(
    "path-dual-gap",
    "(|y| e + e²)/ρ² + (m + d + 8) eps (Σ_j w_j|exponent_j| + 1 + max|log c| + max|log w|)/ρ",
    "1 − cos ≤ (F_ρ(y') − D)/ρ holds without a margin; e is the rounding of the followed point (path-rounding), the"
    " rest that of the sums F and D of logarithms",
)
OFFSET_CONVERGENCE = tolerance(
    "offset-convergence",
    "|H⁻¹∇F_ρ| + (e^{1.5 x} − 1)|H⁻¹∇F_ρ|_H/√λ_min(H) + path-rounding",
    "the distance of a limit point from the minimiser at radius ρ, O(1/ρ), bounded by the gradient there:"
    " log-sum-exp is quasi-self-concordant (path_offset.Reduced.correction)",
)
RATE_FIT = tolerance(
    "rate-fit",
    "Σ|x_i| e_i / Σ x_i², x_i = log ρ_i − mean, e_i = 2 log((|o| + τ_i)/(|o| − τ_i)) + 4|o|²/ρ_i²",
    "log(1 − cos) = log(|o|²/2) − 2 log ρ + an error e_i that follows from the bound τ_i on the offset's distance"
    " from its limit; a least-squares slope is linear in it",
)

PATH_CLAIMS = dict.fromkeys(
    ("path-is-stationary", "path-correlation", "path-is-lowest", "offset-at-radius"), "the path is followed"
) | {
    "offset-closed-form": "the neighbours are independent with positive duals, d > 1",
    "offset-limit": "the neighbours are dependent with positive duals, d > 1",
    "offset-first-correction": "the neighbours have positive duals, d > 1",
    "path-rate": "the offset is known to half its size at two radii",
    "path-rate-with-logarithm": "some neighbour has dual zero in every dual solution",
}
"""The claims of :func:`path_claims`, and when they are made."""
LOWER_TRIES = 12
"""Points per radius and kind that try to have less risk than the path."""


@dataclass(frozen=True, eq=False)
class Followed:
    """The path at one radius: predicted from the SVM, and followed with the implementation under test.

    Attributes:
        sphere: the implementation on that sphere.
        predicted: argmin F_ρ, shape (e,).
        solved: whether Newton's method found it.
        followed: the tangential part of the implementation's minimiser, shape (e,).
        converged: whether it was found.
        rounding: how far rounding may move the two apart.
        exponent_rounding: largest error of an exponent there.
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
        """Both, from the ray of p_mm."""
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
        """The radius."""
        return self.sphere.reduced.rho

    @property
    def one_minus_cosine(self) -> float:
        """1 − √(1 − |y|²/ρ²), without cancellation."""
        y = self.followed
        return float(y @ y) / (self.rho * (self.rho + self.sphere.reduced.height(y)))

    @property
    def undecided(self) -> str:
        """Why there is nothing to compare, empty if there is."""
        if not self.solved:
            return f"Newton's method on the reduced program did not converge at RΘ = {self.rho:g}"
        return "" if self.converged else f"the path was not followed to RΘ = {self.rho:g}"


def path_claims(
    followed: list[Followed],
    constraints: Constraints,
    basis: Float64[np.ndarray, "d e"],
    svm: MaxMargin,
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """The path at increasing radii against its bound, its rate and its predicted offset."""
    predicted = [f for f in followed if f.solved]
    if not predicted:
        yield undecided("path-is-stationary", followed[0].undecided, Form.SHARP)
        return
    stationary = np.array([np.linalg.norm(f.sphere.newton_step(f.predicted)) for f in predicted])
    # None where the risk under test does not fall outwards: no minimiser is anywhere near.
    stationary = np.where(np.isnan(stationary), np.inf, stationary)
    yield at_least(
        "path-is-stationary",
        Form.SHARP,
        0.0,
        stationary,
        rounding=np.array([f.rounding for f in predicted]),
        why=PATH_ROUNDING,
        points="radius",
    )
    span = tangent_span(constraints, basis)
    far = Reduced.limit(constraints, span)
    coordinates, solved = far.newton(np.zeros(span.shape[1]))
    # Where Newton's method did not get there, ``limit`` bounds what it bounds all the same: any point does (Jensen).
    limit = basis.T @ (span @ coordinates)
    if missing := next((f.undecided for f in followed if f.undecided), ""):
        yield undecided("path-correlation", missing, Form.LIMIT)
        return
    one_minus = np.array([f.one_minus_cosine for f in followed])
    rho = np.array([f.rho for f in followed])
    rounding = np.array([f.rounding for f in followed])
    size = np.array([np.linalg.norm(f.followed) for f in followed])
    dual, residual = far.approximate_dual(coordinates)
    lower = np.maximum(constraints.dual_value, dual - residual * size)
    sums = np.array([f.sphere.reduced.value_rounding(f.predicted) for f in followed]) + constraints.dual_rounding
    noise = (size * rounding + rounding**2) / rho**2 + sums / rho

    def bound(tries: list[Float64[np.ndarray, "e"]]) -> Float64[np.ndarray, "r"]:
        values = np.array([f.sphere.reduced.value(y) for f, y in zip(followed, tries, strict=True)])
        return np.asarray((values - lower) / rho)

    yield at_least(
        "path-correlation",
        Form.LIMIT,
        bound([f.predicted for f in followed]),
        one_minus,
        rounding=noise,
        why=PATH_DUAL_GAP,
        scale=one_minus[-1:].max(initial=EPS),
        points="radius",
    )
    yield _lowest(followed, rng)
    offset = np.array([np.linalg.norm(f.followed - f.predicted) for f in followed])
    yield at_least(
        "offset-at-radius",
        Form.SHARP,
        0.0,
        offset,
        rounding=rounding,
        why=PATH_ROUNDING,
        scale=np.maximum(size, 1.0),
        points="radius",
    )
    if svm.strictly_complementary:
        if solved or svm.independent:
            yield from _limit_offset(followed, constraints, basis, limit, svm.independent)
        else:
            yield undecided("offset-limit", "Newton's method on the limit program did not converge", Form.SHARP)
        return
    h = (limit - followed[0].predicted) / math.log(far.rho / rho[0])
    curve = [followed[0].predicted + h * math.log(r / rho[0]) for r in rho]
    yield at_least(
        "path-rate-with-logarithm",
        Form.LIMIT,
        bound(curve),
        one_minus,
        rounding=noise,
        why=PATH_DUAL_GAP,
        scale=one_minus[-1:].max(initial=EPS),
        points="radius",
    )


def _lowest(followed: list[Followed], rng: np.random.Generator) -> Claim:
    """No other point of the sphere has less risk: neighbours at all distances, the ray, and points anywhere."""
    others, path = [], []
    for f in followed:
        e, rho, sphere = f.followed.size, f.rho, f.sphere
        sizes = np.exp(rng.uniform(np.log(1e-3), np.log(rho), (LOWER_TRIES, 1)))
        near = f.followed + sizes * rng.normal(size=(LOWER_TRIES, e))
        points = np.concatenate([rho * sphere.svm.direction + near @ sphere.basis.T, rho * sphere.svm.direction[None]])
        points = np.concatenate([points, rng.normal(size=(LOWER_TRIES, points.shape[1]))])
        own = exact(sphere.point(f.followed)[None])
        # All on the sphere through the path's point: a rounding of the radius would tell at large ones.
        on_sphere = points * (norm(own) / norm(exact(points), axis=1))[:, None]
        others.append(sphere.log_excess_of(on_sphere, "path-is-lowest"))
        path.append(np.broadcast_to(sphere.log_excess_of(own, "path-is-lowest"), len(points)))
    what = "other point of the sphere"
    return at_least("path-is-lowest", Form.LIMIT, np.concatenate(others), np.concatenate(path), points=what)


def _limit_offset(
    followed: list[Followed],
    constraints: Constraints,
    basis: Float64[np.ndarray, "d e"],
    limit: Float64[np.ndarray, "e"],
    independent: bool,
) -> Iterator[Claim]:
    """The offset at the radii at which its limit is near enough for an error bound."""
    if limit.size == 0:
        return
    name = "offset-limit"
    slack = 8 * EPS * (1 + float(np.linalg.norm(limit)))
    if independent:
        limit, condition = closed_form(constraints, basis)
        name, slack = "offset-closed-form", slack * condition
    corrections = [f.sphere.reduced.correction(limit) for f in followed]
    near = [(f, s, rest) for f, (s, rest) in zip(followed, corrections, strict=True) if np.isfinite(rest)]
    off = np.array([f.followed - limit for f, _, _ in near]).reshape(-1, limit.size)
    first = np.array([s for _, s, _ in near]).reshape(-1, limit.size)
    rest = np.array([r for _, _, r in near])
    rounding = np.array([f.rounding for f, _, _ in near]) + slack
    size = max(float(np.linalg.norm(limit)), 1.0)
    if not near:
        # A margin of 1 + 3e-9 still counts at these radii; the finite-radius claim has covered it.
        return
    total = np.linalg.norm(first, axis=1) + rest
    yield at_least(
        name,
        Form.SHARP,
        0.0,
        np.linalg.norm(off, axis=1),
        rounding=total + rounding,
        why=OFFSET_CONVERGENCE,
        scale=size,
        points="radius",
    )
    yield at_least(
        "offset-first-correction",
        Form.SHARP,
        0.0,
        np.linalg.norm(off - first, axis=1),
        rounding=rest + rounding,
        why=OFFSET_CONVERGENCE,
        scale=size,
        points="radius",
    )
    yield from _rate(near, float(np.linalg.norm(limit)), total + rounding)


def _rate(
    near: list[tuple[Followed, Float64[np.ndarray, "e"], float]], size: float, error: Float64[np.ndarray, "r"]
) -> Iterator[Claim]:
    """The slope of log(1 − cos) in log ρ; an error e of the offset o changes it by 2 log((|o|+e)/(|o|−e))."""
    usable = error < size / 2
    if usable.sum() < 2:
        return
    log_rho = np.log([f.rho for (f, _, _), good in zip(near, usable, strict=True) if good])
    log_gap = np.log([f.one_minus_cosine for (f, _, _), good in zip(near, usable, strict=True) if good])
    e = error[usable]
    # 1 − cos = |y|²/(ρ(ρ + h)) differs from |y|²/2ρ² by a relative |y|²/4ρ² to first order.
    change = 2 * np.log((size + e) / (size - e)) + (2 * size / np.exp(log_rho)) ** 2
    x = log_rho - log_rho.mean()
    slope = float(x @ log_gap / (x @ x))
    tolerance = float(np.abs(x) @ change / (x @ x))
    yield Claim("path-rate", Form.LIMIT, -abs(slope + 2), tolerance, RATE_FIT, f"slope {slope:.9f} over {len(x)} radii")
