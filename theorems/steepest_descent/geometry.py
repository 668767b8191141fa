"""The rows g_it = k_i,opt − k_it in a norm: the largest margin γ, the rows' dual norms and their distances.

‖·‖_* is the dual norm, D the largest ‖g‖_* of a row g, and D' the largest distance ‖g − h‖_* of two rows.

References: :mod:`reference_attention.svm.norm_max_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int64

from generators.case import Case
from reference_attention.exact import products, to_floats
from reference_attention.norms import Norm, Schatten, conjugate, name_of
from reference_attention.outer_keys import Keys
from reference_attention.problem import Problem
from reference_attention.svm.norm_max_margin import NormMaxMargin, Rational, norm_max_margin, rational_rows
from theorems.bounded import with_rounding
from theorems.core.claim import Claim, Ended, Form, Undecided, Verdict
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.margin_claim import NORM_MARGIN, margin_claim
from theorems.steepest_descent.norms import norm_bound, norm_of

NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)
"""The values of q for the norms ‖·‖_q; each case uses two. q = 1 gives coordinate descent, q = ∞ sign descent."""
BESIDE = (2.0, math.inf, 1.0)
"""The norms used besides the spectral norm if W is trained: 2 is ‖·‖_F, ∞ the largest entry, 1 the nuclear norm."""
FEW = 256
"""The largest number of rows for which D', their largest distance, is taken over all pairs; for more rows D' is 2D."""


def norms_tried(case: Case, rng: np.random.Generator) -> list[Norm]:
    """Return two norms for a case.

    If a prompt p is trained, these are two of :data:`NORMS`; if W is trained, the spectral norm (Muon) and one of
    :data:`BESIDE`.
    """
    if case.queried is None:
        return list(rng.choice(NORMS, 2, replace=False).tolist())
    shape, beside = case.queried.shape, float(rng.choice(BESIDE))
    return [Schatten(math.inf, shape), Schatten(1.0, shape) if beside == 1 else beside]


class RowGeometry:
    """The rows g_j of a max-margin problem in one norm; a subclass defines the rows.

    The margin of p is m(p) = min g_j·p, the largest margin is γ = max m(p) over ‖p‖ = 1, and ‖·‖_* is the dual norm.

    Attributes:
        solution: the point p of the largest margin, and its duals.
    """

    solution: NormMaxMargin

    @property
    def exact_rows(self) -> list[Rational]:
        """The rows g_j over the rationals, (N, d)."""
        raise NotImplementedError

    @cached_property
    def rows(self) -> Numbers:
        """The rows g_j, (N, d)."""
        raise NotImplementedError

    @property
    def norm(self) -> Norm:
        """The norm: q of ‖·‖_q, or a norm of matrices."""
        return self.solution.norm

    def length(self, x: Any) -> Numbers:
        """Return ‖x‖ over the last axis."""
        return norm_of(x, self.norm)

    def dual_length(self, x: Any) -> Numbers:
        """Return the dual norm ‖x‖_* over the last axis; for ‖·‖_q it is ‖x‖_q' with 1/q + 1/q' = 1."""
        return norm_of(x, conjugate(self.norm))

    def norm_bound(self, entries: Any) -> Numbers:
        """Return an upper bound of ‖x‖ over all x with |x_j| ≤ entries_j."""
        return norm_bound(entries, self.norm)

    def dual_norm_bound(self, entries: Any) -> Numbers:
        """Return an upper bound of ‖x‖_* over all x with |x_j| ≤ entries_j."""
        return norm_bound(entries, conjugate(self.norm))

    @cached_property
    def reach(self) -> Numbers:
        """The largest dual norm D = max ‖g‖_* of a row."""
        return np.max(self.dual_length(self.rows))

    @cached_property
    def diameter(self) -> Numbers:
        """The largest distance D' = max ‖g − h‖_* of two rows; the bound 2D for more than :data:`FEW` rows."""
        if len(self.rows) > FEW:
            return 2 * self.reach
        apart: Any = self.rows[:, None] - self.rows[None]
        # A row has distance 0 from itself, whatever its error bound.
        same = np.eye(len(self.rows), dtype=bool)
        return np.max(np.where(same, 0.0, self.dual_length(apart)))

    @cached_property
    def margin(self) -> Numbers:
        """The lower bound min g_j·p/‖p‖ of γ for the solution p, with products g_j·p computed over the rationals."""
        least = min(products(self.exact_rows, self.solution.exact_p))
        return with_rounding(to_floats([least]))[0] / self.length(with_rounding(self.solution.p))

    def margins(self, p: Any) -> Numbers:
        """Return m(p) = min g_j·p, (*b,)."""
        return np.min(p @ self.rows.T, axis=-1)


@dataclass(frozen=True, eq=False)
class Geometry(RowGeometry):
    """The rows g_it = k_i,opt − k_it of attention in one norm.

    Attributes:
        problem: keys and scores.
        solution: the point p of the largest margin, and its duals.
    """

    problem: Problem
    solution: NormMaxMargin

    @property
    def exact_rows(self) -> list[Rational]:
        """The rows g_it over the rationals, (N, d)."""
        return rational_rows(self.problem.exact_keys, self.problem.optimal)

    @cached_property
    def rows(self) -> Numbers:
        """The rows g_it, t ≠ opt_i, (N, d)."""
        others = np.arange(self.problem.T) != self.problem.optimal[:, None]
        return key_rows(self.problem, self.problem.optimal)[np.asarray(others)]


def certify_margin(
    problem: Problem, norm: Norm, under_test: Implementation, keys: Keys | None = None
) -> Generator[Claim, None, Geometry]:
    """Yield the claim that no p with ‖p‖ = 1 has a larger margin than the solution under test; return the geometry.

    Args:
        problem: keys and scores.
        norm: q of ‖·‖_q, or a norm of matrices.
        under_test: the implementation under test.
        keys: the problem's keys as products x zᵀ of two factors, which the solver for the nuclear norm needs. By
            default the keys stored in the problem.

    Raises:
        Undecided: the solver found no solution.
        Ended: the claim is false.
    """
    keys = problem.exact_keys if keys is None else keys
    solution = yield from certify_norm_margin(keys, problem.optimal, norm, under_test)
    return Geometry(problem, solution)


def certify_norm_margin(
    keys: Keys, alpha: Int64[np.ndarray, "n"], norm: Norm, under_test: Implementation
) -> Generator[Claim, None, NormMaxMargin]:
    """Yield the claim of :func:`certify_margin` for the given keys and tokens α, and return the solution.

    Raises:
        Undecided: the solver found no solution.
        Ended: the claim is false.
    """
    solution = under_test[norm_max_margin](keys, alpha, norm)
    if solution is None:
        why = f"the solver found no max-margin point in the {name_of(norm)} norm"
        raise Undecided(NORM_MARGIN, why, Form.EXACT, not_found=True)
    claim = margin_claim(keys, alpha, norm, solution)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    return solution
