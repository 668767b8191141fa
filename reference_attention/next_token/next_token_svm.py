"""NTP-SVM, exact: the θ of least norm with equal logits on each extended support, and margins of at least 1 elsewhere.

In the notation of :mod:`.extended_supports`, θ_mm = argmin ‖θ‖ subject to (a_jz − a_jz')·θ = 0 within Ŝ_j and (a_jz −
a_jv)·θ ≥ 1 for v ∉ Ŝ_j. It is orthogonal to F, the span of the differences within the Ŝ_j. With the part g_jv of a_jz −
a_jv orthogonal to F and the duals λ ≥ 0, θ_mm = Σ λ_jv g_jv and Σ λ_jv = ‖θ_mm‖². The problem is always feasible; θ_mm
= 0 if every alternative is in its Ŝ_j.

References: arXiv 2402.18551, Definition 3 (Ŝ = S); derived here for Ŝ ≠ S.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64

from reference_attention.errors import InvalidInput
from reference_attention.exact import combination, products, to_floats
from reference_attention.next_token.extended_supports import Pair, separate_pairs, signed_multipliers, signed_rows
from reference_attention.next_token.master_problem import MasterProblem, Vector
from reference_attention.svm.max_margin import Infeasible


@dataclass(frozen=True, eq=False)
class NextTokenSvm:
    """The solution θ_mm, with multipliers that prove it: θ_mm = Σ λ_jv (a_jz − a_jv) + Σ μ_jz' (a_jz − a_jz').

    Attributes:
        sets: a mask of the alternatives in Ŝ_j, (m, K).
        point: the solution θ_mm, D rationals.
        duals: the duals λ_jv > 0 of inequalities, by pairs (j, v) with v ∉ Ŝ_j; all others are 0.
        multipliers: the multipliers μ_jz' of equalities, of either sign, by pairs (j, z') with z' ∈ Ŝ_j.
    """

    sets: Bool[np.ndarray, "m K"]
    point: Vector
    duals: dict[Pair, fmpq]
    multipliers: dict[Pair, fmpq]

    @cached_property
    def norm_squared(self) -> fmpq:
        """Return ‖θ_mm‖²."""
        return sum((x * x for x in self.point), fmpq(0))

    @cached_property
    def floats(self) -> Float64[np.ndarray, "D"]:
        """Return θ_mm, each entry rounded once."""
        return to_floats(self.point)

    def margins(self, problem: MasterProblem) -> dict[Pair, fmpq]:
        """Return the margins (a_jz − a_jv)·θ_mm, exactly, by pairs (j, v)."""
        rows = problem.differences
        return dict(zip(rows, products(list(rows.values()), self.point), strict=True))

    def error(self, problem: MasterProblem) -> str:
        """Check the KKT conditions over the rationals and return the first that is violated; empty if none is."""
        margins, rows = self.margins(problem), problem.differences
        if any(margin != 0 if self.sets[pair] else margin < 1 for pair, margin in margins.items()):
            return "θ_mm does not tie Ŝ, or a margin is below 1"
        if any(weight < 0 or self.sets[pair] or margins[pair] != 1 for pair, weight in self.duals.items()):
            return "a dual is negative, or positive where the margin is not 1"
        if not all(self.sets[pair] for pair in self.multipliers):
            return "a multiplier of an equality belongs to an alternative outside Ŝ"
        weights = {**self.duals, **self.multipliers}
        total = combination([rows[pair] for pair in weights], list(weights.values()), problem.dimension)
        return "" if total == self.point else "θ_mm is not the combination of the rows with the multipliers"


def next_token_svm(problem: MasterProblem, sets: Bool[np.ndarray, "m K"]) -> NextTokenSvm | Infeasible:
    """Solve NTP-SVM for ``sets``: the extended supports Ŝ, for which it is feasible, or the supports S.

    >>> problem = MasterProblem.of_tokens([[1.0]], [[2, 1, 0]])
    >>> next_token_svm(problem, problem.supports).point
    [1/3, 1/3, -2/3]
    """
    if (problem.supports & ~sets).any():
        raise InvalidInput("sets: an alternative that followed its context is missing; include problem.supports.")
    separated = [pair for pair in problem.pairs if not sets[pair]]
    if not separated:
        return NextTokenSvm(sets, [fmpq(0)] * problem.dimension, {}, {})
    solution = separate_pairs(problem, separated, sets)
    if isinstance(solution, Infeasible):
        return solution
    weights = signed_multipliers(signed_rows(problem, sets), solution.exact.duals)
    duals = {pair: x for pair, x in weights.items() if not sets[pair] and x != 0}
    return NextTokenSvm(
        sets, list(solution.exact.p), duals, {pair: x for pair, x in weights.items() if sets[pair] and x != 0}
    )
