"""Barrier methods, in high precision, for nearly the largest margin in ‖·‖_q, 1 < q < ∞, and in norms of matrices.

The margin of p is its least product with the N rows g_j = k_iα − k_it; for norms of matrices, W (d × e) and matrices
g_j take the place of p and rows. λ_j is the dual of row j.

Newton's method minimises τ c·x + F(x), where c·x is the objective, F is a self-concordant barrier of parameter ν, and τ
grows. At the minimum, c·x is within ν/τ of its least value. Rows of very different sizes and rows that nearly coincide
do not change this bound, but they cost digits, so numbers have :data:`BITS` bits. If Newton's method fails, the result
is None.

References: R. Chares, *Cones and Interior-Point Algorithms for Structured Convex Optimization* (2009), the power cone;
Y. Nesterov and A. Nemirovskii, *Interior-Point Polynomial Algorithms in Convex Programming* (1994).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from flint import arb, arb_mat, ctx, fmpq

from reference_attention.exact import times_power_of_two

Rational = list[fmpq]
Point = list[arb]
"""A vector of numbers of :data:`BITS` bits: midpoints of balls, without their error bounds."""

BITS = 384
"""Working precision in bits; equations of condition number 1e30, which cost about 100 bits, leave more than half of
them."""
FACTOR, LAST = 16, 2.0**48
"""The factor by which the weight τ of the objective grows, and the last τ; there the objective is within about 1e-13 of
its least value."""
STEPS = 400
"""Largest number of Newton steps for one τ; about ten are needed unless the start is far from the minimum."""
APPROXIMATE: Literal["approx"] = "approx"
"""Option of python-flint that solves linear equations without error bounds, which would grow with every step of the
elimination."""
MOST = 256
"""Largest number of entries of W; with more, computing second derivatives takes minutes."""
CENTRED, EXACT = 0.2, 1e-12
"""Newton decrement (the length of a step in the norm of the Hessian) below which full steps are made and τ grows,
because Newton's method converges quadratically there; and the decrement to which the minimum for the last τ is
computed, because rows that nearly cancel magnify the error of the duals."""


class Barrier(ABC):
    """A function τ c·x + F(x) to be minimised: objective c·x, weight τ, self-concordant barrier F."""

    @abstractmethod
    def newton(self, point: Point, tau: float) -> tuple[Point, Point]:
        """Return the gradient and Newton's step at ``point``, for the weight ``tau`` of the objective.

        Raises:
            ZeroDivisionError: the second derivative is singular to working precision.
        """

    def minimise(self, point: Point) -> Point | None:
        """Return the minimum for the last τ, from a start inside the domain; None if Newton's method fails."""
        tau = 1.0
        while True:
            centre = self._centre(point, tau, CENTRED if tau < LAST else EXACT)
            if centre is None or tau >= LAST:
                return centre
            point, tau = centre, tau * FACTOR

    def _centre(self, point: Point, tau: float, enough: float) -> Point | None:
        """Return the minimum for one τ, up to a Newton decrement ``enough``; None if Newton's method fails."""
        for _ in range(STEPS):
            try:
                gradient, step = self.newton(point, tau)
            except ZeroDivisionError:
                return None
            decrement = float(abs(dot(gradient, step))) ** 0.5
            if not math.isfinite(decrement):
                return None
            # A step of 1/(1 + decrement) stays inside the domain, and lowers a self-concordant function by a constant.
            length = 1.0 if decrement < CENTRED else 1 / (1 + decrement)
            point = [(x + length * y).mid() for x, y in zip(point, step, strict=True)]
            if decrement < enough:
                return point
        return None


@dataclass(frozen=True, eq=False)
class PowerBarrier(Barrier):
    """The barrier for the least Σ|p_k|^q with margins g_j·p ≥ 1, at points (p, t) with |p_k|^q < t_k.

    The function is τ Σ t_k − Σ log(t_k^{2/q} − p_k²) − (1 − 1/q) Σ log t_k − Σ log(g_j·p − 1).

    Attributes:
        rows: the rows g_j, shape (N, d).
        norm: q.
    """

    rows: list[Point]
    norm: arb

    def raised(self, x: arb) -> arb:
        """Return |x|^q."""
        return (abs(x) ** self.norm).mid() if x != 0 else arb(0)

    def slacks(self, p: Point) -> Point:
        """Return the amounts g_j·p − 1 by which margins exceed 1, shape (N,)."""
        return [(dot(row, p) - 1).mid() for row in self.rows]

    def newton(self, point: Point, tau: float) -> tuple[Point, Point]:
        """Return the gradient and Newton's step at ``point``, eliminating every t_k; see :class:`Barrier`."""
        p, t = _halves(point)
        a = 2 / self.norm
        by_p, by_t, pp, pt, tt = [], [], [], [], []
        for x, y in zip(p, t, strict=True):
            # Derivatives of −log(r − x²) − (1 − 1/q) log y + τ y with r = y^{2/q}, for one entry x of p and y of t;
            # ``room`` is r − x².
            r = (y**a).mid()
            room = (r - x * x).mid()
            first, second = a * r / y, a * (a - 1) * r / (y * y)
            by_p.append((2 * x / room).mid())
            by_t.append((tau - first / room - (1 - a / 2) / y).mid())
            pp.append((2 / room + 4 * x * x / room**2).mid())
            pt.append((-2 * x * first / room**2).mid())
            tt.append((first**2 / room**2 - second / room + (1 - a / 2) / (y * y)).mid())
        table, gradient_of_slacks = _of_slacks(self.rows, self.slacks(p))
        slope = [(g + h).mid() for g, h in zip(by_p, gradient_of_slacks, strict=True)]
        diagonal = [(by_pp - both**2 / other).mid() for by_pp, both, other in zip(pp, pt, tt, strict=True)]
        right = [-(g - both * h / other) for g, h, both, other in zip(slope, by_t, pt, tt, strict=True)]
        in_p = _solve_diagonal(diagonal, table, right)
        in_t = [((-h - both * x) / other).mid() for h, both, other, x in zip(by_t, pt, tt, in_p, strict=True)]
        return slope + by_t, in_p + in_t


@dataclass(frozen=True, eq=False)
class SpectralBarrier(Barrier):
    """The barrier for the largest s with g_j·W ≥ s for all j, at points (vec W, s) with ‖W‖_op < 1.

    The function is −τ s − log det(I − WᵀW) − Σ log(g_j·W − s).

    Attributes:
        rows: the rows (vec g_j, −1), whose products with (vec W, s) are g_j·W − s; shape (N, d e + 1).
        shape: the shape (d, e) of W.
    """

    rows: list[Point]
    shape: tuple[int, int]

    def slacks(self, point: Point) -> Point:
        """Return the amounts g_j·W − s by which margins exceed s, shape (N,)."""
        return [dot(row, point).mid() for row in self.rows]

    def newton(self, point: Point, tau: float) -> tuple[Point, Point]:
        """Return the gradient and Newton's step at ``point``; see :class:`Barrier`."""
        first, second = _log_det(arb_mat(*self.shape, point[:-1]))
        table, slope = _of_slacks(self.rows, self.slacks(point))
        hessian = (table.transpose() * table).mid()
        for i in range(len(first)):
            for j in range(len(first)):
                hessian[i, j] += second[i, j]
        slope = [(g + h).mid() for g, h in zip(slope, [*first, arb(-tau)], strict=True)]
        return slope, _solve(hessian, [-g for g in slope])


@dataclass(frozen=True, eq=False)
class NuclearBarrier(Barrier):
    """The barrier for the largest Σλ_j with ‖Σλ_jg_j‖_op ≤ 1, which is dual to the largest margin in the nuclear norm.

    With Z = Σλ_jg_j, at points λ > 0 with ‖Z‖_op < 1, the function is −τ Σλ_j − log det(I − ZᵀZ) − Σ log λ_j.

    Attributes:
        rows: the rows vec g_j, shape (N, d e).
        shape: the shape (d, e) of Z and W.
    """

    rows: list[Point]
    shape: tuple[int, int]

    def combination(self, point: Point) -> arb_mat:
        """Return Z = Σλ_jg_j for the λ in ``point``."""
        return arb_mat(*self.shape, (arb_mat(1, len(point), point) * arb_mat(self.rows)).mid().entries())

    def newton(self, point: Point, tau: float) -> tuple[Point, Point]:
        """Return the gradient and Newton's step at ``point``; see :class:`Barrier`."""
        first, second = _log_det(self.combination(point))
        table = arb_mat(self.rows)
        hessian = (table * second * table.transpose()).mid()
        for j, x in enumerate(point):
            hessian[j, j] += 1 / (x * x)
        slope = [(dot(row, first) - tau - 1 / x).mid() for row, x in zip(self.rows, point, strict=True)]
        return slope, _solve(hessian, [-g for g in slope])


def least_power(rows: list[Rational], norm: float, feasible: Rational) -> tuple[Rational, Rational] | None:
    """Return p of nearly the least ‖p‖_q with g_j·p ≥ 1, and its duals λ ≥ 0; None where Newton's method fails.

    λ_j is proportional to 1/(g_j·p − 1), and ‖p‖_q^q is within (N + 3d)/τ of its least value, τ being the last weight
    of the objective.

    Args:
        rows: the rows g_j, shape (N, d).
        norm: q, 1 < q < ∞.
        feasible: the solution for q = 2, whose margins are at least 1, shape (d,).
    """
    with ctx.workprec(BITS):
        unit = _power_of_two_near(max(map(abs, feasible)))
        barrier = PowerBarrier(_numbers(rows, unit), arb(norm))
        # Start at twice the feasible point, all of whose margins exceed 1.
        start = [arb(2 * x / unit) for x in feasible]
        point = barrier.minimise([*start, *(2 * barrier.raised(x) + 1 for x in start)])
        if point is None:
            return None
        p = point[: len(feasible)]
        return [_rational(x) * unit for x in p], [_rational(1 / s) for s in barrier.slacks(p)]


def spectral_max_margin(
    rows: list[Rational], shape: tuple[int, int], feasible: Rational
) -> tuple[Rational, Rational] | None:
    """Return W with ‖W‖_op ≤ 1 of nearly the largest margin, and its duals λ ≥ 0, or None.

    λ_j is proportional to 1/(g_j·W − s), where s is just below the margin of W. The upper bound ‖Σλ_jg_j‖_⋆/Σλ_j of the
    largest margin is within (N + 2 min(d, e))/τ of it, τ being the last weight of the objective. The result is None if
    Newton's method fails, or if W has more than :data:`MOST` entries.

    Args:
        rows: the rows vec g_j, shape (N, d e).
        shape: the shape (d, e) of W.
        feasible: vec W for the W of largest margin in ‖·‖_F, scaled to least margin 1, shape (d e,).
    """
    if len(feasible) > MOST:
        return None
    with ctx.workprec(BITS):
        unit = _length_above(feasible)
        barrier = SpectralBarrier([[*row, arb(-1)] for row in _numbers(rows, unit)], shape)
        point = barrier.minimise([*(arb(x / unit / 2) for x in feasible), arb(1) / 4])
        if point is None:
            return None
        return [_rational(x) for x in point[:-1]], [_rational(1 / s) for s in barrier.slacks(point)]


def nuclear_max_margin(
    rows: list[Rational], shape: tuple[int, int], feasible: Rational, duals: Rational
) -> tuple[Rational, Rational] | None:
    """Return W of nearly the largest margin relative to ‖W‖_⋆, and its duals λ ≥ 0, or None.

    λ has nearly the largest sum subject to ‖Σλ_jg_j‖_op ≤ 1. W is the gradient of −log det(I − ZᵀZ) at Z = Σλ_jg_j; its
    margins are proportional to 1 + 1/(τλ_j), τ being the last weight of the objective. The result is None if Newton's
    method fails, or if W has more than :data:`MOST` entries.

    Args:
        rows: the rows vec g_j, shape (N, d e).
        shape: the shape (d, e) of W.
        feasible: vec W for the W of largest margin in ‖·‖_F, scaled to least margin 1, shape (d e,).
        duals: λ ≥ 0 with Σλ_jg_j = that W, shape (N,).
    """
    if len(feasible) > MOST:
        return None
    with ctx.workprec(BITS):
        unit = _length_above(feasible)
        table = _numbers(rows, unit)
        barrier = NuclearBarrier(table, shape)
        # Start inside the domain: scaled to ``unit``, the given duals contribute at most ½ to ‖Σλ_jg_j‖_F, and
        # ``little``, which makes every λ_j positive, at most ¼.
        little = 1 / (4 * sum((abs(x) for row in table for x in row), arb(0)))
        point = barrier.minimise([arb(x / unit / unit / 2) + little.mid() for x in duals])
        if point is None:
            return None
        first, _ = _log_det(barrier.combination(point))
        return [_rational(x) for x in first], [_rational(x) for x in point]


def dot(a: Point, b: Point) -> arb:
    """Return Σ a_k b_k."""
    return sum((x * y for x, y in zip(a, b, strict=True)), arb(0))


def _log_det(W: arb_mat) -> tuple[Point, arb_mat]:
    """Return the first and the second derivative of −log det(I − WᵀW) with respect to vec W.

    With E = (I − WᵀW)⁻¹, A = E Wᵀ and L = I + W A = (I − W Wᵀ)⁻¹, the derivatives in a direction H are 2 tr(A H) and 2
    tr(E Hᵀ L H) + 2 tr(A H A H).
    """
    d, e = W.nrows(), W.ncols()
    E = (_eye(e) - W.transpose() * W).mid().solve(_eye(e), algorithm=APPROXIMATE)
    A = (E * W.transpose()).mid()
    L = (_eye(d) + W * A).mid()
    places = [(a, b) for a in range(d) for b in range(e)]
    first = [2 * A[b, a] for a, b in places]
    return first, arb_mat([[(2 * (E[b, k] * L[a, j] + A[b, j] * A[k, a])).mid() for j, k in places] for a, b in places])


def _of_slacks(rows: list[Point], slacks: Point) -> tuple[arb_mat, Point]:
    """Return T and ∇f for f(x) = −Σ_j log(slack j), with ∇²f = TᵀT; the slack j has the gradient ``rows[j]``."""
    table = arb_mat([[(x / s).mid() for x in row] for row, s in zip(rows, slacks, strict=True)])
    gradient = table.transpose() * arb_mat(len(rows), 1, [-1] * len(rows))
    return table, gradient.mid().entries()


def _solve_diagonal(diagonal: Point, table: arb_mat, right: Point) -> Point:
    """Return x with (D + TᵀT) x = ``right``, for the positive diagonal matrix D and T = ``table``.

    The linear system solved has the size of the smaller dimension of T. If T has fewer rows than columns, x = D⁻¹(right
    − Tᵀy) with (I + T D⁻¹ Tᵀ) y = T D⁻¹ right.
    """
    d, n = len(diagonal), table.nrows()
    if d <= n:
        matrix = (table.transpose() * table).mid()
        for k, x in enumerate(diagonal):
            matrix[k, k] += x
        return _solve(matrix, right)
    quotients = [(x / y).mid() for x, y in zip(right, diagonal, strict=True)]
    spread = arb_mat([[(table[j, k] / y).mid() for k, y in enumerate(diagonal)] for j in range(n)])
    y = _solve((_eye(n) + spread * table.transpose()).mid(), (table * arb_mat(d, 1, quotients)).mid().entries())
    correction = (spread.transpose() * arb_mat(n, 1, y)).mid().entries()
    return [(a - b).mid() for a, b in zip(quotients, correction, strict=True)]


def _solve(matrix: arb_mat, right: Point) -> Point:
    """Return x with matrix·x = right, after scaling to a diagonal of ones.

    Raises:
        ZeroDivisionError: the matrix is singular to working precision.
    """
    scale = [(1 / matrix[k, k].sqrt()).mid() for k in range(matrix.nrows())]
    scaled = arb_mat([[(matrix[i, j] * a * b).mid() for j, b in enumerate(scale)] for i, a in enumerate(scale)])
    scaled_right = arb_mat(len(right), 1, [(x * a).mid() for x, a in zip(right, scale, strict=True)])
    solved = scaled.solve(scaled_right, algorithm=APPROXIMATE)
    return [(x * a).mid() for x, a in zip(solved.entries(), scale, strict=True)]


def _halves(point: Point) -> tuple[Point, Point]:
    """Return the two halves of a point (p, t): p and t."""
    return point[: len(point) // 2], point[len(point) // 2 :]


def _eye(k: int) -> arb_mat:
    """Return the identity matrix of k rows."""
    return arb_mat([[int(i == j) for j in range(k)] for i in range(k)])


def _numbers(rows: list[Rational], unit: fmpq) -> list[Point]:
    """Return the rows times ``unit``, as numbers of the working precision."""
    return [[arb(x * unit).mid() for x in row] for row in rows]


def _length_above(x: Rational) -> fmpq:
    """Return a rational number between ‖x‖_2 and about twice that."""
    unit = _power_of_two_near(max(map(abs, x)))
    square = sum((y * y / unit / unit for y in x), fmpq(0))
    return unit * _rational(arb(square).sqrt()) * fmpq(1001, 1000)


def _power_of_two_near(x: fmpq) -> fmpq:
    """Return a power of two between x/2 and 2x, for x > 0."""
    return times_power_of_two(fmpq(1), int(x.p).bit_length() - int(x.q).bit_length())


def _rational(x: arb) -> fmpq:
    """Return the midpoint of a ball as a rational number, exactly."""
    mantissa, exponent = x.mid().man_exp()
    return times_power_of_two(fmpq(mantissa), int(exponent))
