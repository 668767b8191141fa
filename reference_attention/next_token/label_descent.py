"""Normalized steepest descent, in any norm, on the loss of classification L(θ) = Σ_i π_i log(1 + Σ_v e^{−g_iv·θ}).

The notation is that of :mod:`.master_problem`, where each context i is followed by a single alternative, its label y_i;
π_i is the share of context i in all counts, the sum is over the other alternatives v ≠ y_i, and g_iv = a_iy − a_iv.

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
    """Return the loss L(θ) of the module at each point θ, (b, D) → (b,)."""
    odds = _odds(problem, theta)[2]
    return np.asarray(np.logaddexp(0.0, odds) @ to_floats(problem.weights))


def label_gradient(problem: MasterProblem, theta: Batch) -> ScaledGradient:
    """Return ∇L = −Σ_i π_i Σ_v s_iv g_iv at each point θ, where s_iv = e^{−g_iv·θ}/(1 + Σ_u e^{−g_iu·θ}).

    The largest weight π_i s_iv is factored out as e^{log_scale}. As all weights are positive, nothing cancels where
    they are tiny.
    """
    rows, logits, odds = _odds(problem, theta)
    shares = np.log(to_floats(problem.weights)) - np.logaddexp(0.0, odds)
    logs = logits + shares[..., [j for j, _ in problem.pairs]]
    top = logs.max(axis=-1)
    return ScaledGradient(top, -np.exp(logs - top[..., None]) @ rows)


def _odds(
    problem: MasterProblem, theta: Batch
) -> tuple[Float64[np.ndarray, "N D"], Float64[np.ndarray, "b N"], Float64[np.ndarray, "b m"]]:
    """Return g_iv and −g_iv·θ for all N pairs (i, v), and log Σ_v e^{−g_iv·θ} for all m contexts i."""
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
    """Run steepest descent on the loss of the module, and return all iterates θ(0), …, θ(t), (t + 1, b, D).

    The arguments are those of :func:`reference_attention.training.steepest_descent.steepest_descent`.

    Raises:
        InvalidInput: the power of the norm is below 1, or the momentum is outside [0, 1).
    """

    def field(theta: Batch) -> tuple[Float64[np.ndarray, "b"], Batch]:
        slope = gradient(problem, theta)
        return np.asarray(slope.log_scale), np.asarray(slope.direction)

    return steepest_steps(field, start, lengths, norm, momentum, direction)
