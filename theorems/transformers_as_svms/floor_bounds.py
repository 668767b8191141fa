"""Bounds of log n(L(W) − L_⋆) from softmax weights, slopes of the loss and margins; derived in :mod:`.risk_floor`.

References: *Transformers as Support Vector Machines*, Lemma 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.bounded import exact
from theorems.core.claim_name import sharper, stated_claim
from theorems.core.key_rows import key_rows
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import AttentionAt, Numbers

IN_LOGARITHMS = "except for a kernel, whose risks do not resolve the difference"
EXCESS_AT_LEAST = stated_claim("excess-at-least", when=IN_LOGARITHMS)
LEAST_BY_SLOPES = sharper("excess-at-least-by-slopes", when=IN_LOGARITHMS)
LEAST_BY_MARGINS = sharper("excess-at-least-by-margins", when=IN_LOGARITHMS)
EXCESS_AT_MOST = sharper("excess-at-most", when=IN_LOGARITHMS)
MOST_BY_SLOPES = sharper("excess-at-most-by-slopes", when=IN_LOGARITHMS)
MOST_BY_MARGINS = sharper("excess-at-most-by-margins", when=IN_LOGARITHMS)


@dataclass(frozen=True, eq=False)
class FloorBounds:
    """Lower and upper bounds of n(L − L_⋆) at b points, for problems where one token of each input is strictly best.

    Attributes:
        at: softmax attention at b points.
    """

    at: AttentionAt

    @cached_property
    def _others(self) -> Bool[np.ndarray, "n T"]:
        return np.arange(self.at.problem.T) != self.at.problem.optimal[:, None]

    @cached_property
    def _log_gaps(self) -> Numbers:
        """The logarithms of γ_i,opt − γ_it, with 0 in place of −∞ at opt; (n, T)."""
        return log_gaps(self.at.problem)

    @cached_property
    def log_losses(self) -> Numbers:
        """The logarithms of δ_i = Σ_t s_it (γ_i,opt − γ_it); (b, n)."""
        terms: Any = np.where(self._others, self.at.log_weights + self._log_gaps, -np.inf)
        return np.logaddexp.reduce(terms, axis=-1)

    @cached_property
    def log_costs(self) -> Numbers:
        """The logarithms of C_i (γ_i,opt − γ_it), −∞ at opt; (n, T).

        C_i is the largest |ℓ'| between the scores of input i.
        """
        bounds = of_each(self.at.problem, "log_bound")
        return np.where(self._others, bounds[:, None] + self._log_gaps, -np.inf)

    @cached_property
    def margins(self) -> Numbers:
        """The margins h_it = (k_i,opt − k_it)·p, 0 at opt; (b, n, T)."""
        problem = self.at.problem
        return np.vecdot(key_rows(problem, problem.optimal), self.at.points[:, None, None])

    @cached_property
    def lower(self) -> dict[str, Numbers]:
        """The logarithms of lower bounds of n(L − L_⋆) by name of claim, (b, 1), or (b, n) for a bound per input."""
        problem, losses = self.at.problem, self.log_losses
        bent = losses - np.exp(losses) * of_each(problem, "steepening") / 2
        least: Any = np.min(np.where(self._others, self.margins, np.inf), axis=-1)
        return {
            EXCESS_AT_LEAST: total(of_each(problem, "log_floor") + losses),
            LEAST_BY_SLOPES: total(self._log_slopes + bent),
            LEAST_BY_MARGINS: smallest_gaps(problem) - np.logaddexp(0.0, least),
        }

    @cached_property
    def upper(self) -> dict[str, Numbers]:
        """The logarithms of upper bounds of n(L − L_⋆) by the name of the claim, (b, 1)."""
        problem, losses = self.at.problem, self.log_losses
        curved = of_each(problem, "log_lipschitz") - np.log(exact(2.0)) + 2 * losses
        by_token = np.where(self._others, self.log_costs - self.margins, -np.inf)
        return {
            EXCESS_AT_MOST: total(of_each(problem, "log_bound") + losses),
            MOST_BY_SLOPES: total(np.logaddexp(self._log_slopes + losses, curved)),
            MOST_BY_MARGINS: total(np.logaddexp.reduce(by_token, axis=-1)),
        }

    @cached_property
    def _log_slopes(self) -> Numbers:
        """The logarithms of |ℓ'(γ_i,opt)|, (n,)."""
        return self.at.problem.loss.log_slope(exact(self.at.problem.scores.max(axis=1)))


def total(log_terms: Any) -> Numbers:
    """Return log Σ e^x over the last axis of the logarithms x = ``log_terms``, (b, 1)."""
    return np.logaddexp.reduce(log_terms, axis=-1, keepdims=True)


def log_gaps(problem: Problem) -> Numbers:
    """Return log(γ_i,opt − γ_it), with 0 in place of −∞ at opt; (n, T)."""
    gaps: Any = exact(problem.scores.max(axis=1))[:, None] - problem.scores
    return np.log(np.where(np.arange(problem.T) != problem.optimal[:, None], gaps, 1.0))


def smallest_gaps(problem: Problem) -> Numbers:
    """Return log(c_i Γ_i), (n,), where c_i is the least |ℓ'| and Γ_i the least score gap of input i."""
    others = np.arange(problem.T) != problem.optimal[:, None]
    return of_each(problem, "log_floor") + np.min(np.where(others, log_gaps(problem), np.inf), axis=-1)


def of_each(problem: Problem, method: str) -> Numbers:
    """Return the bound that the loss's ``method`` gives for the scores of each input, (n,), with rounding errors."""
    low, high = problem.scores.min(axis=1), problem.scores.max(axis=1)
    bound = getattr(problem.loss, method)
    values: Float64[np.ndarray, "n"] = np.array(
        [bound(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)], dtype=np.float64
    )
    return approximate(values, np.where(np.isfinite(values), 8 * EPS * (1 + np.abs(values)), 0.0))
