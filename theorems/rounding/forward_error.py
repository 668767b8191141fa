"""Forward error bounds of float64, the ``rounding=`` of the finite-point claims.

Notation: EPS = 2u with u = 2⁻⁵³ the unit roundoff. A bound that an analysis gives with u is stated here with
EPS: the factor two pays for *two* independent evaluations, the one under test and the statement's own.
The tests confirm each bound with ball arithmetic, and that it is not absurdly loose.

References: N. Higham, *Accuracy and Stability of Numerical Algorithms*, Sections 3.1 (inner products) and
4.2 (summation); P. Blanchard, D. Higham, N. Higham, *Accurately computing the log-sum-exp and softmax
functions*.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from theorems.core.tolerances import tolerance

LOG_WEIGHTS = tolerance(
    "log-weights",
    "s_t (e^{e_t + Σ_u s_u e_u + eps (T + 6 + 2|log s_t|)} − 1), e_t = (d + 3) eps Σ_j |δk_tj p_j|",
    "forward_error.log_weight_error: the logits are differences of rounded keys times p, summed; log-sum-exp"
    " adds T + 4 roundings; eps is twice the unit roundoff, which pays for the two evaluations compared",
)
COSINE_ROUNDING = tolerance("cosine-rounding", "(d + 4) eps", "an inner product of d terms divided by two norms")

UNDERFLOW = 2.0**-1000
"""What float64 may lose below its range, relative to quantities of order one."""


def logit_error(
    differences: Float64[np.ndarray, "*b n T d"], p: Float64[np.ndarray, "*b d"]
) -> Float64[np.ndarray, "*b n T"]:
    """Error of the logit differences δk·p: (d + 3) EPS Σ_j |δk_j p_j|.

    Each term is a rounded difference times p_j, two roundings; the sum of d of them adds at most d − 1 more,
    in any order: |error| ≤ ((1 + u)^{d+1} − 1) Σ_j |δk_j p_j|.
    """
    return np.asarray((p.shape[-1] + 3) * EPS * dot(np.abs(differences), np.abs(p)))


def log_weight_error(
    logits: Float64[np.ndarray, "*b n T"], log_weights: Float64[np.ndarray, "*b n T"]
) -> Float64[np.ndarray, "*b n T"]:
    """Absolute error of log s_t, hence relative error of s_t, when the logits have the errors ``logits``.

    log s_t = l_t − log Σ_u e^{l_u}. The derivative of the second part with respect to l_u is s_u, so errors
    e_u of the logits move log s_t by at most e_t + Σ_u s_u e_u. Exponentials, their sum and the logarithm
    add at most T + 4 relative roundings of the sum, the subtractions one rounding of each result: EPS (T + 6
    + 2 |log s_t|).
    """
    mean = np.sum(np.exp(log_weights) * logits, axis=-1, keepdims=True)
    error = logits + mean + EPS * (logits.shape[-1] + 6 + 2 * np.abs(log_weights))
    return np.asarray(error)


def relative_error(log_error: Float64[np.ndarray, "*b"]) -> Float64[np.ndarray, "*b"]:
    """Relative error of e^x when x has the absolute error ``log_error``: e^{error} − 1."""
    return np.asarray(np.expm1(log_error))


def dot_error(
    a: Float64[np.ndarray, "*#b d"], b: Float64[np.ndarray, "*#b d"], a_error: Float64[np.ndarray, "*#b d"]
) -> Float64[np.ndarray, "..."]:
    """Error of Σ_j a_j b_j when a_j has the error ``a_error`` and b_j was rounded once from its exact value.

    Σ_j |b_j| a_error_j + (d + 2) EPS Σ_j |a_j b_j|.
    """
    size = np.abs(b)
    rounded = (a.shape[-1] + 2) * EPS * np.sum(np.abs(a) * size, axis=-1)
    return np.asarray(np.sum(a_error * size, axis=-1) * (1 + 4 * EPS) + rounded)


def dot(rows: Float64[np.ndarray, "*#b n T d"], p: Float64[np.ndarray, "*#b d"]) -> Float64[np.ndarray, "... n T"]:
    """rows·p per token, summed term by term (no BLAS, whose order of summation depends on the machine)."""
    return np.asarray(np.sum(rows * p[..., None, None, :], axis=-1))
