"""ATT-SVM⋆: the W of least nuclear norm that separates chosen tokens, to which training K and Q in W = KQᵀ converges.

C_⋆ = min ‖W‖_⋆ subject to (x_iα_i − x_it)ᵀ W z_i ≥ 1 for all i and t ≠ α_i. Its solution is algebraic, so it is
enclosed in balls of 160 bits (:mod:`.nuclear_enclosure`) rather than computed over the rationals. Where data are
degenerate (several solutions, a tight constraint with dual 0, a further singular value 1 of M = Σ λ_it (x_iα_i − x_it)
z_iᵀ for the duals λ), only C_⋆ is enclosed, by weak duality (:mod:`.nuclear_bounds`), and rank, support and uniqueness
are not decided.

Source: *Transformers as Support Vector Machines*, (Att-SVM⋆).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flint import arb
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike

from reference_attention.errors import InvalidInput
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.ball_matrices import above, balls, below, midpoints, precision
from reference_attention.svm.max_margin import Infeasible, _freeze, _in_range, _per_input, max_margin
from reference_attention.svm.nuclear_bounds import least_value, margins_of, most_value
from reference_attention.svm.nuclear_enclosure import NotDecided, NuclearEnclosure, enclose_nuclear, nearest_stationary
from reference_attention.svm.nuclear_float_solution import NuclearFloatSolution, nuclear_float_solution
from reference_attention.svm.outer_rows import OuterRows

Matrix = Float64[np.ndarray, "_ _"]


@dataclass(frozen=True, eq=False)
class NuclearMaxMargin:
    """A solution of ATT-SVM⋆(α), with proven bounds of C_⋆; the only solution unless the data are degenerate.

    Attributes:
        alpha: the chosen tokens, shape (n,).
        K, Q: factors of W = KQᵀ with KᵀK = QᵀQ, shapes (d, r) and (e, r); r is the rank of W if that is decided.
        duals: λ ≥ 0, zero at α, shape (n, T). C_⋆ = Σ λ_it and ‖Σ λ_it (x_iα_i − x_it) z_iᵀ‖_op = 1.
        margins: (x_iα_i − x_it)ᵀ W z_i, exactly 1.0 where λ_it > 0 is proven, +inf at α, shape (n, T).
        bounds: proven lower and upper bound of C_⋆ = min ‖W‖_⋆.
        exact: the solution in balls, proven to be the only one; None where uniqueness is not decided.
        undecided: the reason why the solution is not decided; empty where it is.
        rows: the constraints by their factors, in units in which C_⋆ is about 1.

    >>> from theorems import nuclear_max_margin, QueryDataset
    >>> data = QueryDataset(X=[[[1, 0], [0, 0], [-1, 0]]], queries=[[1, 2]], Y=[1], v=[1, 0])
    >>> svm = nuclear_max_margin(data.keys, alpha=[0])
    >>> svm
    NuclearMaxMargin(‖W‖_⋆ = 0.447214, rank 1, 1 of 2 constraints tight; the only solution)
    >>> svm.W
    array([[0.2, 0.4],
           [0. , 0. ]])
    """

    alpha: Int64[np.ndarray, "n"]
    K: Matrix
    Q: Matrix
    duals: Float64[np.ndarray, "n T"]
    margins: Float64[np.ndarray, "n T"]
    bounds: tuple[float, float]
    exact: NuclearEnclosure | None
    undecided: str
    rows: OuterRows = field(repr=False)

    def __repr__(self) -> str:
        """Return norm, rank and number of tight constraints as text; if they are not decided, the bounds of C_⋆."""
        if self.exact is None:
            low, high = self.bounds
            return f"NuclearMaxMargin({low:.6g} ≤ ‖W‖_⋆ ≤ {high:.6g}; not decided: {self.undecided})"
        n, T = self.duals.shape
        return (
            f"NuclearMaxMargin(‖W‖_⋆ = {self.norm:g}, rank {self.rank}, {len(self.exact.support)} of {n * (T - 1)}"
            " constraints tight; the only solution)"
        )

    @cached_property
    def W(self) -> Matrix:
        """Return W = KQᵀ, shape (d, e); for a proven solution each entry is rounded from its enclosure."""
        return _freeze(self.K @ self.Q.T if self.exact is None else midpoints(self.exact.W))

    @property
    def norm(self) -> float:
        """Return the midpoint of the bounds of C_⋆ = ‖W‖_⋆."""
        return (self.bounds[0] + self.bounds[1]) / 2

    @property
    def margin(self) -> float:
        """Return the margin Θ_⋆ = 1/C_⋆."""
        return 1.0 / self.norm

    @property
    def rank(self) -> int | None:
        """Return the rank of W; None where it is not decided."""
        return None if self.exact is None else self.exact.rank

    @property
    def unique(self) -> bool | None:
        """Return True where W and λ are proven to be the only solutions; None where that is not decided."""
        return None if self.exact is None else True

    @cached_property
    def support(self) -> Bool[np.ndarray, "n T"] | None:
        """Return the mask of the constraints with λ_it > 0, which are the tight constraints; None if not decided."""
        if self.exact is None:
            return None
        mask = np.zeros(len(self.exact.duals), dtype=bool)
        mask[self.exact.support] = True
        return self.rows.spread(mask, False)

    @property
    def gap(self) -> float | None:
        """Return a lower bound of 1 − σ_{r+1}(M), M = Σ λ_it (x_iα − x_it) z_iᵀ, r = rank W; None where not decided."""
        return None if self.exact is None else float(self.exact.gap.lower())

    @property
    def injectivity(self) -> float | None:
        """Return a lower bound of the least singular value of a map; None where it is not decided.

        The map is P ↦ ((x_iα − x_it)ᵀ U1 P V1ᵀ z_i)_{(i,t)} on symmetric matrices P, over the constraints with λ_it >
        0; U1 and V1 are those of :attr:`face`.
        """
        return None if self.exact is None else float(self.exact.injectivity.lower())

    @cached_property
    def face(self) -> tuple[Matrix, Matrix] | None:
        """Return U1 and V1, bases of the singular vectors of M for its singular value 1; None where not decided.

        M is Σ λ_it (x_iα − x_it) z_iᵀ. All solutions have the form U1 P V1ᵀ with P ⪰ 0.
        """
        if self.exact is None:
            return None
        return _freeze(midpoints(self.exact.U1)), _freeze(midpoints(self.exact.V1))

    def primal_residual(self) -> float:
        """Return an upper bound, in balls, of how far the least margin of KQᵀ is below 1, K and Q being floats."""
        with precision():
            rows = self.rows
            margins = margins_of(rows.a_balls, rows.z_balls, balls(self.K), balls(self.Q))
            sizes = (arb(2) ** int(k) for k in rows.p + rows.q)
            return max(0.0, *(float((1 - x * size).upper()) for x, size in zip(margins, sizes, strict=True)))

    def duality_gap(self) -> float:
        """Return an upper bound, in balls, of (high − low)/high for a lower and an upper bound of C_⋆.

        low and high are the bounds of C_⋆ by weak duality from K, Q and λ in floats.
        """
        low, high = _weak_duality(self.rows, self.K, self.Q, self.duals[self.rows.inputs, self.rows.tokens])
        with precision():
            return float(((high - low) / high).upper()) if high.is_finite() else math.inf


def nuclear_max_margin(keys: OuterKeys, alpha: ArrayLike) -> NuclearMaxMargin | Infeasible:
    """Solve ATT-SVM⋆(α): min ‖W‖_⋆ subject to (x_iα_i − x_it)ᵀ W z_i ≥ 1 for all i, t ≠ α_i; enclosed in balls.

    Args:
        keys: tokens and queries, as ``QueryDataset(…).keys``; T ≥ 2.
        alpha: the chosen token of each input, shape (n,).

    Raises:
        InvalidInput: keys without their factors; alpha of another shape, not integer or out of range; a solution beyond
            the range of float64.

    >>> from theorems import nuclear_max_margin, QueryDataset
    >>> data = QueryDataset(X=[[[1, 0], [0, 0]], [[0, 1], [0, 0]]], queries=[[1, 0], [0, 1]], Y=[1, 1], v=[1, 1])
    >>> nuclear_max_margin(data.keys, [0, 0])  # every ((1, b), (b, 1)) with |b| ≤ 1 is a solution
    NuclearMaxMargin(2 ≤ ‖W‖_⋆ ≤ 2; not decided: no isolated solution with the guessed rank and support)
    """
    if not isinstance(keys, OuterKeys):
        raise InvalidInput(
            "keys: the nuclear norm needs the factors of keys; give QueryDataset(X, queries, Y, v).keys."
        )
    n, T, _ = keys.shape
    if T < 2:
        raise InvalidInput("keys: T = 1 leaves nothing to select; give at least two tokens per input.")
    chosen = _per_input("alpha", alpha, n, T - 1)
    rows = OuterRows.of(keys, chosen)
    guess = None if rows is None else nuclear_float_solution(rows.a, rows.z, rows.b)
    if rows is None or guess is None:
        return _by_frobenius(keys, chosen, rows)
    rows, K, Q, duals = _in_units(rows, guess)
    support, r = np.flatnonzero(guess.support), guess.rank
    try:
        exact = enclose_nuclear(rows, K[:, :r], Q[:, :r], duals, support)
    except NotDecided as why:
        nearer = nearest_stationary(rows, K[:, :r], Q[:, :r], duals, support)
        best = min(
            (_from_point(rows, *candidate, str(why)) for candidate in ((K, Q, duals), nearer)),
            key=lambda candidate: candidate.bounds[1] - candidate.bounds[0],
        )
        return best if best.bounds[0] > 0 and best.bounds[1] < math.inf else _by_frobenius(keys, chosen, rows)
    return _from_enclosure(rows, exact)


def _in_units(
    rows: OuterRows, guess: NuclearFloatSolution
) -> tuple[OuterRows, Matrix, Matrix, Float64[np.ndarray, "N"]]:
    """Return the rows in units in which the value is about one, and K, Q and λ in these units."""
    rescaled = rows.in_units_of(guess.value)
    roots = np.sqrt(np.ldexp(guess.weights, rows.unit - rescaled.unit))
    return rescaled, guess.u * roots, guess.v * roots, guess.duals


def _from_enclosure(rows: OuterRows, exact: NuclearEnclosure) -> NuclearMaxMargin:
    """Return the proven solution, each number rounded from the midpoint of its ball."""
    margins = np.array([float(x.mid()) for x in exact.margins])
    return NuclearMaxMargin(
        alpha=rows.alpha,
        K=_freeze(_in_range(midpoints(exact.K))),
        Q=_freeze(_in_range(midpoints(exact.Q))),
        duals=rows.spread(_in_range(np.array([float(x.mid()) for x in exact.duals])), 0.0),
        margins=rows.spread(margins, np.inf),
        bounds=(below(exact.value), above(exact.value)),
        exact=exact,
        undecided="",
        rows=rows,
    )


def _from_point(rows: OuterRows, K: Matrix, Q: Matrix, duals: Float64[np.ndarray, "N"], why: str) -> NuclearMaxMargin:
    """Return what weak duality proves from K, Q, λ in the units of ``rows``; ``why`` says why no more is decided."""
    least = float(np.min(np.vecdot(rows.a @ K, rows.z @ Q) / rows.b))
    # Scale K and Q to least margin one, if their least margin is positive.
    root = 2.0 ** (rows.unit / 2) / math.sqrt(least if least > 0 else 1.0)
    K, Q, duals = K * root, Q * root, np.ldexp(np.maximum(duals, 0.0), -rows.p - rows.q)
    low, high = _weak_duality(rows, K, Q, duals)
    with precision():
        enclosed = margins_of(rows.a_balls, rows.z_balls, balls(K), balls(Q))
    margins = np.ldexp(np.array([float(x.mid()) for x in enclosed]), rows.p + rows.q)
    return NuclearMaxMargin(
        alpha=rows.alpha,
        K=_freeze(_in_range(K)),
        Q=_freeze(_in_range(Q)),
        duals=rows.spread(_in_range(duals), 0.0),
        margins=rows.spread(margins, np.inf),
        bounds=(below(low), above(high)),
        exact=None,
        undecided=why,
        rows=rows,
    )


def _weak_duality(rows: OuterRows, K: Matrix, Q: Matrix, duals: Float64[np.ndarray, "N"]) -> tuple[arb, arb]:
    """Return a lower and an upper bound of C_⋆ from K, Q and λ in the units of ``rows``, proven by weak duality."""
    with precision():
        ones = [arb(2) ** int(-k) for k in rows.p + rows.q]
        scaled_duals = [arb(x) / bound for x, bound in zip(duals.tolist(), ones, strict=True)]
        a, z = rows.a_balls, rows.z_balls
        return least_value(a, z, ones, scaled_duals), most_value(a, z, ones, balls(K), balls(Q))


def _by_frobenius(
    keys: OuterKeys, alpha: Int64[np.ndarray, "n"], rows: OuterRows | None
) -> NuclearMaxMargin | Infeasible:
    """Return a proof that nothing separates α, or bounds from the solution of least Frobenius norm."""
    solution = max_margin(keys, alpha)
    if isinstance(solution, Infeasible):
        return solution
    assert rows is not None
    u, s, vt = np.linalg.svd(solution.p.reshape(keys.tokens.shape[2], -1), full_matrices=False)
    rows = rows.in_units_of(np.ldexp(s.sum(), -rows.unit))
    roots = np.sqrt(np.ldexp(s, -rows.unit))
    duals = np.ldexp(solution.duals[rows.inputs, rows.tokens], rows.p + rows.q)
    return _from_point(rows, u * roots, vt.T * roots, duals, "the interior-point method failed on this data")
