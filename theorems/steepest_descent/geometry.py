"""The rows g_it = k_i,opt − k_it in ‖·‖_q: the largest margin γ, enclosed, and how long and far apart rows are.

References: :mod:`reference_attention.svm.norm_max_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import combination, products, to_floats
from reference_attention.problem import Problem
from reference_attention.svm.norm_max_margin import LINEAR, NormMaxMargin, conjugate, exact_norm, rational_rows
from theorems.bounded import Bounded, exact, value_of, with_rounding
from theorems.core.claim import Claim, Ended, Form, Undecided, Verdict
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.core.tolerances import EXACT, tolerance
from theorems.rounding.attention_at import Numbers

NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)
"""q of which a case takes some: coordinate descent, …, sign descent."""
ENCLOSED = 1e-5
"""What an enclosure of γ may be wide by, relatively: KKT residuals of 1e-7 that the solver accepts, and duals that are
fitted to them. For q = 1 and ∞ it is 0."""
FEW = 256
"""Rows that all pairs are taken of; of more, D' ≤ 2D."""

MARGIN_WIDTH = tolerance(
    "norm-margin-width",
    "1e-5 γ for 1 < q < ∞, 0 for q = 1, ∞",
    "for q = 1, ∞ both bounds of γ are rational and equal; otherwise they meet up to the residual of 1e-7 to which the"
    " KKT conditions are solved in floats, and everything that is claimed uses the lower bound",
)
NORM_MARGIN = premise("norm-margin-is-largest")


@dataclass(frozen=True, eq=False)
class Geometry:
    """The rows in one norm.

    Attributes:
        problem: keys, scores.
        solution: the point of the largest margin, and its duals.
    """

    problem: Problem
    solution: NormMaxMargin

    @property
    def norm(self) -> float:
        """q."""
        return self.solution.norm

    def length(self, x: Any) -> Numbers:
        """‖x‖_q over the last axis."""
        return length_of(x, self.norm)

    def dual_length(self, x: Any) -> Numbers:
        """‖x‖_* = ‖x‖_q' over the last axis."""
        return length_of(x, conjugate(self.norm))

    @cached_property
    def rows(self) -> Numbers:
        """g_it, t ≠ opt_i, (N, d)."""
        others = np.arange(self.problem.T) != self.problem.optimal[:, None]
        return key_rows(self.problem, self.problem.optimal)[np.asarray(others)]

    @cached_property
    def reach(self) -> Numbers:
        """D = max ‖g‖_*."""
        return np.max(self.dual_length(self.rows))

    @cached_property
    def diameter(self) -> Numbers:
        """D' = max ‖g − h‖_* over two rows."""
        if len(self.rows) > FEW:
            return 2 * self.reach
        apart: Any = self.rows[:, None] - self.rows[None]
        # Rows that are the same are not apart, whatever is known of them.
        same = np.eye(len(self.rows), dtype=bool)
        return np.max(np.where(same, 0.0, self.dual_length(apart)))

    @cached_property
    def margin(self) -> Numbers:
        """γ from below: min g·p/‖p‖_q of the point found, its margins over the rationals."""
        least = min(products(rational_rows(self.problem.exact_keys, self.problem.optimal), self.solution.exact_p))
        return with_rounding(to_floats([least]))[0] / self.length(with_rounding(self.solution.p))

    def margins(self, p: Any) -> Numbers:
        """m(p) = min g_it·p, (*b,)."""
        return np.min(p @ self.rows.T, axis=-1)


def length_of(x: Any, norm: float) -> Numbers:
    """‖x‖_q over the last axis; of numbers with an error, that of their values, and that of the errors as its error."""
    if isinstance(x, Bounded) and np.any(x.error > 0):
        own, off = length_of(exact(x.value), norm), length_of(exact(x.error), norm)
        return own.widen(off.value + off.error)
    size: Any = np.abs(x)
    if norm == 1:
        return np.sum(size, axis=-1)
    if math.isinf(norm):
        return np.max(size, axis=-1)
    if norm == 2:
        return np.linalg.norm(x, axis=-1)
    # In units of the largest entry, a float taken as exact: nothing overflows.
    unit = np.max(value_of(size), axis=-1)
    scaled = np.log(size / np.where(unit > 0, unit, 1.0)[..., None]) * norm
    total = np.maximum(np.sum(np.exp(scaled), axis=-1), 1.0)
    return np.exp(np.log(total) / norm) * unit


def certify_margin(problem: Problem, norm: float, under_test: Implementation) -> Generator[Claim, None, Geometry]:
    """The geometry, once the claim is made that no point of ‖p‖_q = 1 has a larger margin than the one found.

    Raises:
        Undecided: no solution was found.
        Ended: the claim fails.
    """
    found = under_test.norm_max_margin(problem.exact_keys, problem.optimal, norm)
    if found is None:
        raise Undecided(NORM_MARGIN, f"no point of the largest margin in ℓ{norm:g} was found", Form.EXACT)
    claim = margin_claim(problem, norm, found)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    return Geometry(problem, found)


def margin_claim(problem: Problem, norm: float, found: NormMaxMargin) -> Claim:
    """min g·p/‖p‖_q ≥ ‖Σλg‖_q'/Σλ: over the rationals for q = 1, ∞, otherwise up to :data:`ENCLOSED`.

    Weak duality, which makes it the largest one, needs only λ ≥ 0: Σλ min g·p ≤ Σλg·p ≤ ‖Σλg‖_q' ‖p‖_q.
    """
    rows = rational_rows(problem.exact_keys, problem.optimal)
    duals, p = list(found.exact_duals), list(found.exact_p)
    wrong = ""
    if found.norm != norm or len(p) != problem.d or len(duals) != len(rows):
        wrong = "it is another problem's"
    elif any(x < 0 for x in duals) or not sum(duals, fmpq(0)) > 0:
        wrong = "a dual is negative, or all are 0"
    elif not (least := min(products(rows, p))) > 0:
        wrong = "the point does not separate the optimal tokens"
    if wrong:
        return Claim(NORM_MARGIN, Form.EXACT, -np.inf, 0.0, EXACT, wrong)
    combined, total = combination(rows, duals, problem.d), sum(duals, fmpq(0))
    if norm in LINEAR:
        above, below = exact_norm(combined, conjugate(norm)) / total, least / exact_norm(p, norm)
        slack = float(to_floats([below / above - 1])[0])
        return Claim(NORM_MARGIN, Form.EXACT, slack, 0.0, EXACT, f"γ = {float(to_floats([below])[0]):.17g}")
    sides: Any = length_of(with_rounding(to_floats(combined)), conjugate(norm)) * length_of(
        with_rounding(to_floats(p)), norm
    )
    apart = 1 - sides / (with_rounding(to_floats([total]))[0] * with_rounding(to_floats([least]))[0])
    detail = f"γ is enclosed to {-float(apart.value):.3g}"
    return Claim(NORM_MARGIN, Form.EXACT, float(apart.value), ENCLOSED + float(apart.error), MARGIN_WIDTH, detail)
