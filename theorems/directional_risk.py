"""What the margins of a direction say about the risk along it, with explicit constants; all in logarithms.

Let x be a unit vector, α_i the token with which it is compared, a_it = (k_iα_i − k_it)·x, g_it = γ_iα_i − γ_it. At
p = R x put δ_i = Σ_t s_it g_it = δ_i⁺ − δ_i⁻, split by the sign of g. On the interval of the scores of input i, |ℓ'| lies
in [c_i, C_i], and the mean value theorem gives, whatever the sign of δ_i,

    c_i δ_i⁺ − C_i δ_i⁻ ≤ ℓ(γ_iα_i − δ_i) − ℓ(γ_iα_i) ≤ C_i δ_i⁺ − c_i δ_i⁻.                                      (*)

If all a ≥ 0, then e^{−Ra}/T ≤ s ≤ e^{−Ra}. Tokens with g > 0 ("lower", they raise the risk) and with g < 0 ("higher", they
lower it) therefore compete through their smallest margins alone, up to the constants

    S_low = Σ C_i g_it over lower tokens,    S_high = Σ C_i |g_it| over higher tokens,    both logarithms here.

Tokens of equal score do not matter.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 8 and 9, equations (62)–(64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64

from attention.directions import Direction
from attention.exact import to_float
from attention.implementation import Implementation
from attention.problem import Problem
from theorems.rounding import log_weight_error
from theorems.statement import Claim, Form, at_least
from theorems.tolerances import EPS

LOG2 = math.log(2.0)
FACTORS = (1 + 2.0**-10, 2.0, 10.0, 1e3, 1e6)
"""Radii in units of R0: just beyond it, and far out."""


def log_sum(values: Float64[np.ndarray, "*b"]) -> float:
    """log Σ e^{values}, −inf for nothing."""
    return float(np.logaddexp.reduce(values.ravel())) if values.size else -math.inf


@dataclass(frozen=True, eq=False)
class Costs:
    """What selecting other tokens than α costs, per token.

    Attributes:
        alpha: the tokens compared with, shape (n,).
        gaps: γ_iα_i − γ_it, shape (n, T).
        log_largest, log_smallest: log C_i + log|g_it| and log c_i + log|g_it|, −inf where g = 0, shape (n, T).
        log_curvature: log of the Lipschitz constant of ℓ' on the scores of an input, shape (n,).
    """

    problem: Problem
    alpha: Int64[np.ndarray, "n"]
    gaps: Float64[np.ndarray, "n T"]
    log_largest: Float64[np.ndarray, "n T"]
    log_smallest: Float64[np.ndarray, "n T"]
    log_curvature: Float64[np.ndarray, "n"]

    @classmethod
    def of(cls, problem: Problem, alpha: Int64[np.ndarray, "n"]) -> Costs:
        gaps = problem.gaps(alpha)
        ranges = [(float(row.min()), float(row.max())) for row in problem.scores]
        with np.errstate(divide="ignore"):
            log_gaps = np.log(np.abs(gaps))
        loss = problem.loss
        return cls(
            problem,
            alpha,
            gaps,
            log_gaps + np.array([loss.log_bound(*r) for r in ranges])[:, None],
            log_gaps + np.array([loss.log_floor(*r) for r in ranges])[:, None],
            np.array([loss.log_lipschitz(*r) for r in ranges]),
        )

    @property
    def lower(self) -> Bool[np.ndarray, "n T"]:
        """Tokens that score below α."""
        return np.asarray(self.gaps > 0)

    @property
    def higher(self) -> Bool[np.ndarray, "n T"]:
        """Tokens that score above α."""
        return np.asarray(self.gaps < 0)

    @cached_property
    def log_low(self) -> float:
        """log S_low."""
        return log_sum(self.log_largest[self.lower])

    @cached_property
    def log_high(self) -> float:
        """log S_high."""
        return log_sum(self.log_largest[self.higher])

    @cached_property
    def rows(self) -> Float64[np.ndarray, "n T d"]:
        """k_iα_i − k_it, rounded, shape (n, T, d)."""
        keys = self.problem.keys
        return np.asarray(np.take_along_axis(keys, self.alpha[:, None, None], axis=1) - keys)

    @cached_property
    def reach(self) -> float:
        """B: no margin moves by more than B‖x − x'‖; the largest row norm, rounded up."""
        return float(np.linalg.norm(self.rows, axis=2).max()) * (1 + (self.problem.d + 4) * EPS)


@dataclass(frozen=True, eq=False)
class Lead:
    """The tokens of smallest margin among the lower or the higher ones of a direction.

    Attributes:
        least: their margin in the units of the direction (exact); None (+∞) if there are none.
        log_weight: log Σ c_i |g_it| over those that attain it, −inf if there are none.
    """

    least: fmpq | None
    log_weight: float

    @classmethod
    def among(cls, found: Direction, costs: Costs, mask: Bool[np.ndarray, "n T"]) -> Lead:
        pairs = [(int(i), int(t)) for i, t in np.argwhere(mask)]
        least = min((found.exact[i][t] for i, t in pairs), default=None)
        leading = [costs.log_smallest[i, t] for i, t in pairs if found.exact[i][t] == least]
        return cls(least, log_sum(np.array(leading)))


def crossing(log_constant: float, gap: float) -> float:
    """The R from which e^{log_constant} e^{−R·gap} ≤ 1 on; 0 if it holds from the start."""
    if log_constant == -math.inf or gap == math.inf:
        return 0.0
    return max(0.0, log_constant / gap) if gap > 0 else math.inf


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
    # log(e^x − 1) without overflow.
    growth = np.where(total > 30, total, np.log(np.expm1(np.minimum(total, 30.0))))
    terms = log_weights + growth + costs.log_largest
    return np.asarray(np.logaddexp.reduce(terms.reshape(*terms.shape[:-2], -1), axis=-1) - math.log(problem.n))


def dominates(name: str, form: Form, larger: Excess, smaller: Excess, points: str) -> Claim:
    """The claim that the excess ``larger`` is at least ``smaller``; see :func:`signed_at_least`."""
    noise = np.logaddexp(larger.log_noise, smaller.log_noise)
    return signed_at_least(
        name, form, (larger.log_positive, larger.log_negative), (smaller.log_positive, smaller.log_negative), noise, points
    )


Parts = tuple[Float64[np.ndarray, "..."], Float64[np.ndarray, "..."]]
"""Logarithms of the positive and the negative part of a number."""


def signed_at_least(
    name: str, form: Form, left: Parts, right: Parts, log_noise: Float64[np.ndarray, "..."], points: str
) -> Claim:
    """left ≥ right for signed numbers of any magnitude: l⁺ + r⁻ + noise ≥ r⁺ + l⁻ + noise, compared in logarithms.

    With the noise ν on both sides the claim may miss by it: tolerance log(1 + ν/(l⁺ + r⁻ + ν)) ≤ log 2, plus the rounding
    of the logarithms themselves.
    """
    top = np.logaddexp(np.logaddexp(left[0], right[1]), log_noise)
    bottom = np.logaddexp(np.logaddexp(right[0], left[1]), log_noise)
    size = np.maximum(np.abs(top), np.abs(bottom))
    size = np.where(np.isfinite(size), size, 0.0)
    allowed = np.log1p(np.exp(np.minimum(log_noise - top, 0.0))) + 16 * EPS * (1 + size)
    return at_least(name, form, top, bottom, rounding=allowed, why="excess-risk", points=points)


def above(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≥ e^{log_bound}, one that is positive."""
    nothing = np.full_like(found.log_size, -np.inf)
    bound = np.broadcast_to(np.asarray(log_bound), nothing.shape)
    parts = (found.log_positive, found.log_negative)
    return signed_at_least(name, form, parts, (bound, nothing), found.log_noise, points)


def below(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≤ e^{log_bound}."""
    nothing = np.full_like(found.log_size, -np.inf)
    bound = np.broadcast_to(np.asarray(log_bound), nothing.shape)
    parts = (found.log_positive, found.log_negative)
    return signed_at_least(name, form, (bound, nothing), parts, found.log_noise, points)


def below_zero(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≤ −e^{log_bound}."""
    nothing = np.full_like(found.log_size, -np.inf)
    bound = np.broadcast_to(np.asarray(log_bound), nothing.shape)
    parts = (found.log_positive, found.log_negative)
    return signed_at_least(name, form, (nothing, bound), parts, found.log_noise, points)


def above_minus(name: str, form: Form, found: Excess, log_bound: Float64[np.ndarray, "..."], points: str) -> Claim:
    """L − L_α ≥ −e^{log_bound}."""
    nothing = np.full_like(found.log_size, -np.inf)
    bound = np.broadcast_to(np.asarray(log_bound), nothing.shape)
    parts = (found.log_positive, found.log_negative)
    return signed_at_least(name, form, parts, (nothing, bound), found.log_noise, points)


@dataclass(frozen=True, eq=False)
class Leading:
    """The first-order term of L(R x) − L_α: e^{−Rθ} (1/n) Σ_neighbours |ℓ'(γ_iα_i)| g_it, and its remainder."""

    sign: float
    log_constant: float
    log_remainder: Float64[np.ndarray, "r"]


def leading_term(found: Direction, costs: Costs, radii: Float64[np.ndarray, "r"]) -> Leading:
    """The leading term for the directional neighbours of x, with n(L − L_α)e^{Rθ} = D + r, |r| ≤ e^{log_remainder}.

    Remainder: other tokens contribute at most Σ |ℓ'| |g| e^{−R(a−θ)}; a neighbour's weight is e^{−Rθ}/Z with
    1 ≤ Z ≤ 1 + (T−1)e^{−Rθ}; and ℓ(u−δ) − ℓ(u) differs from |ℓ'(u)| δ by at most M0 δ²/2 where |δ| ≤ Σ_t |g| e^{−Ra}.
    """
    problem = costs.problem
    own = np.take_along_axis(problem.scores, costs.alpha[:, None], axis=1)
    with np.errstate(divide="ignore"):
        log_gaps = np.log(np.abs(costs.gaps))
    log_terms = np.broadcast_to(problem.loss.log_slope(own), log_gaps.shape) + log_gaps
    near = found.neighbours
    top = float(log_terms[near].max())
    total = float(np.sum(np.sign(costs.gaps[near]) * np.exp(log_terms[near] - top)))
    least = found.least
    assert least is not None, "there are neighbours"
    beyond = np.array([[float_of(x - least, found) for x in row] for row in found.exact])
    theta = found.margin
    other = ~near & (costs.gaps != 0)
    spread = log_terms[other] - radii[:, None] * beyond[other]
    rest = np.logaddexp.reduce(spread, axis=1) if spread.shape[1] else np.full(radii.shape, -np.inf)
    normaliser = log_sum(log_terms[near]) + math.log(problem.T - 1) - radii * theta
    each = np.where(costs.gaps == 0, -np.inf, log_gaps) - radii[:, None, None] * beyond
    bends = costs.log_curvature - LOG2 + 2 * np.logaddexp.reduce(each, axis=2) - radii[:, None] * theta
    curvature = np.logaddexp.reduce(bends, axis=1)
    remainder = np.logaddexp(np.logaddexp(rest, normaliser), curvature)
    with np.errstate(divide="ignore"):
        return Leading(float(np.sign(total)), top + math.log(abs(total)) if total else -math.inf, remainder)


def float_of(x: fmpq, found: Direction) -> float:
    """x/‖q‖ as a float."""
    return to_float(x) / found.norm


def sharp_claim(
    name: str, found: Direction, costs: Costs, radii: Float64[np.ndarray, "r"], under_test: Implementation
) -> Claim | None:
    """log n|L(R x) − L_α| + Rθ − log|D| ≈ 0 where the remainder is below |D|/2; None if it nowhere is."""
    lead = leading_term(found, costs, radii)
    usable = lead.log_remainder < lead.log_constant - LOG2
    if not usable.any():
        return None
    R = radii[usable]
    excess = Excess.at(costs, R[:, None] * found.unit, under_test)
    right_sign = excess.sign == lead.sign
    measured = np.where(right_sign, excess.log_size + math.log(costs.problem.n) + R * found.margin, np.inf)
    bound = -np.log1p(-np.exp(lead.log_remainder[usable] - lead.log_constant))
    predicted_noise = lead.log_constant - math.log(costs.problem.n) - R * found.margin
    relative = np.minimum(excess.log_noise - predicted_noise, 30.0)
    rounding = np.where(relative < -LOG2, -np.log1p(-np.exp(np.minimum(relative, -LOG2))), np.inf)
    rounding = rounding + 16 * EPS * (1 + np.abs(lead.log_constant) + R * found.margin)
    keep = np.isfinite(rounding)
    if not keep.any():
        return None
    return at_least(
        name, Form.SHARP, 0.0, np.abs(measured - lead.log_constant)[keep], rounding=(bound + rounding)[keep],
        why="leading-term", points="radius",
    )  # fmt: skip
