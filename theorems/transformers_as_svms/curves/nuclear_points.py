"""Factors K, Q near the factors of ρW_⋆ with ½(‖K‖² + ‖Q‖²) ≤ R, chosen to test the bounds of the path of (K, Q).

Noise is added to most factors, to some of them so much that the risk exceeds that at ρW_⋆. Some factors are unbalanced,
some have columns that W_⋆ does not need, and some are moved by a step that lowers the risk. All are scaled back into
the ball.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from scipy.special import softmax

from theorems.bounded import value_of
from theorems.transformers_as_svms.curves.nuclear_bounds import NuclearBounds

INSIDE = 1e-12
"""The share of R by which points stay inside the ball; it exceeds the rounding error of W = KQᵀ."""

Factors = tuple[Float64[np.ndarray, "m d k"], Float64[np.ndarray, "m e k"]]


def nuclear_points(
    bounds: NuclearBounds, rhos: Float64[np.ndarray, "m"], kappa: float, rng: np.random.Generator
) -> Factors:
    """Draw one pair of factors with min(d, e) columns for each ρ, with ½(‖K‖² + ‖Q‖²) ≤ ρC, C being ``bounds.most``."""
    svm, m = bounds.svm, len(rhos)
    r, k, C = svm.K.shape[1], max(svm.K.shape[1], min(svm.W.shape)), bounds.most
    nonzero = np.arange(k) < r

    def some(share: float) -> Float64[np.ndarray, "m 1 1"]:
        return (10 ** rng.uniform(-3, 0.5, m) * (rng.random(m) < share))[:, None, None]

    # Both kinds of noise, in used and in unused columns, change W by about κ, since factors are of size √ρ.
    noise = np.where(nonzero, some(0.7) * kappa / np.sqrt(rhos * C)[:, None, None], some(0.5) * np.sqrt(kappa))
    # Move some points to anywhere in the ball.
    noise = noise + some(0.15) * np.sqrt(rhos * C / k)[:, None, None]
    K, Q = (
        np.sqrt(rhos)[:, None, None] * np.pad(x, ((0, 0), (0, k - r))) + noise * rng.standard_normal((m, len(x), k))
        for x in (svm.K, svm.Q)
    )
    tilt = np.exp(some(0.3) * np.sqrt(kappa / rhos)[:, None, None] * rng.standard_normal((m, 1, k)))
    K, Q = K * tilt, Q / tilt
    a, z, _ = bounds.certificate.floats
    weights = softmax(-value_of(bounds.margins(K @ Q.mT)), axis=1)
    down = np.einsum("mj,ja,jb->mab", weights, a, z) * (some(0.5) * kappa / (rhos * C)[:, None, None])
    K, Q = K + down @ Q, Q + down.mT @ K
    size = half_squares(K, Q)
    shrunk = np.sqrt(np.minimum(1.0, rhos * C * (1 - INSIDE) / size))[:, None, None]
    return K * shrunk, Q * shrunk


def half_squares(K: Float64[np.ndarray, "m d k"], Q: Float64[np.ndarray, "m e k"]) -> Float64[np.ndarray, "m"]:
    """Compute ½(‖K‖² + ‖Q‖²)."""
    return np.asarray(((K**2).sum(axis=(1, 2)) + (Q**2).sum(axis=(1, 2))) / 2)
