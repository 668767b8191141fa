"""Sign and logarithm of L(p) − L_α with its rounding error, for any loss, computed fast enough for a search.

L_α is the risk if every input selects its token α_i. Only hunts use this module; other claims propagate rounding errors
through every operation instead.

References: N. Higham, *Accuracy and Stability of Numerical Algorithms*, Sections 3.1 and 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS, log_expm1
from reference_attention.risk import log_excess_risk
from theorems.bounded import value_of
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.token_selection.directions.directional_risk import Costs

EXCESS_RISK = tolerance(
    "excess-risk",
    "ν = (1/n) Σ_it C_i |g_it| s_it (e^{err(log s_it)} − 1); plus 8 eps |log|",
    "noisy_excess: L(p) − L_α is a sum of terms of either sign, each with the relative error of its softmax weight",
)


@dataclass(frozen=True, eq=False)
class Excess:
    """Sign and logarithm of L(p) − L_α from the implementation under test, with a bound of the rounding error.

    L_α is the risk if every input selects its token α_i.

    Attributes:
        sign: the sign of L(p) − L_α, shape (*b,).
        log_size: log |L(p) − L_α|, shape (*b,).
        log_noise: the logarithm of a bound of the absolute rounding error of L(p) − L_α, shape (*b,).
    """

    sign: Float64[np.ndarray, "*b"]
    log_size: Float64[np.ndarray, "*b"]
    log_noise: Float64[np.ndarray, "*b"]

    @classmethod
    def at(cls, costs: Costs, points: Float64[np.ndarray, "*b d"], under_test: Implementation) -> Excess:
        """Compute L(p) − L_α and its rounding error at points p, (*b, d); α are the tokens of ``costs``."""
        problem = costs.problem
        sign, size = under_test[log_excess_risk](problem.keys, problem.scores, problem.loss, points, costs.alpha)
        return cls(np.asarray(sign, dtype=np.float64), np.asarray(size, dtype=np.float64), log_noise(costs, points))


def log_noise(costs: Costs, points: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b"]:
    """Return log of a bound of the absolute error of L(p) − L_α: (1/n) Σ_it C_i |g_it| s_it (e^{err(log s_it)} − 1).

    C_i is the largest |ℓ'| on the scores of input i, g_it = γ_iα − γ_it, s_it the softmax weight, err a bound of an
    error. A logit difference has the error (d + 8) EPS Σ_j |δk_j p_j| (δk: the difference of keys), which allows for
    rounding p; the error of the token of largest logit is added, from whose logit the implementation computes
    differences. Errors e_t of the logits l_t change log s_t = l_t − log Σ e^l by at most e_t + Σ s_u e_u; computing log
    s_t adds T + 6 roundings, and two of the size of log s_t. Relative to each term, the loss, its logarithms and the
    two sums add EPS (n + T + 24) plus EPS times the size of each logarithm.
    """
    problem, rows = costs.problem, costs.rows
    logits = -np.einsum("ntd,...d->...nt", rows, points)
    error = (problem.d + 8) * EPS * np.einsum("ntd,...d->...nt", np.abs(rows), np.abs(points))
    now = np.argmax(logits, axis=-1)[..., None]
    error = error + np.take_along_axis(error, now, axis=-1)
    relative = logits - np.take_along_axis(logits, now, axis=-1)
    log_weights = relative - np.log(np.sum(np.exp(relative), axis=-1, keepdims=True))
    log_largest = value_of(costs.log_largest)
    finite = np.where(np.isfinite(log_largest), log_largest, 0.0)
    roundings = EPS * (problem.n + 2 * problem.T + 30 + 4 * np.abs(log_weights) + 4 * np.abs(finite))
    total = error + np.sum(np.exp(log_weights) * error, axis=-1, keepdims=True) + roundings
    terms = log_weights + log_expm1(total) + log_largest
    return np.asarray(np.logaddexp.reduce(terms.reshape(*terms.shape[:-2], -1), axis=-1) - math.log(problem.n))
