"""ATT-SVM: the max-margin direction that separates chosen tokens from the others, exact.

p_mm(α) = argmin ‖p‖ subject to (k_iα_i − k_it)·p ≥ 1 for all i and t ≠ α_i. Floats are rationals, so the
problem has a rational solution; :func:`max_margin` returns it, or an exact proof that there is none. Which
tokens are SVM-neighbours (margin 1) is thereby decided without a tolerance.

Source: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM) and Definition 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike, NDArray

from reference_attention.errors import InvalidInput
from reference_attention.exact import ratio, times_power_of_two
from reference_attention.html_table import html_table
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import as_array, checked_array, refuse_truth_values
from reference_attention.svm.certificate import Certificate, KeyRows
from reference_attention.svm.complementarity import maximal_duals
from reference_attention.svm.float_solution import FloatSolution, float_solution
from reference_attention.svm.least_norm import Outcome, least_norm


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The solution of ATT-SVM(α), exact.

    Attributes:
        alpha: the chosen token α_i of each input, shape (n,).
        p: p_mm(α), each entry the exact one rounded once, shape (d,).
        duals: λ ≥ 0 with p = Σ λ_it (k_iα_i − k_it), zero at α and where the margin exceeds the required one, shape (n,
            T). Other λ may also be possible; those returned belong to linearly independent rows.
        margins: (k_iα_i − k_it)·p, exactly 1.0 at neighbours, elsewhere up to rounding, +inf at α, shape (n, T).
        neighbours: mask of the SVM-neighbours (margin exactly 1), decided over the rationals, False at α, shape (n, T).
        exact: p, λ and margins as rational numbers.
        required: the margin required of each input, 1 throughout in ATT-SVM(α); where it is 0 (see :func:`max_margin`),
            ``neighbours`` are the tokens of margin exactly 0; shape (n,).

    >>> from theorems import max_margin
    >>> svm = max_margin(keys=[[[1, 0], [0, 1], [0, 0]]], alpha=[0])
    >>> svm
    MaxMargin(‖p_mm‖ = 1, margin 1/‖p_mm‖ = 1, 2 of 2 tokens are SVM-neighbours, 1 support; exact)
    >>> svm.p, svm.neighbours_of(0)
    (array([1., 0.]), array([1, 2]))
    >>> svm.exact.norm_squared
    1
    """

    alpha: Int64[np.ndarray, "n"]
    p: Float64[np.ndarray, "d"]
    duals: Float64[np.ndarray, "n T"]
    margins: Float64[np.ndarray, "n T"]
    neighbours: Bool[np.ndarray, "n T"]
    exact: Certificate
    required: Int64[np.ndarray, "n"]
    _rows: KeyRows = field(repr=False)
    _outcome: Outcome = field(repr=False)
    _guess: FloatSolution = field(repr=False)

    @property
    def supports(self) -> int:
        """Return the number of tokens with λ_it > 0 in ``duals``."""
        return len(self._outcome.support)

    def __repr__(self) -> str:
        """Return the norm, the margin, and the numbers of SVM-neighbours and of tokens with λ_it > 0, as text."""
        supports = f"{self.supports} support{'' if self.supports == 1 else 's'}"
        return (
            f"MaxMargin(‖p_mm‖ = {self.norm:g}, margin 1/‖p_mm‖ = {self.margin:g},"
            f" {self._count_text(self.neighbours)} tokens are SVM-neighbours, {supports}; exact)"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("‖p_mm‖", repr(self.norm)),
            ("margin 1/‖p_mm‖", repr(self.margin)),
            ("SVM-neighbours", self._count_text(self.neighbours)),
            ("supports, λ > 0", str(self.supports)),
            ("α", _entries(self.alpha)),
            ("p_mm", _entries(self.p)),
        ]
        return html_table("ATT-SVM(α): KKT conditions certified over the rationals", ("", ""), rows)

    def _count_text(self, marked: Bool[np.ndarray, "n T"]) -> str:
        """Return the number of marked tokens out of all tokens t ≠ α, as text."""
        n, tokens = marked.shape
        return f"{int(marked.sum())} of {n * (tokens - 1)}"

    @cached_property
    def norm(self) -> float:
        """Return ‖p_mm‖."""
        return math.hypot(*self.p.tolist())

    @property
    def margin(self) -> float:
        """Return the margin Θ = 1/‖p_mm‖."""
        return 1.0 / self.norm

    @cached_property
    def direction(self) -> Float64[np.ndarray, "d"]:
        """Return p̄_mm = p_mm/‖p_mm‖, shape (d,)."""
        return _freeze(self.p / self.norm)

    def neighbours_of(self, i: int) -> Int64[np.ndarray, "k"]:
        """Return the SVM-neighbours t of α_i, in increasing order."""
        return np.flatnonzero(self.neighbours[i]).astype(np.int64)

    @property
    def kkt_residual(self) -> float:
        """Return the relative violation of the KKT conditions by the float solution that started the exact method."""
        return self._guess.kkt_residual

    @cached_property
    def independent(self) -> bool:
        """Return whether the rows k_iα_i − k_it of all SVM-neighbours are linearly independent, decided exactly."""
        tight = np.flatnonzero(self._outcome.tight).tolist()
        if len(tight) == len(self._outcome.support):
            return True
        return len(tight) <= self.p.size and int(self._rows.integers(tight).rank()) == len(tight)

    @cached_property
    def exact_maximal_duals(self) -> dict[tuple[int, int], fmpq]:
        """Return duals λ_it, by (i, t), that are positive wherever any duals of p_mm are; all others are zero."""
        unit = -2 * self._rows.unit
        duals = maximal_duals(self._rows, self._outcome)
        return {self._rows.pair(j): times_power_of_two(x, unit) for j, x in duals.items()}

    @cached_property
    def dual_support(self) -> Bool[np.ndarray, "n T"]:
        """Return the mask of the neighbours t with λ_it > 0 for some duals of p_mm, decided exactly, shape (n, T)."""
        support = np.zeros(self.neighbours.shape, dtype=bool)
        for pair in self.exact_maximal_duals:
            support[pair] = True
        return _freeze(support)

    @property
    def exact_positive_duals(self) -> dict[tuple[int, int], fmpq] | None:
        """Return duals of p_mm, by (i, t), that are positive at every SVM-neighbour; None when there are none."""
        return self.exact_maximal_duals if self.strictly_complementary else None

    @cached_property
    def strictly_complementary(self) -> bool:
        """Return whether some duals of p_mm are positive at every SVM-neighbour; either answer is proven."""
        return len(self.exact_maximal_duals) == int(self.neighbours.sum())

    @cached_property
    def positive_duals(self) -> Float64[np.ndarray, "n T"] | None:
        """Return ``exact_positive_duals`` as floats, each rounded once, shape (n, T); None when there are none."""
        if self.exact_positive_duals is None:
            return None
        values = np.zeros(self.neighbours.shape)
        for pair, x in self.exact_positive_duals.items():
            values[pair] = ratio(x.p, x.q)
        return _freeze(_in_range(values))


@dataclass(frozen=True, eq=False)
class Infeasible:
    """A proof that no p satisfies the constraints of ATT-SVM(α).

    Attributes:
        alpha: the chosen tokens, shape (n,).
        multipliers: λ ≥ 0 with Σ λ_it (k_iα_i − k_it) = 0 and Σ λ = 1, the latter over the inputs of required
            margin 1 (Farkas); each entry rounded once; zero at α; shape (n, T).
        exact: the positive λ_it as rationals, by (i, t).

    >>> from theorems import max_margin
    >>> proof = max_margin(keys=[[[1, 0], [0, 0], [3, 0]]], alpha=[0])  # α lies between the others
    >>> proof
    Infeasible(no p separates α: Σ λ (k_α − k_t) = 0 with 2 λ > 0; exact)
    >>> proof.exact
    {(0, 1): 2/3, (0, 2): 1/3}
    """

    alpha: Int64[np.ndarray, "n"]
    multipliers: Float64[np.ndarray, "n T"]
    exact: dict[tuple[int, int], fmpq]

    def __repr__(self) -> str:
        """Return that no p separates α, and the number of positive multipliers that prove it."""
        return f"Infeasible(no p separates α: Σ λ (k_α − k_t) = 0 with {len(self.exact)} λ > 0; exact)"


def max_margin(
    keys: ArrayLike | OuterKeys,
    alpha: ArrayLike,
    *,
    required: ArrayLike | None = None,
) -> MaxMargin | Infeasible:
    """Solve ATT-SVM(α): min ‖p‖ subject to (k_iα_i − k_it)·p ≥ 1 for all i, t ≠ α_i; exact.

    A float solver guesses which duals are positive; the KKT system for these is solved, checked and if necessary
    corrected over the rationals (:mod:`reference_attention.svm.least_norm`). So dependent, duplicate and badly scaled
    rows need no special treatment.

    Args:
        keys: shape (n, T, d), T ≥ 2; or the factors of keys vec(x zᵀ), for which the solution is exact as well.
        alpha: the chosen token of each input, shape (n,).
        required: the margin required of each input, 1 or 0, shape (n,); 1 throughout when omitted. With 0 at the inputs
            where Y_i v_mm·r_i > 1 the solution is p_relax of Theorem 6.

    Raises:
        InvalidInput: keys that a Problem would refuse; alpha of another shape, not integer or out of range; required
            margins other than 0 and 1, or all 0; a solution beyond the range of float64.

    >>> from theorems import Problem, max_margin
    >>> problem = Problem(keys=[[[1, 0], [0, 1], [0, 0]]], scores=[[1, 0.5, 0]])
    >>> max_margin(problem.keys, problem.optimal).p
    array([1., 0.])
    """
    checked = keys if isinstance(keys, OuterKeys) else checked_array("keys", keys, ("n", "T", "d"))
    n, tokens, _ = checked.shape
    if tokens < 2:
        raise InvalidInput("keys: T = 1 leaves nothing to select; give at least two tokens per input.")
    chosen = _per_input("alpha", alpha, n, tokens - 1)
    margins = _per_input("required", np.ones(n, dtype=np.int64) if required is None else required, n, 1)
    if not margins.any():
        raise InvalidInput("required: with all margins 0 the solution is p = 0; require margin 1 for some input.")
    rows = KeyRows(checked, chosen)
    bounds = margins[rows.inputs]
    guess = float_solution(rows.floats, bounds)
    outcome = least_norm(rows, bounds, guess.u)
    values = np.zeros(len(bounds))
    if not outcome.feasible:
        u, over = outcome.exact.u, outcome.exact.over
        exact = {rows.pair(j): fmpq(x, over) for j, x in zip(outcome.support, u, strict=True)}
        values[outcome.support] = [ratio(x, over) for x in u]
        return Infeasible(chosen, rows.spread(values, 0.0), exact)
    values[outcome.support] = _in_range(outcome.duals(-2 * rows.scale))
    return MaxMargin(
        alpha=chosen,
        p=_freeze(_in_range(outcome.point(-rows.scale))),
        duals=rows.spread(values, 0.0),
        margins=rows.spread(outcome.margins, np.inf),
        neighbours=rows.spread(outcome.tight, False),
        exact=Certificate(rows, outcome),
        required=margins,
        _rows=rows,
        _outcome=outcome,
        _guess=guess,
    )


def locally_optimal(solution: MaxMargin, scores: ArrayLike) -> bool:
    """Return whether every SVM-neighbour scores strictly below the chosen token of its input (Definition 2); exact.

    Args:
        solution: the solution of ATT-SVM(α).
        scores: γ, shape (n, T).

    Raises:
        InvalidInput: scores that are not of shape (n, T) or not finite.

    >>> from theorems import locally_optimal, max_margin
    >>> svm = max_margin(keys=[[[1, 0], [0, 1], [0, 0]]], alpha=[0])
    >>> locally_optimal(svm, [[1, 0.5, 0]]), locally_optimal(svm, [[1, 2, 0]])
    (True, False)
    """
    return not offending_neighbours(solution, scores)


def offending_neighbours(solution: MaxMargin, scores: ArrayLike) -> list[tuple[int, int]]:
    """Return the SVM-neighbours (i, t) that keep α from being locally optimal: γ_it ≥ γ_iα_i.

    Raises:
        InvalidInput: scores that are not of shape (n, T) or not finite.
    """
    checked = checked_array("scores", scores, solution.neighbours.shape)
    chosen = np.take_along_axis(checked, solution.alpha[:, None], axis=1)
    return [(int(i), int(t)) for i, t in np.argwhere(solution.neighbours & (checked >= chosen))]


def _per_input(name: str, value: Any, n: int, largest: int) -> Int64[np.ndarray, "n"]:
    """Return ``value`` as a read-only int64 array of shape (n,), with entries within 0 … largest."""
    if name != "required":
        refuse_truth_values(name, value)
    array = as_array(name, value, f"({n},)")
    if array.dtype.kind not in ("iub" if name == "required" else "iu") or array.shape != (n,):
        raise InvalidInput(
            f"{name}: dtype {array.dtype} and shape {array.shape} do not give each input an integer;"
            f" give integers of shape ({n},)."
        )
    bad = (array < 0) | (array > largest)
    if bad.any():
        i = int(np.argmax(bad))
        raise InvalidInput(f"{name}: {array[i]} for input {i} is out of range; give 0 to {largest}.")
    return _freeze(array.astype(np.int64))


SHOWN = 16
"""Number of entries of a vector that a notebook shows."""


def _entries(vector: NDArray[Any]) -> str:
    """Return the first entries of a vector as text."""
    texts = [repr(x) for x in vector[:SHOWN].tolist()]
    return ", ".join(texts if vector.size <= SHOWN else [*texts, f"… {vector.size} entries"])


def _in_range(values: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Return the values; raise InvalidInput if any is infinite."""
    if np.isinf(values).any():
        raise InvalidInput("keys: the solution of ATT-SVM is beyond the range of float64; rescale the keys.")
    return values


def _freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, made read-only."""
    array.setflags(write=False)
    return array
