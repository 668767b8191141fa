"""Rows, constants and risk for the statement on several queries per input, independent of the code under test.

References: *Transformers as Support Vector Machines*, sequence outputs (appendix).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import log_excess_risk
from reference_attention.sequence_dataset import SequencePart
from reference_attention.sequence_risk import sequence_excess
from reference_attention.svm.sequence_max_margin import SequenceMaxMargin
from theorems.bounded import Bounded, exact, value_of, with_rounding
from theorems.core.claim import NotANumber
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.rounding.approximations import approximate, bend
from theorems.rounding.attention_at import Numbers
from theorems.rounding.excess_risk import excess
from theorems.rounding.sized_numbers import Sized


@dataclass(frozen=True, eq=False)
class SequenceRows:
    """The constraints of ATT-SVM for the optimal tokens of all queries, and the constants of the bounds.

    Shapes: points (b, d); each part has m queries that see T' tokens.

    Attributes:
        parts: the queries, grouped by the number of tokens that they see.
        under_test: the implementation whose risk is bounded.
        reported: the same groups (parts) as the implementation under test returned them.
    """

    parts: tuple[SequencePart, ...]
    under_test: Implementation
    reported: Sequence[SequencePart]

    @property
    def problems(self) -> list[Problem]:
        """The attention problem of each part, in which every query is an input."""
        return [part.problem for part in self.parts]

    @property
    def total(self) -> int:
        """The number M of all queries."""
        return self.parts[0].total

    @property
    def count(self) -> int:
        """The number N of constraints."""
        return sum(problem.n * (problem.T - 1) for problem in self.problems)

    @cached_property
    def rows(self) -> list[Numbers]:
        """The rows (x_iα − x_it) z_ikᵀ of each part, (m (T' − 1), d)."""
        return [key_rows(problem, problem.optimal)[_others(problem)] for problem in self.problems]

    @cached_property
    def stacked_rows(self) -> Numbers:
        """The rows of all parts, (N, d)."""
        return np.concatenate(self.rows)

    @cached_property
    def log_gaps(self) -> list[Numbers]:
        """The logarithms of the score gaps γ_α − γ_t of each part, (m, T' − 1)."""
        gaps = [
            (exact(problem.scores.max(axis=1))[:, None] - problem.scores)[_others(problem)].reshape(problem.n, -1)
            for problem in self.problems
        ]
        return [np.log(gap) for gap in gaps]

    @cached_property
    def log_costs(self) -> list[Numbers]:
        """The logarithms of c_t = |ℓ'(γ_α)| (γ_α − γ_t) of each part, (m, T' − 1)."""
        best = [exact(problem.scores.max(axis=1))[:, None] for problem in self.problems]
        slopes = [problem.loss.log_slope(top) for problem, top in zip(self.problems, best, strict=True)]
        return [slope + gap for slope, gap in zip(slopes, self.log_gaps, strict=True)]

    @cached_property
    def log_slope_bounds(self) -> Numbers:
        """The logarithms of c_max and c_min, bounds of |ℓ'| on the range of all scores, (2,)."""
        low = min(problem.score_range[0] for problem in self.problems)
        high = max(problem.score_range[1] for problem in self.problems)
        loss = self.problems[0].loss
        bounds = np.array([loss.log_bound(low, high), loss.log_floor(low, high)])
        return approximate(bounds, 8 * EPS * (1 + np.abs(bounds)))

    @cached_property
    def log_kappa(self) -> Numbers:
        """The logarithm κ = log(2N c_max Γ_max / (c_min Γ_min)), Γ being score gaps and c bounds of |ℓ'|."""
        steep, flat = self.log_slope_bounds
        gaps: Any = np.concatenate([gap.ravel() for gap in self.log_gaps])
        return np.log(exact(2 * self.count)) + (steep - flat) + (np.max(gaps) - np.min(gaps))

    @cached_property
    def log_least_gap(self) -> Numbers:
        """The logarithm of the least score gap Γ_min."""
        return np.min(np.concatenate([gap.ravel() for gap in self.log_gaps]))

    @cached_property
    def bent(self) -> Numbers:
        """The largest b of :func:`bend` over the parts, for losses that are not convex; 0 for convex losses."""
        loss = self.problems[0].loss
        tops = np.concatenate([problem.scores.max(axis=1) for problem in self.problems])
        lengths = np.concatenate([problem.gaps().max(axis=1) for problem in self.problems])
        return bend(loss, tops, lengths)

    def margins(self, points: Numbers) -> list[Numbers]:
        """Return the margins (x_iα − x_it)ᵀ W z_ik of each part, (b, m, T' − 1), at the points vec(W), (b, d)."""
        flat = zip(self.rows, self.problems, strict=True)
        return [(points @ rows.T).reshape(len(points), problem.n, problem.T - 1) for rows, problem in flat]

    def excess(self, points: Numbers) -> Sized:
        """Return the excess M(L(W) − L_⋆), (b,), for M queries; only ℓ is shared with the implementation under test."""
        parts = [excess(problem, points, problem.optimal) * exact(problem.n) for problem in self.problems]
        return reduce(add, parts)

    def plain_log_excess(self, points: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b"]:
        """Return log(L(W) − L_⋆) of the implementation under test, NaN where its L(W) − L_⋆ is negative."""
        sign, size = self.under_test[sequence_excess](self.reported, points, self.under_test[log_excess_risk])
        return np.where(sign > 0, size, np.where(sign == 0, -np.inf, np.nan))

    def excess_under_test(self, points: Numbers, claim: str) -> Sized:
        """Return M(L(W) − L_⋆) under test with twice the error bound of :meth:`excess`, as correct code rounds, too."""
        sign, size = self._signed_log_excess(points, claim)
        ours = self.excess(points)
        log_size: Any = exact(size) + np.log(exact(self.total))
        unit = np.maximum(value_of(log_size), ours.log_unit)
        unit = np.where(np.isfinite(unit), unit, 0.0)
        allowed = 2 * (ours.x.error * np.exp(exact(ours.log_unit) - unit))
        x: Bounded = sign * np.exp(log_size - unit)
        return Sized.of(x.widen(allowed.value + allowed.error), unit)

    def log_excess_under_test(self, points: Numbers, claim: str) -> Numbers:
        """Return log(M(L(W) − L_⋆)) of the implementation under test.

        Raises:
            NotANumber: the difference is negative by more than its rounding error.
        """
        sign, size = self._signed_log_excess(points, claim)
        ours = self.excess(points).log
        finite = np.isfinite(ours.error)
        if (finite & (sign <= 0)).any():
            raise NotANumber(claim, "L(W) ≤ L_⋆ under test")
        theirs: Any = exact(np.where(finite, size, 0.0)) + np.log(exact(self.total))
        return np.where(finite, theirs.widen(2 * np.where(finite, ours.error, 0.0)), ours)

    def _signed_log_excess(
        self, points: Numbers, claim: str
    ) -> tuple[Float64[np.ndarray, "b"], Float64[np.ndarray, "b"]]:
        excesses = self.under_test[sequence_excess](self.reported, value_of(points), self.under_test[log_excess_risk])
        sign, size = (np.asarray(x, dtype=np.float64) for x in excesses)
        if not (np.isfinite(sign).all() and (size < np.inf).all()):
            raise NotANumber(claim, "the excess risk under test is not finite")
        return sign, np.where(sign == 0, -np.inf, size)


def dual_value(rows: SequenceRows, svm: SequenceMaxMargin) -> Numbers:
    """Return D = Σ w_j log(c_j/w_j), with w = λ/Σλ for the duals λ and the c_j of :attr:`SequenceRows.log_costs`.

    By Jensen's inequality D is at most log Σ c_j e^{−g_j·y} for every y ⊥ W^mm, where g_j are the rows.
    """
    all_duals = np.concatenate([duals[_others(q)] for duals, q in zip(svm.duals, rows.problems, strict=True)])
    costs: Any = np.concatenate([cost.ravel() for cost in rows.log_costs])
    duals: Any = with_rounding(all_duals[all_duals > 0])
    w = duals / np.sum(duals)
    return np.sum(w * (costs[all_duals > 0] - np.log(w)))


def _others(problem: Problem) -> Any:
    """Return the mask of the non-optimal tokens, (n, T)."""
    return np.arange(problem.T) != problem.optimal[:, None]
