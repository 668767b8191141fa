"""The point of least norm in a polyhedron, over the rationals: min ‖p‖ subject to g_j·p ≥ h_j for the rows g_j of G.

Lawson and Hanson reduce the problem to non-negative least squares. With E = [Gᵀ; hᵀ] and f = (0, …, 0, 1), the least
squares problem min ‖E u − f‖ has the residual r = f − E u, and

- r = 0: the solution u ≥ 0 proves that there is no such point (Gᵀu = 0 and hᵀu = 1, Farkas);
- r ≠ 0: ρ = 1 − hᵀu = ‖r‖² > 0, the point is p = Gᵀu / ρ and its duals are λ = u / ρ.

Lawson and Hanson's active-set method for non-negative least squares is run in exact arithmetic. There it terminates
from *any* start without an anti-cycling rule: a column enters only if its gradient is positive, so the columns in use
stay linearly independent and every step strictly lowers ‖r‖; no set of columns can come back. A float solution guesses
the *support*, the constraints with u_j > 0, as the start; usually it is right, and one linear system is solved and
checked. Before the rationals, refinement (:mod:`.iterative_refinement`) and then ball arithmetic (:mod:`.enclosure`)
are tried; they prove the same if no constraint outside the support is tight (g_j·p = h_j).

Source: C. L. Lawson and R. J. Hanson, *Solving Least Squares Problems* (1974), chapter 23.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, cast, runtime_checkable

import numpy as np
from flint import fmpq, fmpq_mat, fmpz, fmpz_mat
from jaxtyping import Bool, Float64, Int64

from reference_attention.exact import ratio
from reference_attention.floats import EPS
from reference_attention.svm.enclosure import enclose, round_balls
from reference_attention.svm.float_solution import float_solution
from reference_attention.svm.iterative_refinement import Refined, refine
from reference_attention.svm.ozaki_products import Twice

UNDERFLOW = 2.0**-900
"""An amount that is added to error bounds: far above the underflow of a sum of products, and far below any rounding
error that matters."""
MANY = 8
"""Least number of constraints in the support for which floats and balls are tried before rationals, because they are
cheaper."""


@runtime_checkable
class Rows(Protocol):
    """The rows G of the constraints, exactly and in floats; ``floats`` may be scaled by a power of two."""

    @property
    def floats(self) -> Float64[np.ndarray, "m d"]:
        """Return G, each entry within one rounding of the exact one, shape (m, d)."""

    @property
    def shift(self) -> int:
        """Return the exponent with ``integers(…) = 2^shift · floats``, up to the rounding of ``floats``."""

    def integers(self, indices: Sequence[int]) -> fmpz_mat:
        """Return the rows with the given indices as exact integers, shape (len(indices), d)."""

    def scaled_rows(self, indices: Sequence[int]) -> tuple[fmpz_mat, int]:
        """Return the rows with the given indices as integers 2^s · ``floats``, and s, which depends on the indices."""

    def twice(self, indices: Sequence[int]) -> Twice | None:
        """Return rows as exact sums of two floats, shape (len(indices), d); None if the class has no such sums."""


@dataclass(frozen=True, eq=False)
class IntegerRows:
    """Rows given as integers, which divided by 2^shift are in the range of float64."""

    matrix: fmpz_mat
    shift: int

    @cached_property
    def floats(self) -> Float64[np.ndarray, "m d"]:
        """Return the rows divided by 2^shift, each entry rounded once, shape (m, d)."""
        denominator = fmpz(1)
        return np.array([[ratio(x, denominator, -self.shift) for x in row] for row in self.matrix.tolist()])

    def integers(self, indices: Sequence[int]) -> fmpz_mat:
        """Return the rows with the given indices, shape (len(indices), d)."""
        rows = self.matrix.tolist()
        return fmpz_mat(len(indices), self.matrix.ncols(), [x for j in indices for x in rows[j]])

    def scaled_rows(self, indices: Sequence[int]) -> tuple[fmpz_mat, int]:
        """Return the rows with the given indices, shape (len(indices), d), and ``shift``."""
        return self.integers(indices), self.shift

    def twice(self, indices: Sequence[int]) -> Twice | None:
        """Return None: the rows are not available as sums of two floats."""


@dataclass(frozen=True)
class Solution:
    """The least squares solution u on its support (the constraints with u_j > 0), over the rationals.

    Attributes:
        u: the numerators of u, which share the denominator ``over``.
        over: the denominator of u, positive.
        point: Gᵀu · over for the integer rows G, shape (d,).
        rho: ρ · over with ρ = 1 − hᵀu; zero when infeasible, positive otherwise. So p = point / rho and λ = u / rho.
    """

    u: list[fmpz]
    over: fmpz
    point: list[fmpz]
    rho: fmpz


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of :func:`least_norm`: the constraints with a positive dual, whether p exists, and the margins.

    Attributes:
        support: the constraints with u_j > 0 (see the module), in increasing order; linearly independent when feasible.
        feasible: whether any p satisfies all constraints.
        margins: g_j·p in floats within rounding (exactly rounded if close to h_j), shape (m,).
        tight: whether g_j·p = h_j, decided exactly, shape (m,).
        steps: the number of linear systems solved; 1 when the float solution had the right support.
    """

    support: list[int]
    feasible: bool
    margins: Float64[np.ndarray, "m"]
    tight: Bool[np.ndarray, "m"]
    steps: int
    _rows: Rows = field(repr=False)
    _solved: Callable[[], Solution] = field(repr=False)
    _rounded: Refined | None = field(default=None, repr=False)

    @cached_property
    def exact(self) -> Solution:
        """Return the exact solution, computed on first use if floats or balls proved the support."""
        return self._solved()

    def point(self, exponent: int) -> Float64[np.ndarray, "d"]:
        """Return p times 2^exponent, for the rows ``floats``, each entry rounded once, shape (d,)."""
        scaled = None if self._rounded is None else _times(self._rounded.point, exponent)
        return self._ratios(self.exact.point, exponent + self._rows.shift) if scaled is None else scaled

    def duals(self, exponent: int) -> Float64[np.ndarray, "s"]:
        """Return λ on the support times 2^exponent, for the rows ``floats``, each entry rounded once, shape (s,)."""
        scaled = None if self._rounded is None else _times(self._rounded.duals, exponent)
        return self._ratios(self.exact.u, exponent + 2 * self._rows.shift) if scaled is None else scaled

    def _ratios(self, numerators: list[fmpz], exponent: int) -> Float64[np.ndarray, "k"]:
        """Return numerators/rho (rho of ``exact``) times 2^exponent, each fraction rounded once."""
        return np.array([ratio(x, self.exact.rho, exponent) for x in numerators])


def _times(values: Float64[np.ndarray, "k"], exponent: int) -> Float64[np.ndarray, "k"] | None:
    """Return the floats times 2^exponent; None if the product would be rounded."""
    scaled = np.ldexp(values, exponent)
    return scaled if np.array_equal(np.ldexp(scaled, -exponent), values) else None


class _ActiveSet:
    """The state of the exact active-set method: the support, and the least squares solution u on it."""

    def __init__(self, rows: Rows, bounds: Int64[np.ndarray, "m"]) -> None:
        self.rows = rows
        self.bounds = [int(h) for h in bounds]
        self.support: list[int] = []
        self.matrix = rows.integers([])
        self.steps = 0

    def solve(self, support: list[int]) -> bool:
        """Solve least squares on the columns ``support`` exactly; return False if these columns are dependent.

        The rows of the support are stored in ``matrix``, the solution in ``numer`` (numerators) and ``over``
        (denominator).
        """
        self.matrix = self.rows.integers(support)
        h = fmpz_mat(len(support), 1, [self.bounds[j] for j in support])
        if not support:
            self.numer, self.over = h, fmpz(1)
            return True
        self.steps += 1
        try:
            normal_equations = self.matrix * self.matrix.transpose() + h * h.transpose()
            solution = cast(fmpq_mat, normal_equations.solve(h))
        except ZeroDivisionError:
            return False
        self.numer, self.over = solution.numer_denom()
        return True

    def start_from(self, guess: list[int]) -> None:
        """Reduce ``guess`` to a valid support: independent columns on which the least squares solution is positive."""
        support = guess
        while True:
            if not self.solve(support):
                rows = zip(self.matrix.tolist(), support, strict=True)
                columns = fmpz_mat([[*row, fmpz(self.bounds[j])] for row, j in rows])
                support = [support[k] for k in _independent(columns)]
                continue
            values = self.numer.entries()
            if all(x > 0 for x in values):
                break
            support = [j for j, x in zip(support, values, strict=True) if x > 0]
        self.support = support

    def enter(self, row: int) -> None:
        """Add a violated constraint, then remove constraints until the least squares solution is positive."""
        support = [*self.support, row]
        u = [*(fmpq(x, self.over) for x in self.numer.entries()), fmpq(0)]
        while True:
            if not self.solve(support):
                raise AssertionError("a column with positive gradient depends on the columns in use")
            z = [fmpq(x, self.over) for x in self.numer.entries()]
            if all(x > 0 for x in z):
                break
            step = min(a / (a - b) for a, b in zip(u, z, strict=True) if b <= 0)
            u = [a + step * (b - a) for a, b in zip(u, z, strict=True)]
            keep = [k for k, a in enumerate(u) if a > 0]
            support, u = [support[k] for k in keep], [u[k] for k in keep]
        self.support = support

    def point(self, support: list[int]) -> tuple[list[fmpz], fmpz]:
        """Return Gᵀu and ρ for the support solved last, each times the denominator ``over``; p is their ratio."""
        if not support:
            return [fmpz(0)] * self.rows.floats.shape[1], fmpz(1)
        u = self.numer.entries()
        rho = self.over - sum((self.bounds[j] * x for j, x in zip(support, u, strict=True)), fmpz(0))
        return (self.matrix.transpose() * self.numer).entries(), rho


def _independent(matrix: fmpz_mat) -> list[int]:
    """Return the indices of the rows that do not depend linearly on earlier rows, by elimination over the rationals."""
    reduced, _, rank = matrix.transpose().rref()
    entries = reduced.tolist()
    return [next(j for j, x in enumerate(entries[k]) if x != 0) for k in range(rank)]


def least_norm(rows: Rows, bounds: Int64[np.ndarray, "m"], guess: Float64[np.ndarray, "m"] | None = None) -> Outcome:
    """Return the p of least norm with g_j·p ≥ h_j for all j, or multipliers that prove there is none; exact.

    Args:
        rows: the rows G of the constraints, shape (m, d).
        bounds: their right sides h, integers, shape (m,).
        guess: an approximate solution u, positive on the constraints from which the exact method starts; by default
            computed by :func:`float_solution`.
    """
    if guess is None:
        guess = float_solution(rows.floats, bounds).u
    positive = np.flatnonzero(guess > 0)
    support: list[int] = positive.tolist()
    return (
        _by_floats(rows, bounds, support)
        or _by_balls(rows, bounds, support)
        or _by_rationals(rows, bounds, positive[np.argsort(-guess[positive], kind="stable")].tolist())
    )


def _by_floats(rows: Rows, bounds: Int64[np.ndarray, "m"], support: list[int]) -> Outcome | None:
    """Return the outcome if floats with error bounds prove that ``support`` is right, otherwise None."""
    if len(support) < MANY or (exactly := rows.twice(support)) is None:
        return None
    refined = refine(exactly, bounds[support].astype(np.float64))
    if refined is None:
        return None
    margins, below, unsure = _margins(rows.floats, bounds, refined.point, support)
    return None if below.any() or unsure.size else _proven_outcome(rows, bounds, support, margins, refined)


def _by_balls(rows: Rows, bounds: Int64[np.ndarray, "m"], support: list[int]) -> Outcome | None:
    """Return the outcome if balls prove that ``support`` is right, otherwise None."""
    if len(support) < MANY:
        return None
    balls = enclose(*rows.scaled_rows(support), bounds[support].tolist())
    if balls is None or (p := round_balls(balls.point, balls.shift)) is None:
        return None
    margins, below, unsure = _margins(rows.floats, bounds, p, support)
    if below.any():
        return None
    if unsure.size:
        products = balls.margins(*rows.scaled_rows(unsure.tolist()))
        values = round_balls(products, 0)
        if values is None or not all(x > h for x, h in zip(products.entries(), bounds[unsure].tolist(), strict=True)):
            return None
        margins[unsure] = np.minimum(values, sys.float_info.max)
    duals = round_balls(balls.duals, 2 * balls.shift)
    return _proven_outcome(rows, bounds, support, margins, None if duals is None else Refined(duals, p))


def _proven_outcome(
    rows: Rows,
    bounds: Int64[np.ndarray, "m"],
    support: list[int],
    margins: Float64[np.ndarray, "m"],
    refined: Refined | None,
) -> Outcome:
    """Return the outcome for a proven support that contains all tight constraints; ``exact`` is computed on demand."""
    tight = np.zeros(len(margins), dtype=bool)
    tight[support] = True

    def solve() -> Solution:
        state = _ActiveSet(rows, bounds)
        state.solve(support)
        return Solution(state.numer.entries(), state.over, *state.point(support))

    return Outcome(support, True, margins, tight, 1, rows, solve, refined)


def _by_rationals(rows: Rows, bounds: Int64[np.ndarray, "m"], guess: list[int]) -> Outcome:
    """Return the outcome by the active-set method over the rationals, started from the constraints ``guess``."""
    state = _ActiveSet(rows, bounds)
    state.start_from(guess)
    while True:
        point, rho = state.point(state.support)
        if rho == 0:
            margins, tight = np.zeros(len(bounds)), np.zeros(len(bounds), dtype=bool)
            break
        violated, margins, tight = _screen(rows, bounds, state, point, rho)
        if violated is None:
            break
        state.enter(violated)
    u = dict(sorted(zip(state.support, state.numer.entries(), strict=True)))
    solution = Solution(list(u.values()), state.over, point, rho)
    return Outcome(list(u), bool(rho > 0), margins, tight, state.steps, rows, lambda: solution)


def _margins(
    floats: Float64[np.ndarray, "m d"],
    bounds: Int64[np.ndarray, "m"],
    p: Float64[np.ndarray, "d"],
    support: list[int],
) -> tuple[Float64[np.ndarray, "m"], Bool[np.ndarray, "m"], Int64[np.ndarray, "k"]]:
    """Return the margins g_j·p (h_j on the support), a mask of those below h_j, and the rows that floats cannot decide.

    The error of a margin is at most (d + 4) eps Σ_k|g_jk p_k|: row and point are each within one rounding of the exact
    ones, the sum of d products adds d roundings, and two more eps cover the rounding of this bound itself.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        margins = floats @ p
        error = (p.size + 4) * EPS * (np.abs(floats) @ np.abs(p)) + UNDERFLOW
        above, below = margins - bounds > error, bounds - margins > error
    margins[support] = bounds[support]
    above[support], below[support] = True, False
    return margins, below, np.flatnonzero(~(above | below))


def _screen(
    rows: Rows, bounds: Int64[np.ndarray, "m"], state: _ActiveSet, point: list[fmpz], rho: fmpz
) -> tuple[int | None, Float64[np.ndarray, "m"], Bool[np.ndarray, "m"]]:
    """Return a violated constraint (or None), the margins g_j·p, and which of them equal h_j.

    Where floats cannot tell whether a margin is below h_j, exact integers decide.
    """
    p = np.array([ratio(x, rho, rows.shift) for x in point])
    margins, below, unsure = _margins(rows.floats, bounds, p, state.support)
    tight = np.zeros(len(margins), dtype=bool)
    tight[state.support] = True
    if below.any():
        return int(np.argmin(np.where(below, margins - bounds, np.inf))), margins, tight
    violated = None
    if unsure.size:
        products = (rows.integers(unsure.tolist()) * fmpz_mat(len(point), 1, point)).entries()
        for j, product in zip(unsure.tolist(), products, strict=True):
            excess = product - int(bounds[j]) * rho
            margins[j] = min(ratio(product, rho), sys.float_info.max)
            tight[j] = excess == 0
            if excess < 0:
                violated = j
    return violated, margins, tight
