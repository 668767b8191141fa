"""What the margins of a direction say about the risk along it, with explicit constants; all in logarithms.

Let x be a unit vector, α_i the token with which it is compared, a_it = (k_iα_i − k_it)·x, g_it = γ_iα_i − γ_it. At
p = R x put δ_i = Σ_t s_it g_it = δ_i⁺ − δ_i⁻, split by the sign of g. On the interval of the scores of input i, |ℓ'|
lies in [c_i, C_i], and the mean value theorem gives, whatever the sign of δ_i,

    c_i δ_i⁺ − C_i δ_i⁻ ≤ ℓ(γ_iα_i − δ_i) − ℓ(γ_iα_i) ≤ C_i δ_i⁺ − c_i δ_i⁻.                                      (*)

If all a ≥ 0, then e^{−Ra}/T ≤ s ≤ e^{−Ra}. Tokens with g > 0 ("lower", they raise the risk) and with g < 0
("higher", they lower it) therefore compete through their smallest margins alone, up to the constants

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

from reference_attention.directions import Direction
from reference_attention.exact import to_float
from reference_attention.floats import EPS
from reference_attention.problem import Problem

LOG2 = math.log(2.0)
FACTORS = (1 + 2.0**-10, 2.0, 10.0, 1e3, 1e6)
"""Radii in units of R0: just beyond it, and far out."""
NEARER = (1.0, 8.0, 64.0)
"""Radii in units of 1/θ, for inequalities that hold at every radius."""


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


def told_apart(costs: Costs, radii: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "s"]:
    """The radii at which rounding leaves a risk its size.

    Its exponents are off by x = 4 (d + 10) eps R B, its terms by as much relatively, and it is at least min c/C of the
    bound of their sum: x C/c is at most a quarter.
    """
    ranges = costs.log_largest[costs.gaps != 0] - costs.log_smallest[costs.gaps != 0]
    spread = math.exp(min(float(ranges.max(initial=0.0)), 690.0))
    return np.asarray(radii[4 * (costs.problem.d + 10) * EPS * radii * costs.reach * spread <= 0.25])


def crossing(log_constant: float, gap: float) -> float:
    """The R from which e^{log_constant} e^{−R·gap} ≤ 1 on; 0 if it holds from the start."""
    if log_constant == -math.inf or gap == math.inf:
        return 0.0
    return max(0.0, log_constant / gap) if gap > 0 else math.inf


def float_of(x: fmpq, found: Direction) -> float:
    """x/‖q‖ as a float."""
    return to_float(x) / found.norm
