"""Predicates of assumptions on margins: ATT-SVM is feasible, α is locally optimal, the start lies in a cone.

What the solver of ATT-SVM returns is checked here against the keys, over the rationals: a solution by the KKT
conditions, infeasibility by Farkas multipliers. So a wrong result of the solver never becomes a finding that an
assumption holds or fails.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM), Definition 2, Theorem 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat, fmpz, fmpz_mat
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.finding import Finding, entries, format_tokens, fraction, number
from generators.score_assumptions import strict_optimum
from reference_attention.exact import LIMB, Dyadic, combination, from_limbs, products, rational
from reference_attention.outer_keys import Keys, OuterKeys, rational_keys
from reference_attention.svm.certificate import MOST_LIMBS
from reference_attention.svm.max_margin import Infeasible, max_margin

Vector = list[fmpq]


def dot(a: Vector, b: Vector) -> fmpq:
    """Return a·b over the rationals."""
    return products([a], b)[0]


def exact_vector(values: Float64[np.ndarray, "d"]) -> Vector:
    """Return a float vector as exact rationals."""
    return [rational(x) for x in values.tolist()]


def difference_rows(keys: Keys, alpha: Int64[np.ndarray, "n"]) -> dict[tuple[int, int], Vector]:
    """Return the exact rows k_iα_i − k_it, t ≠ α_i, by the pair (i, t) of input and token."""
    (n, T, _), tokens = keys.shape, rational_keys(keys).tolist()
    return {
        (i, t): [a - b for a, b in zip(tokens[i * T + int(alpha[i])], tokens[i * T + t], strict=True)]
        for i in range(n)
        for t in range(T)
        if t != alpha[i]
    }


def is_farkas_proof(rows: Mapping[Any, Vector], weights: Mapping[Any, fmpq]) -> bool:
    """Return whether the weights are Farkas multipliers, which prove that no p has positive products with all rows.

    They are if no weight is negative, some weight is positive, and the weighted sum of the rows is zero.
    """
    if not set(weights) <= set(rows) or any(w < 0 for w in weights.values()) or not any(weights.values()):
        return False
    d = len(next(iter(rows.values())))
    return not any(combination([rows[at] for at in weights], list(weights.values()), d))


@dataclass(frozen=True, eq=False)
class ExactRows:
    """The rows g_j = k_iα_i − k_it, t ≠ α_i, as integers over one common denominator, for fast exact arithmetic.

    Attributes:
        pairs: the pair (i, t) of each row.
        numerators: the integers, (m, d).
        over: the common denominator.
    """

    pairs: list[tuple[int, int]]
    numerators: fmpz_mat
    over: fmpz

    @classmethod
    def of(cls, keys: Keys, alpha: Int64[np.ndarray, "n"]) -> ExactRows:
        """Return the rows of keys, (n, T, d); the keys may be given as products of tokens and queries."""
        n, T, _ = keys.shape
        pairs = [(i, t) for i in range(n) for t in range(T) if t != alpha[i]]
        if not isinstance(keys, OuterKeys):
            whole = Dyadic.of(keys)
            if whole.shifts.max() <= MOST_LIMBS * LIMB:
                limbs, (i, t) = whole.limbs(), np.array(pairs).T
                numerators = from_limbs(limbs[:, i, alpha[i]] - limbs[:, i, t])
                unit = fmpz(1) << abs(whole.exponent)
                return cls(
                    pairs, numerators * (unit if whole.exponent > 0 else 1), unit if whole.exponent < 0 else fmpz(1)
                )
        rows = difference_rows(keys, alpha)
        return cls(pairs, *fmpq_mat([rows[pair] for pair in pairs]).numer_denom())

    def combine(self, weights: Mapping[tuple[int, int], fmpq]) -> tuple[fmpz_mat, fmpq]:
        """Return the sum of the rows g_j times ``weights`` as integers, (d, 1), with a rational factor of all of them.

        Raises:
            KeyError: a weight belongs to no row.
        """
        if not weights:
            return fmpz_mat(self.numerators.ncols(), 1), fmpq(1)
        numerators, over = fmpq_mat(len(weights), 1, list(weights.values())).numer_denom()
        return self._rows_of(weights).transpose() * numerators, fmpq(1, over * self.over)

    def products(self, weights: Mapping[tuple[int, int], fmpq]) -> dict[tuple[int, int], fmpq]:
        """Return, by (i, t), the product of every row with the sum of the rows times ``weights``.

        Raises:
            KeyError: a weight belongs to no row.
        """
        if not weights:
            return dict.fromkeys(self.pairs, fmpq(0))
        numerators, over = fmpq_mat(len(weights), 1, list(weights.values())).numer_denom()
        # Multiply rows by rows first: these products have far fewer digits than the entries of the weighted sum.
        values = ((self.numerators * self._rows_of(weights).transpose()) * numerators).entries()
        unit = fmpq(1, over * self.over * self.over)
        return {pair: x * unit for pair, x in zip(self.pairs, values, strict=True)}

    def _rows_of(self, weights: Mapping[tuple[int, int], fmpq]) -> fmpz_mat:
        if list(weights) == self.pairs:
            return self.numerators
        place = {pair: j for j, pair in enumerate(self.pairs)}
        entries = self.numerators.tolist()
        return fmpz_mat([entries[place[pair]] for pair in weights])


@dataclass(frozen=True)
class CheckedMargins:
    """The solution of ATT-SVM(α), or a proof that there is none, and the result of checking it exactly.

    Attributes:
        margins: (k_iα_i − k_it)·p_mm by (i, t), exact; empty if ATT-SVM(α) is infeasible.
        evidence: a text with ‖p_mm‖ and the number of SVM-neighbours, or with the largest Farkas multipliers, rounded.
        exact: ‖p_mm‖², or the Farkas multipliers, as rationals in text, for JSON.
        proven: whether the exact check succeeded; ``False`` means that the solver's answer is wrong.
    """

    margins: dict[tuple[int, int], fmpq]
    evidence: str
    proven: bool = True
    exact: Mapping[str, Any] = field(default_factory=dict)
    _point: Callable[[], Vector] | None = None

    @property
    def feasible(self) -> bool:
        """Return whether ATT-SVM(α) is feasible, so that p_mm(α) exists."""
        return self._point is not None

    @cached_property
    def p(self) -> Vector | None:
        """The solution p_mm(α), d rationals; ``None`` if ATT-SVM(α) is infeasible.

        The solution is computed on demand, because its rationals are long if d is large.
        """
        return None if self._point is None else self._point()


@dataclass(frozen=True)
class _Rows:
    """A cache key made of keys k_it and chosen tokens α; cache keys are equal if the bytes of their arrays are."""

    content: tuple[bytes | tuple[int, ...], ...]
    keys: Keys = field(compare=False)
    alpha: Int64[np.ndarray, "n"] = field(compare=False)

    @classmethod
    def of(cls, keys: Keys, alpha: Int64[np.ndarray, "n"]) -> _Rows:
        parts = (keys.tokens, keys.queries) if isinstance(keys, OuterKeys) else (keys,)
        return cls((*(part.tobytes() for part in (*parts, alpha)), keys.shape), keys, alpha)


def checked_margins(keys: Keys, alpha: Int64[np.ndarray, "n"]) -> CheckedMargins:
    """Solve ATT-SVM(α) and check the solution over the rationals.

    If p = Σ λ_j g_j for duals λ ≥ 0 of the rows g_j = k_iα_i − k_it, all margins g_j·p are at least 1, and they are
    exactly 1 where λ_j > 0, then p is p_mm. These conditions need only the products g_j·g_l of rows, so that p is not
    computed. The last results are cached, as several assumptions need the same keys.
    """
    return solve_and_check(_Rows.of(keys, alpha))


@lru_cache(maxsize=4)
def solve_and_check(problem: _Rows) -> CheckedMargins:
    """Solve ATT-SVM(α) and check the solution, as :func:`checked_margins` says; results are cached."""
    keys, alpha = problem.keys, problem.alpha
    rows = ExactRows.of(keys, alpha)
    solution = max_margin(keys, alpha)
    if isinstance(solution, Infeasible):
        weights = solution.exact
        valid = set(weights) <= set(rows.pairs) and all(w >= 0 for w in weights.values()) and any(weights.values())
        proven = valid and not any(rows.combine(weights)[0].entries())
        nonzero = {pair: w for pair, w in weights.items() if w != 0}
        multipliers = entries(
            [f"({i},{t}): {fraction(w)}" for (i, t), w in sorted(nonzero.items(), key=lambda pair: -pair[1])]
        )
        evidence = f"the differences k_iα − k_it weighted by λ = {{{multipliers}}} add up to 0, so no p separates"
        if not proven:
            evidence = "the solver reports ATT-SVM as infeasible, but its Farkas multipliers do not prove this"
        return CheckedMargins({}, evidence, proven, {"λ": {f"{i},{t}": str(w) for (i, t), w in nonzero.items()}})
    nonzero = {pair: w for pair, w in solution.exact.duals.items() if w != 0}
    margins = rows.products(nonzero) if set(nonzero) <= set(rows.pairs) else {}
    optimal = (
        bool(margins)
        and all(m >= 1 for m in margins.values())
        and all(w >= 0 for w in nonzero.values())
        and all(margins[pair] == 1 for pair in nonzero)
    )
    if not optimal:
        return CheckedMargins({}, "the solver's p_mm does not satisfy the KKT conditions exactly", False)

    def point() -> Vector:
        numerators, unit = rows.combine(nonzero)
        return [x * unit for x in numerators.entries()]

    # ‖p‖² = Σ λ_j g_j·p = Σ λ_j, since the margin g_j·p is 1 where the dual λ_j is positive.
    square = sum(nonzero.values(), fmpq(0))
    norm = math.sqrt(float(square))
    tight = sum(m == 1 for m in margins.values())
    evidence = f"‖p_mm‖ = {norm:.6g}, {tight} of {len(margins)} tokens are SVM-neighbours"
    return CheckedMargins(margins, evidence, exact={"‖p_mm‖²": str(square)}, _point=point)


def separable(case: Case) -> Finding:
    """Check that ATT-SVM(α) is feasible for the chosen tokens α, by default the optimal tokens."""
    checked = checked_margins(case.problem.exact_keys, case.chosen_tokens)
    if not checked.proven:
        return Finding(None, checked.evidence)
    return Finding(checked.feasible, checked.evidence, checked.exact)


def optimal_tokens_tied(case: Case) -> Finding:
    """Check that one token of each input scores highest, and that ATT-SVM of these tokens is infeasible."""
    strict = strict_optimum(case)
    if strict.holds is not True:
        return strict
    checked = checked_margins(case.problem.exact_keys, case.problem.optimal)
    return Finding(not checked.feasible if checked.proven else None, checked.evidence, checked.exact)


def locally_optimal(case: Case) -> Finding:
    """Check Definition 2: ATT-SVM(α) is feasible, and every SVM-neighbour scores strictly below the chosen token."""
    alpha, scores = case.chosen_tokens, case.problem.scores
    checked = checked_margins(case.problem.exact_keys, alpha)
    if not checked.proven:
        return Finding(None, checked.evidence)
    if not checked.feasible:
        return Finding(False, checked.evidence, checked.exact)
    gaps = {}
    for (i, t), margin in checked.margins.items():
        if margin == 1:
            chosen_score, other = float(scores[i, alpha[i]]), float(scores[i, t])
            if other >= chosen_score:
                return Finding(
                    False,
                    f"input {i}: token {t} is an SVM-neighbour (margin exactly 1) and scores"
                    f" {number(other, chosen_score)},"
                    f" not below the {number(chosen_score, other)} of token {alpha[i]}",
                )
            gaps[i, t] = chosen_score - other
    (i, t), gap = min(gaps.items(), key=lambda item: item[1])
    next_margin = min((m for m in checked.margins.values() if m != 1), default=None)
    next_said = "" if next_margin is None else f"; the least margin above 1 is 1 + {float(next_margin - 1):.3g}"
    return Finding(True, f"the least gap to an SVM-neighbour is {number(gap)}, to token {t} of input {i}{next_said}")


def separable_optimal_sets(case: Case) -> Finding:
    """Check that ATT-SVM' is feasible: some p separates an optimal token of each input from all non-optimal tokens.

    ATT-SVM' is the program of Appendix D. All choices of one optimal token per input are tried if there are at most
    :data:`MOST_CHOICES`; ATT-SVM' is feasible if one of the choices is.
    """
    keys, scores = case.problem.keys, case.problem.scores
    best = scores == scores.max(axis=1, keepdims=True)
    if best.all():
        return Finding(True, "every token is optimal, so ATT-SVM' has no constraint")
    choices = math.prod(int(row.sum()) for row in best)
    if choices > MOST_CHOICES:
        return Finding(None, f"there are more choices of optimal tokens than the {MOST_CHOICES} that are tried")
    refused = Finding(False, "")
    for code in np.ndindex(*(int(row.sum()) for row in best)):
        alpha = np.array([np.flatnonzero(row)[c] for row, c in zip(best, code, strict=True)], dtype=np.int64)
        constrained = only_non_optimal(keys, scores, alpha)
        checked = checked_margins(*constrained)
        if checked.proven and checked.feasible:
            return Finding(True, f"α = {format_tokens(alpha)}: {checked.evidence}", checked.exact)
        if not checked.proven:
            return Finding(None, checked.evidence)
        scope = "" if choices == 1 else f"all {choices} choices of optimal tokens are infeasible; for the last choice, "
        refused = Finding(False, f"{scope}{checked.evidence}", checked.exact)
    return refused


MOST_CHOICES = 4096
"""The largest number of choices of optimal tokens that :func:`separable_optimal_sets` tries."""


def only_non_optimal(
    keys: Float64[np.ndarray, "n T d"], scores: Float64[np.ndarray, "n T"], alpha: Int64[np.ndarray, "n"]
) -> tuple[Float64[np.ndarray, "m T d"], Int64[np.ndarray, "m"]]:
    """Return keys and chosen tokens whose ATT-SVM has exactly the constraints of ATT-SVM' for the optimal tokens α.

    Optimal tokens that α does not choose are replaced by a non-optimal token; inputs without a non-optimal token are
    left out.
    """
    blocks, chosen = [], []
    for block, row, a in zip(keys, scores, alpha, strict=True):
        worse = np.flatnonzero(row < row.max())
        if worse.size == 0:
            continue
        block = block.copy()
        block[(row == row.max()) & (np.arange(row.size) != a)] = block[worse[0]]
        blocks.append(block)
        chosen.append(int(a))
    return np.array(blocks), np.array(chosen, dtype=np.int64)


def in_cone(case: Case) -> Finding:
    """Check exactly that p(0) lies in the cone C_{μ,R}(p_mm(α)): cos(p(0), p_mm) ≥ 1 − μ and ‖p(0)‖ ≥ R.

    Squares are compared, so that nothing is rounded. The arrays ``cone_mu`` and ``cone_radius`` of the case, of shape
    (), are μ and R. Without a start p(0) the assumption holds: the statement then chooses starts inside the cone.
    """
    if case.start is None:
        return Finding(True, "no start is given; a start inside the cone is drawn")
    if "cone_mu" not in case.arrays or "cone_radius" not in case.arrays:
        return Finding(None, "the cone is not known; give cone_mu and cone_radius")
    mu, radius = rational(float(case.arrays["cone_mu"])), rational(float(case.arrays["cone_radius"]))
    checked = checked_margins(case.problem.keys, case.chosen_tokens)
    if not checked.proven:
        return Finding(None, checked.evidence)
    if checked.p is None:
        return Finding(False, checked.evidence, checked.exact)
    start, q = exact_vector(case.start), checked.p
    size = dot(start, start)
    length = math.sqrt(float(size))
    if size == 0 or size < radius * radius:
        return Finding(False, f"‖p(0)‖ = {number(length, radius)} is below R = {number(radius, length)}")
    along, least = dot(start, q), 1 - mu
    square = along * along - least * least * size * dot(q, q)
    inside = (along >= 0 and square >= 0) if least >= 0 else (along >= 0 or square <= 0)
    cosine = float(along) / length / math.sqrt(float(dot(q, q)))
    evidence = f"cos(p(0), p_mm) = {number(cosine, least)}, 1 − μ = {number(least, cosine)}"
    return Finding(bool(inside), f"{evidence}; ‖p(0)‖ = {length:.6g}, R = {float(radius):.6g}")
