"""Normalized steepest descent in any norm, with momentum, and mirror descent with the potential ‖p‖_q^q/q.

References: Gunasekar, Lee, Soudry, Srebro, *Characterizing Implicit Bias in Terms of Optimization Geometry*, ICML 2018;
Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*, 2025; Sun,
Gatmiry, Ahn, Azizan, *A Unified Approach to Controlling Implicit Regularization via Mirror Descent*, JMLR 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.floats import EPS
from reference_attention.norms import Blocks, Norm, Schatten, conjugate_power
from reference_attention.problem import Problem
from reference_attention.svm.norm_max_margin import dual_point
from reference_attention.training.derivatives import BatchField
from reference_attention.training.iteration import LARGEST_LOG_STEP, Gradient, batch_field

Batch = Float64[np.ndarray, "b d"]
Direction = Callable[[Float64[np.ndarray, "*b d"], Norm], Float64[np.ndarray, "*b d"]]
"""A function (x, norm) → Δ, where Δ is the step of unit norm with the largest ⟨x, Δ⟩."""


def steepest_direction(x: Float64[np.ndarray, "*b d"], norm: Norm) -> Float64[np.ndarray, "*b d"]:
    """Return the Δ with ‖Δ‖ ≤ 1 that maximises ⟨x, Δ⟩; 0 where x is 0.

    For ‖·‖_∞ the result is sign x, for ‖·‖_1 the sign of the largest coordinate of x, with 0 elsewhere. For a matrix x
    = U S Vᵀ (singular value decomposition) the result is U Vᵀ in the spectral norm, and u vᵀ of the first singular
    vectors in the nuclear norm. If the norm is the largest length of a row (or column), each row of x is divided by its
    length; if it is the sum of the rows' lengths, only the longest row of the result is nonzero.
    """
    if isinstance(norm, Schatten):
        return np.asarray(orthogonal_factor(norm.matrices(x), first=norm.power == 1).reshape(x.shape))
    if isinstance(norm, Blocks):
        return block_direction(x, norm)
    if math.isinf(norm):
        return np.asarray(np.sign(x))
    size = np.abs(x)
    largest = size.max(axis=-1, keepdims=True)
    size = size / np.where(largest > 0, largest, 1.0)
    if norm == 1:
        first = np.arange(x.shape[-1]) == size.argmax(axis=-1)[..., None]
        return np.asarray(np.where(first, np.sign(x), 0.0))
    power = conjugate_power(norm) - 1
    raised = np.sign(x) * size**power
    length = (size ** conjugate_power(norm)).sum(axis=-1, keepdims=True) ** (1 / norm)
    return np.asarray(raised / np.where(length > 0, length, 1.0))


def block_direction(x: Float64[np.ndarray, "*b d"], norm: Blocks) -> Float64[np.ndarray, "*b d"]:
    """Return :func:`steepest_direction` for norms of blocks: every block, or the longest, divided by its ‖·‖_2."""
    size = norm.sizes(x)
    if norm.power == 1:
        size = np.where(np.arange(size.shape[-1]) == size.argmax(axis=-1)[..., None], size, 0.0)
    block_size = size @ norm.members.T
    return np.asarray(np.where(block_size > 0, x / np.where(block_size > 0, block_size, 1.0), 0.0))


def orthogonal_factor(matrices: Float64[np.ndarray, "*b k l"], *, first: bool = False) -> Float64[np.ndarray, "*b k l"]:
    """Return U Vᵀ for each matrix U S Vᵀ, restricted to singular values above the rounding error of the largest.

    Args:
        matrices: the matrices, (*b, k, l).
        first: whether to restrict U Vᵀ to the largest singular value.
    """
    if matrices.shape[-1] == 1:
        length = np.sqrt((matrices * matrices).sum(axis=-2, keepdims=True))
        return np.asarray(matrices / np.where(length > 0, length, 1.0))
    u, sizes, vt = np.linalg.svd(matrices, full_matrices=False)
    counted = sizes > max(matrices.shape[-2:]) * EPS * sizes[..., :1]
    counted[..., 1:] &= not first
    return np.asarray((u * counted[..., None, :]) @ vt)


def steepest_descent(
    problem: Problem,
    start: Batch,
    *,
    lengths: Float64[np.ndarray, "t"],
    norm: Norm,
    momentum: float = 0.0,
    gradient: Gradient = risk.scaled_gradient,
    direction: Direction = steepest_direction,
) -> Float64[np.ndarray, "r b d"]:
    """Run steepest descent p(t+1) = p(t) + η_t Δ_t with momentum, and return all iterates.

    The step Δ_t maximises ⟨−M_t, Δ⟩ over ‖Δ‖ ≤ 1, where M_t = β M_{t−1} + (1 − β) ∇L(p(t)), M_{−1} = 0, is the mean of
    past gradients.

    Args:
        problem: keys, scores and loss.
        start: p(0), a batch of starts, (b, d).
        lengths: the lengths η_t of the steps, (t,).
        norm: the norm ‖·‖: the power q ≥ 1 of ‖·‖_q, or a norm of matrices.
        momentum: β, in [0, 1).
        gradient: the function that computes ∇L: the reference, a kernel or a planted fault.
        direction: the function that computes Δ_t, replaceable by planted faults; only the default is steepest descent.

    Returns:
        The iterates p(0), …, p(t), (t + 1, b, d).

    Raises:
        InvalidInput: q is below 1, or the momentum is outside [0, 1).
    """
    field = batch_field(problem.keys, problem.scores, problem.loss, gradient, start.shape[:-1])
    return steepest_steps(field, start, lengths, norm, momentum, direction)


def steepest_steps(
    field: BatchField,
    start: Batch,
    lengths: Float64[np.ndarray, "t"],
    norm: Norm,
    momentum: float,
    direction: Direction = steepest_direction,
) -> Float64[np.ndarray, "r b d"]:
    """Run the iteration of :func:`steepest_descent` with any function for the gradient, and return all iterates.

    The function ``field`` maps a batch of points to their gradients, as log scales and directions; the other arguments
    are those of :func:`steepest_descent`.

    Raises:
        InvalidInput: q is below 1, or the momentum is outside [0, 1).
    """
    if not ((isinstance(norm, Schatten | Blocks) or norm >= 1) and 0 <= momentum < 1):
        raise InvalidInput(f"norm, momentum: {norm}, {momentum}; give q ≥ 1 and 0 ≤ β < 1.")
    points = np.empty((len(lengths) + 1, *start.shape))
    p = points[0] = start
    log_size, average = np.full(len(start), -math.inf), np.zeros_like(start)
    for t, length in enumerate(lengths.tolist()):
        log_scale, slope = field(p)
        with np.errstate(divide="ignore", invalid="ignore"):
            decayed, new = log_size + np.log(momentum), log_scale + math.log1p(-momentum)
            log_size = np.maximum(decayed, new)
            log_size = np.where(np.isfinite(log_size), log_size, 0.0)
        average = np.exp(decayed - log_size)[:, None] * average + np.exp(new - log_size)[:, None] * slope
        p = points[t + 1] = p - length * direction(average, norm)
    return points


def mirror_descent(
    problem: Problem,
    start: Batch,
    *,
    steps: int,
    log_step: float,
    norm: float,
    normalized: bool = False,
    gradient: Gradient = risk.scaled_gradient,
) -> Float64[np.ndarray, "r b d"]:
    """Run mirror descent ∇ψ(p(t+1)) = ∇ψ(p(t)) − η∇L(p(t)), ψ = ‖p‖_q^q/q, and return the dual points ∇ψ(p(t)).

    Args:
        problem: keys, scores and loss.
        start: p(0), a batch of starts, (b, d).
        steps: number of steps.
        log_step: log η.
        norm: the power q of the potential ψ, 1 < q < ∞.
        normalized: whether ∇L is divided by its dual norm ‖∇L‖_{q'}, 1/q + 1/q' = 1.
        gradient: the function that computes ∇L: the reference, a kernel or a planted fault.

    Returns:
        The dual points z(0), …, z(steps), (steps + 1, b, d), where z = ∇ψ(p) has the entries sign(p_j)|p_j|^{q−1};
            :func:`primal_point` gives p. The factor of a direction is at most e^700, so that steps stay representable.

    Raises:
        InvalidInput: q is not between 1 and ∞.
    """
    if not 1 < norm < math.inf:
        raise InvalidInput(f"norm: {norm}; give 1 < q < ∞, where ‖p‖_q^q has a gradient with an inverse.")
    field = batch_field(problem.keys, problem.scores, problem.loss, gradient, start.shape[:-1])
    points = np.empty((steps + 1, *start.shape))
    z = points[0] = dual_point(start, norm)
    for t in range(steps):
        log_scale, direction = field(primal_point(z, norm))
        if normalized:
            # Divide by the largest entry first, since a high power of a small entry underflows.
            largest = np.abs(direction).max(axis=-1, keepdims=True)
            direction = direction / np.where(largest > 0, largest, 1.0)
            size = (np.abs(direction) ** conjugate_power(norm)).sum(axis=-1) ** (1 / conjugate_power(norm))
            factor = math.exp(log_step) / np.where(size > 0, size, 1.0)
        else:
            factor = np.exp(np.minimum(log_step + log_scale, LARGEST_LOG_STEP))
        z = points[t + 1] = z - factor[:, None] * direction
    return points


def primal_point(z: Float64[np.ndarray, "*b d"], norm: float) -> Float64[np.ndarray, "*b d"]:
    """Return the p whose dual point ∇ψ(p) is z, ψ = ‖p‖_q^q/q with q = ``norm``."""
    return np.asarray(np.sign(z) * np.abs(z) ** (1 / (norm - 1)))
