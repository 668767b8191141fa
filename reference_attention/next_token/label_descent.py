"""Normalized steepest descent on the loss of classification, Σ_i π_i log(1 + Σ_{v≠y_i} e^{−g_iv·θ}), in any norm.

g_iv = a_iy − a_iv are the differences of a master problem in which a single alternative follows each context.

References: Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*,
arXiv 2502.04664.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from reference_attention.exact import to_floats
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.norms import Norm
from reference_attention.risk import ScaledGradient
from reference_attention.training.steepest_descent import Direction, steepest_direction, steepest_steps

Batch = Float64[np.ndarray, "b D"]


def label_loss(problem: MasterProblem, theta: Batch) -> Float64[np.ndarray, "b"]:
    """Return the loss L(θ) of this module at each point."""
    odds = _odds(problem, theta)[2]
    return np.asarray(np.logaddexp(0.0, odds) @ to_floats(problem.weights))


def label_gradient(problem: MasterProblem, theta: Batch) -> ScaledGradient:
    """Return ∇L = −Σ_i π_i Σ_v s_iv g_iv at each point, where s_iv = e^{−g_iv·θ}/(1 + Σ_u e^{−g_iu·θ}).

    The largest π_i s_iv is factored out. All terms have positive weights, so nothing cancels where the s_iv are tiny.
    """
    rows, logits, odds = _odds(problem, theta)
    shares = np.log(to_floats(problem.weights)) - np.logaddexp(0.0, odds)
    logs = logits + shares[..., [j for j, _ in problem.pairs]]
    top = logs.max(axis=-1)
    return ScaledGradient(top, -np.exp(logs - top[..., None]) @ rows)


def _odds(
    problem: MasterProblem, theta: Batch
) -> tuple[Float64[np.ndarray, "N D"], Float64[np.ndarray, "b N"], Float64[np.ndarray, "b m"]]:
    """Return g_iv, −g_iv·θ and log x_i, where x_i = Σ_v e^{−g_iv·θ}."""
    rows = np.array([to_floats(problem.differences[pair]) for pair in problem.pairs])
    starts = np.flatnonzero(np.diff([j for j, _ in problem.pairs], prepend=-1))
    logits = -theta @ rows.T
    return rows, logits, np.logaddexp.reduceat(logits, starts, axis=-1)


LabelGradient = Callable[[MasterProblem, Batch], ScaledGradient]


def label_descent(
    problem: MasterProblem,
    start: Batch,
    *,
    lengths: Float64[np.ndarray, "t"],
    norm: Norm,
    momentum: float = 0.0,
    gradient: LabelGradient = label_gradient,
    direction: Direction = steepest_direction,
) -> Float64[np.ndarray, "r b D"]:
    """Return θ(0) … θ(t) of :func:`reference_attention.training.steepest_descent.steepest_steps` on this loss.

    The arguments are those of that function.

    Raises:
        InvalidInput: a norm below 1, or a momentum out of range.
    """

    def field(theta: Batch) -> tuple[Float64[np.ndarray, "b"], Batch]:
        slope = gradient(problem, theta)
        return np.asarray(slope.log_scale), np.asarray(slope.direction)

    return steepest_steps(field, start, lengths, norm, momentum, direction)
