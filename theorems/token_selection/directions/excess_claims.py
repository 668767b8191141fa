"""Comparing risks of any magnitude: L(p) − L_α by sign and logarithm, its rounding, and claims about it.

References: N. Higham, *Accuracy and Stability of Numerical Algorithms*, Section 4.2;
:mod:`theorems.rounding.forward_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS, log_expm1
from theorems.core.claim import Claim, Form, at_least, undecided
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.forward_error import log_weight_error
from theorems.token_selection.directions.directional_risk import Costs

EXCESS_RISK = tolerance(
    "excess-risk",
    "log(1 + ν/(|left| + ν)) ≤ log 2, ν = (1/n) Σ_it C_i |g_it| s_it (e^{err(log s_it)} − 1); plus 16 eps |log|",
    "excess_claims: L(p) − L_α is a sum of terms of either sign, each with the relative error of its softmax"
    " weight; two such sums are compared in logarithms after the error has been added to both sides",
)

LogBound = float | Float64[np.ndarray, "..."]
"""Logarithm of a bound, that broadcasts against the points."""


@dataclass(frozen=True, eq=False)
class Excess:
    """Sign and logarithm of L(p) − L_α as the implementation under test has it, and how far rounding reaches.

    Attributes:
        sign, log_size: shape (*b,).
        log_noise: logarithm of the absolute error, shape (*b,).
    """

    sign: Float64[np.ndarray, "*b"]
    log_size: Float64[np.ndarray, "*b"]
    log_noise: Float64[np.ndarray, "*b"]

    @classmethod
    def at(cls, costs: Costs, points: Float64[np.ndarray, "*b d"], under_test: Implementation) -> Excess:
        problem = costs.problem
        sign, size = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, points, costs.alpha)
        return cls(np.asarray(sign, dtype=np.float64), np.asarray(size, dtype=np.float64), log_noise(costs, points))

    @property
    def log_positive(self) -> Float64[np.ndarray, "*b"]:
        """log max(L − L_α, 0)."""
        return np.where(self.sign > 0, self.log_size, -np.inf)

    @property
    def log_negative(self) -> Float64[np.ndarray, "*b"]:
        """log max(L_α − L, 0)."""
        return np.where(self.sign < 0, self.log_size, -np.inf)

    @property
    def parts(self) -> tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]:
        """Both."""
        return self.log_positive, self.log_negative


def log_noise(costs: Costs, points: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b"]:
    """Logarithm of the absolute error of L(p) − L_α: (1/n) Σ_it C_i |g_it| s_it (e^{err(log s_it)} − 1).

    A logit difference has the error (d + 8) EPS Σ_j |δk_j p_j|, that of the reference token used by the implementation
    on top; p is rounded itself. The loss, its logarithms and the two sums add EPS (n + T + 24) plus EPS times the size
    of each logarithm, relative to each term.
    """
    problem, rows = costs.problem, costs.rows
    logits = -np.einsum("ntd,...d->...nt", rows, points)
    error = (problem.d + 8) * EPS * np.einsum("ntd,...d->...nt", np.abs(rows), np.abs(points))
    now = np.argmax(logits, axis=-1)[..., None]
    error = error + np.take_along_axis(error, now, axis=-1)
    relative = logits - np.take_along_axis(logits, now, axis=-1)
    log_weights = relative - np.log(np.sum(np.exp(relative), axis=-1, keepdims=True))
    finite = np.where(np.isfinite(costs.log_largest), costs.log_largest, 0.0)
    further = EPS * (problem.n + problem.T + 24 + 2 * np.abs(log_weights) + 4 * np.abs(finite))
    total = log_weight_error(error, log_weights) + further
    terms = log_weights + log_expm1(total) + costs.log_largest
    return np.asarray(np.logaddexp.reduce(terms.reshape(*terms.shape[:-2], -1), axis=-1) - math.log(problem.n))


def dominates(name: str, form: Form, larger: Excess, smaller: Excess, points: str) -> Claim:
    """The claim that the excess ``larger`` is at least ``smaller``; see :func:`signed_at_least`."""
    noise = np.logaddexp(larger.log_noise, smaller.log_noise)
    return signed_at_least(name, form, larger.parts, smaller.parts, noise, points)


Parts = tuple[Float64[np.ndarray, "..."], Float64[np.ndarray, "..."]]
"""Logarithms of the positive and the negative part of a number."""


def signed_at_least(
    name: str, form: Form, left: Parts, right: Parts, log_noise: Float64[np.ndarray, "..."], points: str
) -> Claim:
    """left ≥ right for signed numbers of any magnitude: l⁺ + r⁻ + noise ≥ r⁺ + l⁻ + noise, compared in logarithms.

    With the noise ν on both sides the claim may miss by it: tolerance log(1 + ν/(l⁺ + r⁻ + ν)) ≤ log 2, plus the
    rounding of the logarithms themselves. Where ν is as large as both sides it could not fail: such points count for
    nothing, and a claim that has no other is undecided.
    """
    top, bottom = np.logaddexp(left[0], right[1]), np.logaddexp(right[0], left[1])
    top, bottom, log_noise = np.broadcast_arrays(top, bottom, log_noise)
    # A NaN is no noise: it is kept, and fails.
    seen = ~(np.maximum(top, bottom) <= log_noise)
    if not seen.any():
        why = f"at every {points} rounding is larger than the risks compared: the limit lies beyond float64"
        return undecided(name, why, form)
    top, bottom, log_noise = (x[seen] for x in (top, bottom, log_noise))
    top, bottom = np.logaddexp(top, log_noise), np.logaddexp(bottom, log_noise)
    size = np.maximum(np.abs(top), np.abs(bottom))
    size = np.where(np.isfinite(size), size, 0.0)
    allowed = np.log1p(np.exp(np.minimum(log_noise - top, 0.0))) + 16 * EPS * (1 + size)
    return at_least(name, form, top, bottom, rounding=allowed, why=EXCESS_RISK, points=points)


def above(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≥ e^{log_bound}, one that is positive."""
    return at_least_difference(name, form, found, log_bound, -np.inf, points)


def below(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≤ e^{log_bound}."""
    return at_most_difference(name, form, found, log_bound, -np.inf, points)


def below_zero(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≤ −e^{log_bound}."""
    return at_most_difference(name, form, found, -np.inf, log_bound, points)


def above_minus(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≥ −e^{log_bound}."""
    return at_least_difference(name, form, found, -np.inf, log_bound, points)


def at_least_difference(name: str, form: Form, found: Excess, gained: LogBound, lost: LogBound, points: str) -> Claim:
    """L − L_α ≥ e^{gained} − e^{lost}."""
    return signed_at_least(name, form, found.parts, _pair(found, gained, lost), found.log_noise, points)


def at_most_difference(name: str, form: Form, found: Excess, lost: LogBound, gained: LogBound, points: str) -> Claim:
    """L − L_α ≤ e^{lost} − e^{gained}."""
    return signed_at_least(name, form, _pair(found, lost, gained), found.parts, found.log_noise, points)


def _pair(found: Excess, positive: LogBound, negative: LogBound) -> tuple[np.ndarray, np.ndarray]:
    shape = found.log_size.shape
    return np.broadcast_to(positive, shape), np.broadcast_to(negative, shape)
