"""The regularization path of (K, Q): minimisers of L(KQᵀ) over ½(‖K‖² + ‖Q‖²) ≤ R, or of L(W) over ‖W‖_⋆ ≤ R.

Both problems have the same minimisers W = KQᵀ. The notation is that of :mod:`.nuclear_offsets`. The path is followed
from the largest radius R = ρC_⋆ down, by Newton's method on the system of :mod:`.nuclear_offsets`, near the ray of the
unique solution W_⋆ of ATT-SVM⋆. As f is convex in W, at each point the Frank–Wolfe gap R‖M(W)‖_op − ⟨M(W), W⟩ bounds
how far f(W) lies above the minimum of f over the ball ‖W‖_⋆ ≤ R. A gap of 0 proves that a minimiser is global, among
matrices of every rank.

References: *Transformers as Support Vector Machines*, Theorem 2 (KQ-ERM).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput
from reference_attention.floats import EPS
from reference_attention.paths.nuclear_offsets import NuclearOffsets, Vector
from reference_attention.problem import Problem
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin

STEPS = 40
"""Largest number of Newton steps per radius; five are usually enough."""
HALVINGS, FIRST_STEP = 6, 1e-4
"""Largest number of times that a step in 1/ρ is split, in the middle on a logarithmic scale; and the fraction of its
length at which a step that begins at 1/ρ = 0 is split."""
STALLED = 1e-9
"""Size of a Newton step, relative to 1 plus the largest unknown, below which steps that no longer shrink count as
rounding errors."""


@dataclass(frozen=True, eq=False)
class NuclearPath:
    """The path of (K, Q) at r radii (symbols: see the module).

    Attributes:
        rho: the radii ρ = R/C_⋆, increasing, (r,).
        K, Q: the factors of the minimisers, shapes (r, d, k) and (r, e, k) with k the rank of W_⋆; NaN where the search
            failed.
        offsets: the offsets W − ρW_⋆ of the minimisers W = KQᵀ, to full relative precision, shape (r, d, e).
        gaps: the Frank–Wolfe gaps, upper bounds of how far f lies above its minimum over the ball, (r,).
        reasons: for every radius, the reason if the point is not proven to lie on the path; empty if it is.
    """

    rho: Float64[np.ndarray, "r"]
    K: Float64[np.ndarray, "r d k"]
    Q: Float64[np.ndarray, "r e k"]
    offsets: Float64[np.ndarray, "r d e"]
    gaps: Float64[np.ndarray, "r"]
    reasons: tuple[str, ...]


def log_costs_of(problem: Problem, svm: NuclearMaxMargin) -> Float64[np.ndarray, "N"]:
    """Return the logarithms of the costs c_j = |ℓ'(γ_iα)|(γ_iα − γ_it), in the order of the solution's rows j = (i, t).

    The logarithm is −∞ for tokens that score at least as much as α.
    """
    rows = svm.rows
    chosen_scores = problem.scores[np.arange(problem.n), svm.alpha][rows.inputs]
    slopes = np.asarray(problem.loss.log_slope(chosen_scores), dtype=np.float64)
    gaps = np.maximum(chosen_scores - problem.scores[rows.inputs, rows.tokens], 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(slopes + np.log(gaps))


def nuclear_path(
    problem: Problem, svm: NuclearMaxMargin, rhos: Sequence[float] | Float64[np.ndarray, "r"]
) -> NuclearPath:
    """Return the minimisers of f over the balls ‖W‖_⋆ ≤ ρC_⋆.

    If α is not the token of highest score, but all tight constraints (those with positive duals) belong to tokens that
    score less than α, the points are local minimisers, near the ray of W_⋆, of the risk without the tokens that score
    at least as much as α. Such tokens have margins above 1, so their weight vanishes as the radius grows.

    Args:
        problem: the problem with the keys vec(x_it z_iᵀ).
        svm: the solution of ATT-SVM⋆(α), proven to be the only one.
        rhos: the radii ρ, (r,), in any order; the result is sorted.

    Raises:
        InvalidInput: a radius is not positive and finite, a tight constraint belongs to a token that scores at least as
            much as α, or the solution is not proven to be the only one.
    """
    rho = np.unique(np.asarray(rhos, dtype=np.float64))
    if rho.size == 0 or not np.isfinite(rho).all() or (rho <= 0).any():
        raise InvalidInput("rhos: radii must be positive and finite; give a list of numbers.")
    if svm.exact is None:
        raise InvalidInput(f"svm: the solution must be unique; this is not decided: {svm.undecided}.")
    log_costs = log_costs_of(problem, svm)
    if np.isneginf(log_costs[svm.exact.support]).any():
        raise InvalidInput("svm: a tight constraint belongs to a token that scores no less than α; choose another α.")
    offsets = NuclearOffsets.of(svm, log_costs)
    solutions, x = [], newton(offsets, offsets.start, 0.0)
    # A step that is too long makes weights ω_j outside S overflow; such a step is not taken.
    with np.errstate(over="ignore", invalid="ignore"):
        for radius, before in zip(rho[::-1].tolist(), [math.inf, *rho[:0:-1].tolist()], strict=True):
            x = None if x is None else follow(offsets, x, 1 / before, 1 / radius)
            solutions.append(x)
    nowhere = np.full_like(offsets.start, math.nan)
    points = [(nowhere if x is None else x, radius) for x, radius in zip(solutions[::-1], rho.tolist(), strict=True)]
    gaps = [_gap(offsets, x, radius) for x, radius in points]
    factor_pairs = [np.array([offsets.factors(x)[side] / radius for x, radius in points]) for side in (0, 1)]
    K, Q = (
        (side + part) * (np.sqrt(rho) * 2.0 ** (offsets.unit / 2))[:, None, None]
        for side, part in zip((offsets.K, offsets.Q), factor_pairs, strict=True)
    )
    return NuclearPath(
        rho=rho,
        K=K,
        Q=Q,
        offsets=np.array([offsets.offset(x, 1 / radius) for x, radius in points]) * 2.0**offsets.unit,
        gaps=np.array([gap for gap, _ in gaps]),
        reasons=tuple(_reason(*gap) for gap in gaps),
    )


def follow(offsets: NuclearOffsets, x: Vector, begin: float, end: float, depth: int = HALVINGS) -> Vector | None:
    """Return the solution at 1/ρ = ``end``, given that at ``begin``; split a step that fails; None if all fail."""
    solution = newton(offsets, x, end)
    if solution is not None or depth == 0:
        return solution
    middle = math.sqrt(begin * end) if begin > 0 else end * FIRST_STEP
    nearer = follow(offsets, x, begin, middle, depth - 1)
    return None if nearer is None else follow(offsets, nearer, middle, end, depth - 1)


def newton(offsets: NuclearOffsets, x: Vector, eps: float) -> Vector | None:
    """Run Newton's method at 1/ρ = ε, damped so that no weight becomes negative; return None without convergence."""
    last = math.inf
    for _ in range(STEPS):
        F, J = offsets.system(x, eps)
        if not np.isfinite(F).all():
            return None
        try:
            step = -np.linalg.solve(J, F)
        except np.linalg.LinAlgError:
            return None
        size = float(np.abs(step).max()) / (1 + float(np.abs(x).max()))
        if not size < last / 2 and size < STALLED:
            return x
        length = 1.0
        while length > 1e-3 and not np.isfinite(offsets.system(x + length * step, eps)[0]).all():
            length /= 2
        x, last = x + length * step, size
    return None


def _gap(offsets: NuclearOffsets, x: Vector, rho: float) -> tuple[float, float]:
    """Return the Frank–Wolfe gap R‖M(W)‖_op − ⟨M(W), W⟩ at the unknowns x, and a bound of its rounding error."""
    if not np.isfinite(x).all():
        return math.inf, 0.0
    offset_margins = np.vecdot(offsets.a @ offsets.offset(x, 1 / rho), offsets.z)
    logs = offsets.log_costs - offsets.beyond * rho - offset_margins
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    M = offsets.matrix(weights)
    # The second term of the gap is ⟨M, W⟩ = ρ + Σ ω_j (ρ(m_j − 1) + ⟨G_j, o⟩).
    gap = rho * (offsets.value * np.linalg.norm(M, ord=2) - 1) - weights @ (offsets.beyond * rho + offset_margins)
    sizes = np.linalg.norm(offsets.a, axis=1) * np.linalg.norm(offsets.z, axis=1)
    o = float(np.linalg.norm(offsets.offset(x, 1 / rho)))
    return float(gap), gap_rounding(weights, sizes, sum(M.shape), rho * offsets.value, o)


def gap_rounding(
    weights: Float64[np.ndarray, "N"], sizes: Float64[np.ndarray, "N"], entries: int, R: float, offset: float
) -> float:
    """Return a bound of the rounding error of a gap: 16 (d + e) eps R Σ_j ω_j‖G_j‖ (1 + ‖G_j‖‖o‖).

    In the brackets, 1 stands for the error of the sums, and ‖G_j‖‖o‖ for the error of the offset o: a rounding error
    eps‖o‖ of o changes h_j by up to ‖G_j‖ eps‖o‖, hence the weight ω_j by the same fraction of itself, and R‖M‖_op by R
    ω_j‖G_j‖ times this fraction.

    Args:
        weights: the softmax weights ω_j.
        sizes: the norms ‖G_j‖ of the rows.
        entries: the number d + e.
        R: the radius R of the ball.
        offset: the norm ‖o‖ of the offset.
    """
    return float(16 * entries * EPS * R * (weights @ (sizes * (1 + sizes * offset))))


def _reason(gap: float, rounding: float) -> str:
    """Return the reason why a point with the given gap is not proven to lie on the path; empty if it is."""
    if gap == math.inf:
        return "Newton's method does not converge"
    return "" if gap <= rounding else f"the global minimiser may have larger rank: a gap of {gap:.2g}"
