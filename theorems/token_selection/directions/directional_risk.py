"""Explicit bounds of the risk along a direction, from the direction's margins; all constants are logarithms.

Let x be a unit vector. The risk along x is compared with L_α, the risk when every input i selects the single token α_i.
Let a_it = (k_iα_i − k_it)·x be the margin of token t, g_it = γ_iα_i − γ_it its score gap, s_it its softmax weight at p
= R x, and δ_i = Σ_t s_it g_it, split by the sign of g into δ_i = δ_i⁺ − δ_i⁻. On the interval of the scores of input i,
|ℓ'| lies in [c_i, C_i], and the mean value theorem gives, whatever the sign of δ_i,

    c_i δ_i⁺ − C_i δ_i⁻ ≤ ℓ(γ_iα_i − δ_i) − ℓ(γ_iα_i) ≤ C_i δ_i⁺ − c_i δ_i⁻.                                      (*)

If all a ≥ 0, then e^{−Ra}/T ≤ s ≤ e^{−Ra}. Tokens with g > 0 ("lower", they raise the risk) and with g < 0
("higher", they lower it) therefore compete only through their smallest margins, up to the constants

    S_low = Σ C_i g_it over lower tokens,    S_high = Σ C_i |g_it| over higher tokens.

Tokens of equal score do not matter.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 8 and 9, equations (62)–(64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64

from reference_attention.directions import Direction
from reference_attention.exact import to_float
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.bounded import Bounded, exact, value_of
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import excess_of
from theorems.rounding.sized_numbers import Sized

LOG2 = math.log(2.0)
FACTORS = (1 + 2.0**-10, 2.0, 10.0, 1e3, 1e6)
"""The radii at which risks are compared, in units of a lemma's radius R0: the first just beyond R0, the others far out.
"""
NEARER = (1.0, 8.0, 64.0)
"""Radii at which inequalities that hold at every radius are tried, in units of 1/θ, where θ is the direction's margin.
"""


def with_unit_rounding(x: Any, units: int = 2) -> Bounded:
    """Return floats x with an error of ``units`` units in the last place: 2 for numbers of a :class:`.Direction`."""
    finite = np.isfinite(x)
    return Bounded(x, np.where(finite, units * EPS * np.abs(np.where(finite, x, 0.0)), 0.0))


def with_loss_rounding(x: Any) -> Bounded:
    """Return logarithms x of a loss's constants as bounded arrays, with the error 8 eps (1 + |x|) of their formulas."""
    finite = np.isfinite(x)
    return Bounded(x, np.where(finite, 8 * EPS * (1 + np.abs(np.where(finite, x, 0.0))), 0.0))


def log_sum(values: Numbers) -> Numbers:
    """Return the logarithm of Σ e^{values}; −inf if there are no values."""
    return np.logaddexp.reduce(values.ravel()) if values.size else exact(-math.inf)


@dataclass(frozen=True, eq=False)
class Costs:
    """The cost of weight on each token t ≠ α_i: the score gap g_it, and its products with the bounds c_i ≤ |ℓ'| ≤ C_i.

    Attributes:
        problem: keys, scores, loss.
        alpha: the tokens α, one per input, with whose risk L_α other risks are compared, shape (n,).
        gaps: the score gaps g_it = γ_iα_i − γ_it, shape (n, T).
        log_gaps: log|g_it|, −inf where g = 0, shape (n, T).
        log_largest, log_smallest: log C_i + log|g_it| and log c_i + log|g_it|, where C_i and c_i are the largest and
            the smallest |ℓ'| on the scores of input i, shape (n, T).
        log_curvature: the logarithm of the Lipschitz constant of ℓ' on the scores of each input, shape (n,).
    """

    problem: Problem
    alpha: Int64[np.ndarray, "n"]
    gaps: Float64[np.ndarray, "n T"]
    log_gaps: Numbers
    log_largest: Numbers
    log_smallest: Numbers
    log_curvature: Numbers

    @classmethod
    def of(cls, problem: Problem, alpha: Int64[np.ndarray, "n"]) -> Costs:
        """Return the costs for a problem and the tokens α."""
        chosen_scores = np.take_along_axis(problem.scores, alpha[:, None], axis=1)
        log_gaps: Any = np.log(np.abs(exact(chosen_scores) - problem.scores))
        ranges = [(float(row.min()), float(row.max())) for row in problem.scores]
        loss = problem.loss
        return cls(
            problem,
            alpha,
            problem.gaps(alpha),
            log_gaps,
            log_gaps + with_loss_rounding(np.array([loss.log_bound(*r) for r in ranges]))[:, None],
            log_gaps + with_loss_rounding(np.array([loss.log_floor(*r) for r in ranges]))[:, None],
            with_loss_rounding(np.array([loss.log_lipschitz(*r) for r in ranges])),
        )

    def excess(self, points: Numbers, under_test: Implementation, claim: str) -> Sized:
        """Return n (L(p) − L_α) under test, (*b,), at points (*b, d); if it is NaN, ``claim`` is falsified."""
        return excess_of(under_test, self.problem, points, self.alpha, claim) * self.problem.n

    @property
    def log_T(self) -> Numbers:
        """The logarithm of T."""
        return np.log(exact(self.problem.T))

    @property
    def lower(self) -> Bool[np.ndarray, "n T"]:
        """The mask of tokens that score below α."""
        return np.asarray(self.gaps > 0)

    @property
    def higher(self) -> Bool[np.ndarray, "n T"]:
        """The mask of tokens that score above α."""
        return np.asarray(self.gaps < 0)

    @cached_property
    def log_low(self) -> Numbers:
        """The logarithm of S_low = Σ C_i g_it over tokens that score below α; C_i is the largest |ℓ'| of input i."""
        return log_sum(self.log_largest[self.lower])

    @cached_property
    def log_high(self) -> Numbers:
        """The logarithm of S_high = Σ C_i |g_it| over tokens that score above α; C_i is the largest |ℓ'| of input i."""
        return log_sum(self.log_largest[self.higher])

    @cached_property
    def rows(self) -> Float64[np.ndarray, "n T d"]:
        """The rows k_iα_i − k_it, rounded, shape (n, T, d)."""
        keys = self.problem.keys
        return np.asarray(np.take_along_axis(keys, self.alpha[:, None, None], axis=1) - keys)

    @cached_property
    def reach(self) -> float:
        """The largest norm B of a row k_iα_i − k_it, rounded up.

        Margins at directions x and x' differ by at most B‖x − x'‖.
        """
        return float(np.linalg.norm(self.rows, axis=2).max()) * (1 + (self.problem.d + 4) * EPS)


@dataclass(frozen=True, eq=False)
class NearestTokens:
    """The tokens of smallest margin along a direction among given tokens, such as those that score lower than α.

    Attributes:
        least: the exact margin of these tokens for the direction as given, not normalized; None (+∞) if there are no
            such tokens.
        margin: the margin of these tokens for the unit vector of the direction.
        log_weight: log Σ c_i |g_it| over these tokens, with the smallest slope c_i and the gaps g_it of :class:`Costs`;
            −inf if there are no such tokens.
    """

    least: fmpq | None
    margin: Numbers
    log_weight: Numbers

    @classmethod
    def among(cls, q: Direction, costs: Costs, mask: Bool[np.ndarray, "n T"]) -> NearestTokens:
        """Return the tokens of smallest margin along q among those that are True in the mask."""
        least = min((q.exact[i][t] for i, t in np.argwhere(mask)), default=None)
        leading = [bool(m) and x == least for x, m in zip(sum(q.exact, ()), mask.ravel(), strict=True)]
        margin = with_unit_rounding(math.inf if least is None else float_of(least, q))
        return cls(least, margin, log_sum(costs.log_smallest.ravel()[np.array(leading)]))


def along(q: Direction, radii: Float64[np.ndarray, "r"]) -> Numbers:
    """Return the points R q̄ at the radii R = ``radii``, where q̄ is the unit vector of q, (r, d)."""
    return radii[:, None] * with_unit_rounding(q.unit)


def resolved_radii(costs: Costs, radii: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "s"]:
    """Return the radii R at which the rounding error of L(R x) − L_α is below half of its size, for any unit vector x.

    An exponent R a_it has the error e = 4 (d + 10) eps R B, B of :attr:`Costs.reach`, which is the relative error of
    each term of the sum n (L(R x) − L_α). By (*) of the module's docstring, which also defines c and C, this sum is at
    least min c/C times its upper bound. So e max C/c must be at most a quarter.
    """
    unequal = costs.gaps != 0
    ranges = value_of(costs.log_largest[unequal] - costs.log_smallest[unequal])
    spread = math.exp(min(float(ranges.max(initial=0.0)), 690.0))
    return np.asarray(radii[4 * (costs.problem.d + 10) * EPS * radii * costs.reach * spread <= 0.25])


def crossing(log_constant: Numbers, gap: float) -> float:
    """Return the least R ≥ 0 with e^{log_constant} e^{−R·gap} ≤ 1; ∞ if there is none."""
    log_constant = float(value_of(log_constant))
    if log_constant == -math.inf or gap == math.inf:
        return 0.0
    return max(0.0, log_constant / gap) if gap > 0 else math.inf


def float_of(x: fmpq, q: Direction) -> float:
    """Return the exact number x divided by ‖q‖, as a float."""
    return to_float(x) / q.norm
