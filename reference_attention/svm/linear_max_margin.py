"""The largest margin in ‖·‖_1 or ‖·‖_∞: a linear program whose vertex and duals are computed over the rationals.

The margin of p is its least product with the rows g_j = k_iα − k_it. HiGHS guesses the basis, the set of tight
constraints that determines a vertex. Constraints in the basis are exchanged over the rationals until the basis is
optimal; it then gives p and the duals.

References: Terlaky, *A convergent criss-cross method*, 1985; scipy.optimize (HiGHS).
"""

from __future__ import annotations

import math

import numpy as np
from flint import fmpq, fmpq_mat, nmod_mat
from scipy.optimize import linprog

from reference_attention.exact import PRIME, products, to_float, to_floats

Rational = list[fmpq]
EXCHANGES = 200
"""Largest number of exchanges of constraints in a basis; a thousand problems of the suite all needed fewer than ten."""
NONE = -1
"""Index that stands for "no constraint can enter or leave the basis": the program is then unbounded or infeasible."""
TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Options of HiGHS: the smallest tolerances that it accepts."""


def linear_max_margin(rows: list[Rational], norm: float) -> tuple[Rational, Rational] | None:
    """Return p and duals of max s subject to g_j·p ≥ s and ‖p‖ ≤ 1; None if the largest s is not positive or not found.

    For ‖·‖_∞ the variables are (p, s) with −1 ≤ p ≤ 1; for ‖·‖_1 they are (u, v, s) with p = u − v, u, v ≥ 0 and Σ(u+v)
    ≤ 1.

    The basis guessed from the vertex of HiGHS consists of the constraints with positive duals and then of the tightest
    other constraints. The equations of the basis are solved over the rationals, and constraints are exchanged until the
    basis is optimal.
    """
    sizes = [_power_of_two(max(map(abs, row))) for row in rows]
    table, bounds = _constraints(rows, norm, sizes, min(sizes))
    upper, right = np.array([to_floats(row) for row in table]), to_floats(bounds)
    aim = np.append(np.zeros(len(table[0]) - 1), -1.0)
    optimum = linprog(aim, upper, right, bounds=(None, None), method="highs-ds", options=TIGHT)
    if optimum.status != 0:
        return None
    order = np.lexsort((optimum.slack, optimum.ineqlin.marginals)).tolist()
    solved = _optimal_vertex([table[k] for k in order], [bounds[k] for k in order])
    if solved is None:
        return None
    point, prices = solved
    d, m = len(rows[0]), len(rows)
    p = point[:d] if math.isinf(norm) else [a - b for a, b in zip(point[:d], point[d : 2 * d], strict=True)]
    duals = {order[k]: price for k, price in prices.items()}
    return p, [duals.get(k, fmpq(0)) / sizes[k] for k in range(m)]


def _power_of_two(x: fmpq) -> fmpq:
    """Return a power of two between about |x|/2 and |x|; 1 for x = 0."""
    size = abs(to_float(x))
    return fmpq(2) ** (math.frexp(size)[1] - 1) if size else fmpq(1)


def _constraints(rows: list[Rational], norm: float, sizes: Rational, unit: fmpq) -> tuple[list[Rational], Rational]:
    """Return A and b of the program A x ≤ b; rows are divided by their ``sizes``, and s by ``unit``."""
    m, d = len(rows), len(rows[0])
    zero, unity = fmpq(0), fmpq(1)
    eye = [[unity if j == k else zero for k in range(d)] for j in range(d)]
    scaled = [[x / size for x in row] for row, size in zip(rows, sizes, strict=True)]
    gains = [unit / size for size in sizes]
    if math.isinf(norm):
        table = [[*(-x for x in row), gain] for row, gain in zip(scaled, gains, strict=True)]
        table += [[*row, zero] for row in eye] + [[*(-x for x in row), zero] for row in eye]
        return table, [zero] * m + [unity] * (2 * d)
    table = [[*(-x for x in row), *row, gain] for row, gain in zip(scaled, gains, strict=True)]
    table += [[*(-x for x in row), *[zero] * d, zero] for row in eye]
    table += [[*[zero] * d, *(-x for x in row), zero] for row in eye]
    return [*table, [unity] * (2 * d) + [zero]], [zero] * (m + 2 * d) + [unity]


def _optimal_vertex(table: list[Rational], bounds: Rational) -> tuple[Rational, dict[int, fmpq]] | None:
    """Return the vertex of A x ≤ b with the largest last variable, and its duals by constraint.

    The criss-cross method (Terlaky) starts from the first independent constraints as the basis. Each step exchanges two
    constraints. The first constraint that is violated, or has a negative dual, enters or leaves; the first constraint
    with a pivot of the right sign leaves or enters for it. The method always terminates. The result is ``None`` if it
    needs more than :data:`EXCHANGES` exchanges, or if no pivot has the right sign.
    """
    variables = len(table[0])
    basis = _first_independent(table)
    aim = fmpq_mat(variables, 1, [fmpq(0)] * (variables - 1) + [fmpq(1)])
    for _ in range(EXCHANGES if len(basis) == variables else 0):
        matrix = fmpq_mat([table[k] for k in basis])
        point = list(matrix.solve(fmpq_mat(variables, 1, [bounds[k] for k in basis])).entries())
        prices = matrix.transpose().solve(aim).entries()
        violated = [k for k, (x, b) in enumerate(zip(products(table, point), bounds, strict=True)) if x > b]
        negative = [k for k, price in zip(basis, prices, strict=True) if price < 0]
        if not violated and not negative:
            return point, dict(zip(basis, prices, strict=True))
        first = min(violated + negative)
        if first in negative:
            place = basis.index(first)
            edge = matrix.solve(fmpq_mat(variables, 1, [fmpq(-1 if k == place else 0) for k in range(variables)]))
            fits = [k for k, x in enumerate(products(table, list(edge.entries()))) if x > 0 and k not in basis]
            leaves, enters = first, min(fits, default=NONE)
        else:
            weights = matrix.transpose().solve(fmpq_mat(variables, 1, table[first])).entries()
            leaves = min((k for k, x in zip(basis, weights, strict=True) if x > 0), default=NONE)
            enters = first
        if NONE in (leaves, enters):
            return None
        basis[basis.index(leaves)] = enters
    return None


def _first_independent(table: list[Rational]) -> list[int]:
    """Return the indices of the first linearly independent rows.

    Independence is tested modulo a prime: rows that pass are independent, but independent rows may fail.
    """
    numerators, _ = fmpq_mat(table).transpose().numer_denom()
    reduced, rank = nmod_mat(numerators, PRIME).rref()
    entries, pivots, at = reduced.tolist(), [], 0
    for row in range(rank):
        while int(entries[row][at]) == 0:
            at += 1
        pivots.append(at)
    return pivots
