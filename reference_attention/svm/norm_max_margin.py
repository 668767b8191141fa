"""The largest margin of chosen tokens among prompts of ‖p‖_q ≤ 1: γ = max min_it (k_iα − k_it)·p, with a proof.

For q = 1 and q = ∞ it is a linear program: HiGHS guesses which constraints are tight, p and the duals are then those of
this basis over the rationals, and γ is exact. For other q floats p and λ are taken as rationals. Either way, whatever p
and λ ≥ 0 are found,

    min_j g_j·p/‖p‖_q ≤ γ ≤ ‖Σ_j λ_j g_j‖_{q'}/Σ_j λ_j,  1/q + 1/q' = 1,

so a wrong guess widens the enclosure and never falsifies it. Solutions need not be unique for q = 1, ∞; γ is.

References: Gunasekar, Lee, Soudry, Srebro, *Characterizing Implicit Bias in Terms of Optimization Geometry*, ICML 2018;
scipy.optimize (HiGHS).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq, fmpq_mat, nmod_mat
from jaxtyping import Float64, Int64
from scipy.optimize import linprog, minimize, nnls

from reference_attention.errors import InvalidInput
from reference_attention.exact import PRIME, combination, products, rational, to_float, to_floats
from reference_attention.outer_keys import Keys, rational_keys
from reference_attention.svm.least_power_norm import NEAR, LeastPowerNorm, least_power_norm
from reference_attention.svm.max_margin import MaxMargin, max_margin

Rational = list[fmpq]
LINEAR = (1.0, math.inf)
"""The norms of which the largest margin is that of a linear program."""
ACCEPTED = 1e-7
"""The largest KKT residual of a solution for 1 < q < ∞: what it costs is known from the enclosure of γ."""
EXCHANGES = 200
"""Of constraints of a basis, at most; of a thousand problems of the suite none needed ten."""
NONE = -1
"""No constraint fits: the program has no largest value."""
TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""The smallest that HiGHS takes."""
SMALL = 1e-5
"""A dual of that share of the largest is taken for none; the enclosure tells whether rightly."""


def conjugate(norm: float) -> float:
    """q' with 1/q + 1/q' = 1."""
    return 1.0 if math.isinf(norm) else math.inf if norm == 1 else norm / (norm - 1)


def dual_point(p: Float64[np.ndarray, "*b d"], norm: float) -> Float64[np.ndarray, "*b d"]:
    """∇‖p‖_q^q/q, entries sign(p_j)|p_j|^{q−1}."""
    return np.asarray(np.sign(p) * np.abs(p) ** (norm - 1))


@dataclass(frozen=True, eq=False)
class NormMaxMargin:
    """A point of nearly, or exactly, the largest margin in ‖·‖_q, and duals that prove it.

    Attributes:
        alpha: the chosen tokens, (n,).
        norm: q, 1 ≤ q ≤ ∞.
        exact_p: p over the rationals, of least margin 1, (d,); one solution of possibly many.
        exact_duals: λ ≥ 0, one for each row g_it = k_iα − k_it, t ≠ α_i, input by input, (n (T−1),).
        rows: these rows, over the rationals.
    """

    alpha: Int64[np.ndarray, "n"]
    norm: float
    exact_p: Rational
    exact_duals: Rational
    rows: list[Rational]

    @cached_property
    def p(self) -> Float64[np.ndarray, "d"]:
        """Each entry rounded once."""
        return to_floats(self.exact_p)

    @cached_property
    def row_combination(self) -> Rational:
        """Σ_j λ_j g_j, (d,)."""
        return combination(self.rows, self.exact_duals, len(self.exact_p))

    @cached_property
    def margin(self) -> float:
        """γ, from below up to rounding: of p/‖p‖_q."""
        return float(min(to_floats(products(self.rows, self.exact_p)))) / float(np.linalg.norm(self.p, ord=self.norm))

    @cached_property
    def primal_residual(self) -> float:
        """By how much a margin of p is below 1; exact, rounded once."""
        return to_float(max(1 - min(products(self.rows, self.exact_p)), fmpq(0)))

    @cached_property
    def duality_gap(self) -> float:
        """How much larger the upper bound of γ may be than the lower one, relatively; exactly 0 where they are equal.

        Over the rationals for q = 1, ∞.
        """
        total = sum(self.exact_duals, fmpq(0))
        if self.norm in LINEAR:
            sides = exact_norm(self.row_combination, conjugate(self.norm)) * exact_norm(self.exact_p, self.norm)
            return to_float(sides / (total * min(products(self.rows, self.exact_p))) - 1)
        above = float(np.linalg.norm(to_floats(self.row_combination), ord=conjugate(self.norm))) / to_float(total)
        return above / self.margin - 1


def exact_norm(x: Rational, norm: float) -> fmpq:
    """‖x‖_1 or ‖x‖_∞."""
    sizes = [abs(entry) for entry in x]
    return max(sizes) if math.isinf(norm) else sum(sizes, fmpq(0))


def norm_max_margin(keys: Keys, alpha: Int64[np.ndarray, "n"], norm: float) -> NormMaxMargin | None:
    """The largest margin of α in ‖·‖_q; ``None`` if α cannot be separated, or the solver found no solution.

    Raises:
        InvalidInput: a norm below 1.

    >>> import numpy as np
    >>> found = norm_max_margin(np.array([[[0.0, 0.0], [1.0, -1.0], [0.0, -3.0]]]), np.array([0]), np.inf)
    >>> found.exact_p, found.duality_gap
    ([-1/2, 1/2], 0.0)
    """
    if not norm >= 1:
        raise InvalidInput(f"norm: {norm} is not at least 1; below it there is no norm.")
    rows = rational_rows(keys, alpha)
    solved = _program(rows, norm) if norm in LINEAR else _power(keys, alpha, rows, norm)
    if solved is None:
        return None
    p, duals = solved
    least = min(products(rows, p))
    if not least > 0 or not sum(duals, fmpq(0)) > 0:
        return None
    return NormMaxMargin(alpha, norm, [x / least for x in p], duals, rows)


def rational_rows(keys: Keys, alpha: Int64[np.ndarray, "n"]) -> list[Rational]:
    """k_iα − k_it, t ≠ α_i, over the rationals, (n (T−1), d)."""
    flat = rational_keys(keys).tolist()
    tokens = len(flat) // len(alpha)
    own = [flat[i * tokens + int(a)] for i, a in enumerate(alpha)]
    return [
        [x - y for x, y in zip(own[i], flat[i * tokens + t], strict=True)]
        for i, a in enumerate(alpha)
        for t in range(tokens)
        if t != int(a)
    ]


def _power(
    keys: Keys, alpha: Int64[np.ndarray, "n"], rows: list[Rational], norm: float
) -> tuple[Rational, Rational] | None:
    svm = max_margin(keys, alpha)
    if not isinstance(svm, MaxMargin):
        return None
    if norm == 2:
        others = [(i, t) for i, t in np.ndindex(*svm.duals.shape) if t != int(alpha[i])]
        return list(svm.exact.p), [svm.exact.duals.get(pair, fmpq(0)) for pair in others]
    floats = np.array([to_floats(row) for row in rows])
    found = _least(floats, norm, svm.p) or _least(floats[_near_support(floats, norm)], norm, svm.p)
    if found is None:
        return None
    p = found.p / float(np.linalg.norm(found.p, ord=norm))
    margins = floats @ p
    tight = margins <= margins.min() * (1 + NEAR)
    duals = np.zeros(len(rows))
    duals[tight] = nnls(floats[tight].T / np.abs(floats).max(), dual_point(p, norm))[0]
    return [rational(x) for x in p.tolist()], [rational(x) for x in duals.tolist()]


def _least(rows: Float64[np.ndarray, "m d"], norm: float, feasible: Float64[np.ndarray, "d"]) -> LeastPowerNorm | None:
    """Of the rows as differences of one input."""
    keys = np.concatenate([np.zeros((1, rows.shape[1])), -rows])[None]
    return least_power_norm(keys, np.zeros(1, dtype=np.int64), norm, feasible, ACCEPTED)


def _near_support(rows: Float64[np.ndarray, "m d"], norm: float) -> Int64[np.ndarray, "k"]:
    """The rows of a dual that is not negligible: min ‖Σλg‖_q'^2/2 − Σλ over λ ≥ 0, to a few digits.

    Among rows that nearly coincide the solver of the primal does not find which ones matter.
    """
    unit, power = np.abs(rows).max(), conjugate(norm)

    def value(weights: Float64[np.ndarray, "m"]) -> tuple[float, Float64[np.ndarray, "m"]]:
        z = weights @ rows / unit
        size = float(np.linalg.norm(z, ord=power))
        slope = dual_point(z / max(size, 1e-300), power) * size
        return size * size / 2 - float(weights.sum()), rows @ slope / unit - 1

    found = minimize(
        value, np.full(len(rows), 1 / len(rows)), jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(rows)
    )
    return np.flatnonzero(found.x > SMALL * found.x.max())


def _program(rows: list[Rational], norm: float) -> tuple[Rational, Rational] | None:
    """max s, g_j·p ≥ s, over ‖p‖ ≤ 1: for ∞ in (p, s), −1 ≤ p ≤ 1; for 1 in (u, v, s), p = u − v, u, v ≥ 0, Σ(u+v) ≤ 1.

    HiGHS ends at a vertex. Its basis, the constraints of positive duals and then the tightest others, is solved over
    the rationals; where floats took a constraint for tight that is not, it is exchanged until the basis is optimal.
    """
    sizes = [_power_of_two(max(map(abs, row))) for row in rows]
    table, bounds = _constraints(rows, norm, sizes, min(sizes))
    upper, right = np.array([to_floats(row) for row in table]), to_floats(bounds)
    aim = np.append(np.zeros(len(table[0]) - 1), -1.0)
    found = linprog(aim, upper, right, bounds=(None, None), method="highs-ds", options=TIGHT)
    if found.status != 0:
        return None
    order = np.lexsort((found.slack, found.ineqlin.marginals)).tolist()
    solved = _optimal_vertex([table[k] for k in order], [bounds[k] for k in order])
    if solved is None:
        return None
    point, prices = solved
    d, m = len(rows[0]), len(rows)
    p = point[:d] if math.isinf(norm) else [a - b for a, b in zip(point[:d], point[d : 2 * d], strict=True)]
    duals = {order[k]: price for k, price in prices.items()}
    return p, [duals.get(k, fmpq(0)) / sizes[k] for k in range(m)]


def _power_of_two(x: fmpq) -> fmpq:
    """One that |x| > 0 is about one to two of; 1 for 0."""
    size = abs(to_float(x))
    return fmpq(2) ** (math.frexp(size)[1] - 1) if size else fmpq(1)


def _constraints(rows: list[Rational], norm: float, sizes: Rational, unit: fmpq) -> tuple[list[Rational], Rational]:
    """A x ≤ b, rows in units of their sizes and s in units of ``unit``."""
    m, d = len(rows), len(rows[0])
    zero, one = fmpq(0), fmpq(1)
    eye = [[one if j == k else zero for k in range(d)] for j in range(d)]
    scaled = [[x / size for x in row] for row, size in zip(rows, sizes, strict=True)]
    gains = [unit / size for size in sizes]
    if math.isinf(norm):
        table = [[*(-x for x in row), gain] for row, gain in zip(scaled, gains, strict=True)]
        table += [[*row, zero] for row in eye] + [[*(-x for x in row), zero] for row in eye]
        return table, [zero] * m + [one] * (2 * d)
    table = [[*(-x for x in row), *row, gain] for row, gain in zip(scaled, gains, strict=True)]
    table += [[*(-x for x in row), *[zero] * d, zero] for row in eye]
    table += [[*[zero] * d, *(-x for x in row), zero] for row in eye]
    return [*table, [one] * (2 * d) + [zero]], [zero] * (m + 2 * d) + [one]


def _optimal_vertex(table: list[Rational], bounds: Rational) -> tuple[Rational, dict[int, fmpq]] | None:
    """The vertex of A x ≤ b with the largest last variable, and its duals by constraint: the criss-cross method.

    From the first independent constraints. It exchanges the first constraint that is violated, or has a negative dual,
    for the first that fits, and ends (Terlaky, *A convergent criss-cross method*, 1985); ``None`` after
    :data:`EXCHANGES`.
    """
    variables = len(table[0])
    basis = _first_independent(table)
    aim = fmpq_mat(variables, 1, [fmpq(0)] * (variables - 1) + [fmpq(1)])
    for _ in range(EXCHANGES if len(basis) == variables else 0):
        matrix = fmpq_mat([table[k] for k in basis])
        point = list(matrix.solve(fmpq_mat(variables, 1, [bounds[k] for k in basis])).entries())
        prices = matrix.transpose().solve(aim).entries()
        wrong = [k for k, (x, b) in enumerate(zip(products(table, point), bounds, strict=True)) if x > b]
        negative = [k for k, price in zip(basis, prices, strict=True) if price < 0]
        if not wrong and not negative:
            return point, dict(zip(basis, prices, strict=True))
        first = min(wrong + negative)
        if first in negative:
            place = basis.index(first)
            away = matrix.solve(fmpq_mat(variables, 1, [fmpq(-1 if k == place else 0) for k in range(variables)]))
            fits = [k for k, x in enumerate(products(table, list(away.entries()))) if x > 0 and k not in basis]
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
    """The first linearly independent rows; decided modulo a prime, by which none is called independent that is not."""
    numerators, _ = fmpq_mat(table).transpose().numer_denom()
    reduced, rank = nmod_mat(numerators, PRIME).rref()
    entries, found, at = reduced.tolist(), [], 0
    for row in range(rank):
        while int(entries[row][at]) == 0:
            at += 1
        found.append(at)
    return found
