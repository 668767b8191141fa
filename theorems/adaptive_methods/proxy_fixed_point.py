"""The limit direction of Adam on small batches as β2 → 1: the fixed point of the sample weights, in floats.

As β2 → 1, V hardly changes during an epoch, so √V is the root of the mean over batches of the squared gradient. This
defines the proxy of Adam. :func:`proxy_direction` computes a step of the proxy; :func:`proxy_fixed_point` computes the
weights of the samples for which the steps keep their direction.

The samples x_i, the rows of X, occur k_i times each and have weights c, and b is the batch size. P(c) is, up to a
factor, the root above (see :func:`scale_of`), and F(c) = X P(c)⁻¹Xᵀc has the margins of the samples along a step.

References: Baek, Song, Yun, arXiv 2510.26303, Section 4 (batches of one sample); Kim, Song, Yun 2026, (7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Float64, Int64

from reference_attention.exact import rational
from reference_attention.risk import ScaledGradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares

Rows = Float64[np.ndarray, "n d"]
Weights = Float64[np.ndarray, "n"]
STEPS, NEWTON = 4000, 8
"""The largest number of damped iterations (the slowest of 1000 data sets needed 300), and of Newton steps."""
SETTLED = 1e-10
"""The damped iteration ends when the weights, which sum to 1, change by less than this."""
SMALL = 1e-7
"""Weights below this share of the largest are taken to be 0."""


@dataclass(frozen=True, eq=False)
class ProxyFixedPoint:
    """Weights c of sum 1 that, exactly or up to the solver's error, are positive only where F(c) is smallest.

    Attributes:
        support: the samples of positive weight.
        weights: c over the rationals, n of them; exact where P is a multiple of the identity.
    """

    support: list[int]
    weights: list[fmpq]


def mean_share(counts: Int64[np.ndarray, "n"], batch: int) -> float:
    """Return a = (b − 1)/(n − 1), the weight of the squared sum in P² (see the module), n = Σ counts; 0 for n = 1."""
    total = int(counts.sum())
    return (batch - 1) / (total - 1) if total > 1 else 0.0


def scale_of(weights: Any, rows: Any, counts: Int64[np.ndarray, "n"], share: float) -> tuple[Any, Any]:
    """Return u = Xᵀc and P(c) with P_j² = a u_j² + (1 − a) Σ_i c_i² x_ij²/k_i, each (*b, d); a is ``share``."""
    u = weights @ rows
    return u, np.sqrt(share * u * u + (1 - share) * ((weights * weights / counts) @ (rows * rows)))


def proxy_direction(samples: ScaledGradient, counts: Int64[np.ndarray, "n"], batch: int) -> Float64[np.ndarray, "b d"]:
    """Return g/√(mean over batches of the squared gradient) at b points, g = Σ k_i∇ℓ_i the sum over the samples.

    Args:
        samples: the gradients ∇ℓ_i of n samples at b points, as log scales (b, n) and directions (b, n, d).
        counts: k_i, how often sample i occurs, (n,).
        batch: samples in a batch, drawn without replacement.
    """
    logs = np.asarray(samples.log_scale)
    gradients = np.exp(logs - logs.max(axis=-1, keepdims=True))[..., None] * np.asarray(samples.direction)
    share, times = mean_share(counts, batch), counts[:, None]
    total = (gradients * times).sum(axis=-2)
    root = np.sqrt(share * total**2 + (1 - share) * (gradients**2 * times).sum(axis=-2))
    return np.asarray(total / np.where(root > 0, root, 1.0))


def proxy_fixed_point(rows: Rows, counts: Int64[np.ndarray, "n"], batch: int) -> ProxyFixedPoint | None:
    """Return weights c ≥ 0 of sum 1, positive only where F(c) = X P(c)⁻¹ Xᵀ c is smallest; None if the search fails.

    Where every row has entries of one modulus and b = 1, P is a multiple of the identity and c is proportional to the
    exact duals of the solution of least ‖w‖_2. Otherwise the iteration c ← (c + T(c))/2 finds the support, where T(c)
    are the duals of min wᵀP(c)w subject to x_i·w ≥ 1, and Newton's method finds the weights on the support.

    Args:
        rows: x_i, all different, separable and without zero entries, (n, d).
        counts: k_i, how often x_i was seen.
        batch: b < Σk, or 1.
    """
    if batch == 1 and (np.abs(rows) == np.abs(rows[:, :1])).all():
        return euclidean_duals(rows)
    share = mean_share(counts, batch)
    rows = rows / np.abs(rows).max()
    c = _damped(rows, counts, share)
    if c is None:
        return None
    support = np.flatnonzero(c > SMALL * c.max())
    polished = _newton(rows[support], counts[support], share, c[support] / c[support].sum())
    if polished is None:
        return None
    weights = np.zeros(len(rows))
    weights[support] = polished
    return ProxyFixedPoint(support.tolist(), [rational(x) for x in weights.tolist()])


def euclidean_duals(rows: Rows) -> ProxyFixedPoint | None:
    """Return the exact duals of the solution of least ‖w‖_2 as weights of sum 1; None where there is no solution."""
    svm = max_margin(np.stack([rows, np.zeros_like(rows)], axis=1), np.zeros(len(rows), dtype=np.int64))
    if not isinstance(svm, MaxMargin):
        return None
    duals = [svm.exact.duals.get((i, 1), fmpq(0)) for i in range(len(rows))]
    total = sum(duals, fmpq(0))
    return ProxyFixedPoint([i for i, x in enumerate(duals) if x > 0], [x / total for x in duals])


def _damped(rows: Rows, counts: Int64[np.ndarray, "n"], share: float) -> Weights | None:
    c = counts / counts.sum()
    for _ in range(STEPS):
        _, P = scale_of(c, rows, counts, share)
        table = rows.T / np.sqrt(P)[:, None]
        table = np.vstack([table / np.abs(table).max(), np.ones(len(rows))])
        duals, residual = nonnegative_least_squares(table, np.append(np.zeros(rows.shape[1]), 1.0))
        if not np.isfinite(residual) or not duals.sum() > 0:
            return None
        following = (c + duals / duals.sum()) / 2
        if np.abs(following - c).max() < SETTLED:
            return np.asarray(following)
        c = following
    return None


def _newton(rows: Rows, counts: Int64[np.ndarray, "n"], share: float, c: Weights) -> Weights | None:
    """Return c > 0 with Σc = 1 and equal F_i(c), for the samples of a support; None where Newton's method fails."""
    n = len(c)
    for _ in range(NEWTON):
        u, P = scale_of(c, rows, counts, share)
        slopes = (share * u * rows + (1 - share) * (c / counts)[:, None] * rows**2) / P
        jacobian = (rows / P) @ rows.T - (rows * (u / P**2)) @ slopes.T
        F = (rows / P) @ u
        system = np.block([[jacobian, -np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        mu = float(F.mean())
        try:
            step = np.linalg.solve(system, np.append(mu - F, 1 - c.sum()))[:n]
        except np.linalg.LinAlgError:
            return None
        c = c + step
        if not (c > 0).all():
            return None
        if np.abs(step).max() < 4e-16:
            break
    return np.asarray(c)
