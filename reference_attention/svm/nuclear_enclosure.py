"""An enclosure of the solution of the nuclear-norm SVM by Krawczyk's method, and the facts that it proves.

The problem is min ‖W‖_⋆ subject to ⟨a_j z_jᵀ, W⟩ ≥ b_j, with duals λ_j, W = KQᵀ of rank r, and M = Σ λ_j a_j z_jᵀ; the
support S is the set of constraints with λ_j > 0. Let F = 0 be the system of :mod:`.nuclear_system` in the unknowns x, J
the derivative of F and Y an approximate inverse of J. If ‖YF(x)‖ + αρ < ρ with α ≥ ‖I − YJ‖ on the box of radius ρ
around x, then F has exactly one zero in the box, and J is nonsingular there.

Let λ > 0 on S, let the margins outside S exceed b, let KᵀK ≻ 0 and I − MᵀM + V1V1ᵀ ≻ 0, where V1 is an orthonormal
basis of the range of Q, on which MᵀM is the identity. Then ‖M‖_op = 1, W = KQᵀ is optimal with duals λ (weak duality),
the singular value 1 of M has multiplicity r, and W and λ are the only solutions: the difference to another solution
would be in the kernel of J.

References: R. Krawczyk (1969); N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 3.5 (rounding of YJ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb, arb_mat
from jaxtyping import Float64, Int64

from reference_attention.floats import EPS
from reference_attention.svm.ball_matrices import (
    cholesky,
    identity,
    least_eigenvalue,
    multiply,
    precision,
    squared_norm,
)
from reference_attention.svm.nuclear_bounds import dual_matrix, margins_of
from reference_attention.svm.nuclear_system import NuclearSystem
from reference_attention.svm.outer_rows import OuterRows

Vector = Float64[np.ndarray, "k"]

STEPS = 12
"""Largest number of Newton steps in floats; four are usually enough."""
SETTLED = 1e-13
"""Largest residual of the equations, for unknowns of size one, at which Newton's method in floats may end; steps in
balls then refine the solution."""
REFINEMENTS = 4
"""Number of Newton steps in balls with the inverse computed in floats: each gains at least ten of the 48 digits that
balls have."""
CORRECTIONS = 8
"""Largest number of sets S of tight constraints that are tried; for inputs of about the same size the first one is
right."""
SINGULAR = 1e-7
"""Share of the largest singular value of the derivative below which singular values count as zero in Newton steps of
least norm."""
CONTRACTION = 1e-3
"""Largest accepted bound α of ‖I − YJ‖; with a larger α, floats cannot tell whether the system is singular."""


class NotDecided(Exception):
    """Error raised where the solution cannot be enclosed; users see its message."""


@dataclass(frozen=True, eq=False)
class NuclearEnclosure:
    """The solution of the nuclear-norm SVM in balls, in the units of the data (where every b_j is 1).

    The symbols a_j, z_j, λ_j and the support S are those of the module.

    Attributes:
        K, Q: factors of W = KQᵀ with KᵀK = QᵀQ, shapes (d, r) and (e, r).
        duals: λ_j, zero outside the support, N of them.
        support: the indices j of S: λ_j > 0, and the margin is exactly 1; all other margins are larger.
        margins: ⟨a_j z_jᵀ, W⟩, N of them.
        value: C_⋆ = ‖W‖_⋆ = Σ λ_j.
        U1, V1: orthonormal singular vectors of M = Σ λ_j a_j z_jᵀ for its singular value 1, shapes (d, r) and (e, r).
        gap: 1 minus σ_{r+1}(M), the largest singular value of M below 1; 1 if there is none.
        injectivity: the least singular value of the map P ↦ (⟨a_j z_jᵀ, U1 P V1ᵀ⟩)_{j∈S} on symmetric matrices P.
    """

    K: arb_mat
    Q: arb_mat
    duals: list[arb]
    support: list[int]
    margins: list[arb]
    value: arb
    U1: arb_mat
    V1: arb_mat
    gap: arb
    injectivity: arb

    @property
    def rank(self) -> int:
        """Return r, the rank of W."""
        return int(self.K.ncols())

    @cached_property
    def W(self) -> arb_mat:
        """Return W = KQᵀ."""
        with precision():
            return self.K * self.Q.transpose()


def enclose_nuclear(
    rows: OuterRows,
    K: Float64[np.ndarray, "d r"],
    Q: Float64[np.ndarray, "e r"],
    duals: Float64[np.ndarray, "N"],
    support: Int64[np.ndarray, "s"],
) -> NuclearEnclosure:
    """Return an enclosure of the solution near a given point, in the units of the data.

    Args:
        rows: the constraints.
        K: factor of W = KQᵀ in floats; its number r of columns is the guessed rank.
        Q: the other factor of W.
        duals: λ in floats.
        support: the constraints guessed to be tight; up to :data:`CORRECTIONS` guesses are corrected.

    Raises:
        NotDecided: the solution cannot be enclosed; the message gives the reason.
    """
    for _ in range(CORRECTIONS):
        if not len(support) or not K.shape[1]:
            break
        with precision():
            system, start = _system(rows, K, Q, duals, support)
            x = _newton(system, start)
            corrected = _correct_support(rows, support, *system.arrays(x)[:3])
            if corrected is None:
                return _proven(rows, support.tolist(), system.ball_arrays(krawczyk(system, x)))
        support = corrected
    raise NotDecided("the set of tight constraints cannot be decided")


def _correct_support(
    rows: OuterRows,
    support: Int64[np.ndarray, "s"],
    K: Float64[np.ndarray, "d r"],
    Q: Float64[np.ndarray, "e r"],
    duals: Vector,
) -> Int64[np.ndarray, "s"] | None:
    """Return the support without its most negative dual, or with the most violated constraint; None if it is right."""
    if duals.min() < 0:
        return np.delete(support, np.argmin(duals * rows.b[support]))
    excess = np.vecdot(rows.a @ K, rows.z @ Q) / rows.b - 1
    excess[support] = 0.0
    return np.sort(np.append(support, np.argmin(excess))) if excess.min() < 0 else None


def nearest_stationary(
    rows: OuterRows,
    K: Float64[np.ndarray, "d r"],
    Q: Float64[np.ndarray, "e r"],
    duals: Float64[np.ndarray, "N"],
    support: Int64[np.ndarray, "s"],
) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "e r"], Float64[np.ndarray, "N"]]:
    """Return K, Q and λ ≥ 0 that solve, up to rounding, the system of :mod:`.nuclear_system`, near the given ones.

    Newton steps of least norm are made, since the system may have many solutions.
    """
    with precision():
        system, x = _system(rows, K, Q, duals, support)
    best, least = x, math.inf
    for _ in range(STEPS):
        F = system.residual(x)
        size = float(np.abs(F).max())
        if not size < least:
            break
        best, least = x, size
        try:
            x = x - np.linalg.lstsq(system.derivative(x), F, rcond=SINGULAR)[0]
        except np.linalg.LinAlgError:
            break
    K, Q, multipliers, _ = system.arrays(best)
    full_duals = np.zeros_like(duals)
    full_duals[support] = np.maximum(multipliers, 0.0)
    return K, Q, full_duals


def _system(
    rows: OuterRows,
    K: Float64[np.ndarray, "d r"],
    Q: Float64[np.ndarray, "e r"],
    duals: Float64[np.ndarray, "N"],
    support: Int64[np.ndarray, "s"],
) -> tuple[NuclearSystem, Vector]:
    """Return the system for a support, anchored at K, and the vector of its unknowns with the given values."""
    indices = support.tolist()
    a, z = (arb_mat([table[j] for j in indices]) for table in (rows.a_balls.tolist(), rows.z_balls.tolist()))
    exact = (a, z, [rows.b_balls[j] for j in indices])
    system = NuclearSystem(rows.a[support], rows.z[support], rows.b[support], exact, K)
    r = K.shape[1]
    return system, np.concatenate([K.ravel(), Q.ravel(), duals[support], np.zeros(r * (r - 1) // 2)])


def _newton(system: NuclearSystem, x: Vector) -> Vector:
    """Run Newton's method in floats until rounding stops it, and return the point reached."""
    last = math.inf
    for _ in range(STEPS):
        F = system.residual(x)
        size = float(np.abs(F).max())
        if not size < last and last < SETTLED:
            return x
        try:
            x, last = x - np.linalg.solve(system.derivative(x), F), size
        except np.linalg.LinAlgError:
            break
    if last < SETTLED:
        return x
    raise NotDecided("no isolated solution with the guessed rank and support")


def krawczyk(system: NuclearSystem, floats: Vector) -> list[arb]:
    """Return a box of balls, one per unknown, with exactly one solution of the system; ``floats`` is near the solution.

    Raises:
        NotDecided: the system may be singular.
    """
    J = system.derivative(floats)
    try:
        Y = np.linalg.inv(J)
    except np.linalg.LinAlgError:
        raise NotDecided("the system of optimality conditions may be singular") from None
    x = [arb(v) for v in floats.tolist()]
    for _ in range(REFINEMENTS):
        step = Y @ np.array([float(f.mid()) for f in system.ball_residual(x)])
        x = [(v - arb(s)).mid() for v, s in zip(x, step.tolist(), strict=True)]
    at = np.array([float(v) for v in x])
    alpha, change = _contraction(system, Y, at)
    residual = np.array([float(f.abs_upper()) for f in system.ball_residual(x)])
    # Doubling the sum covers the errors of adding positive floats and of rounding balls to floats.
    eta = 2 * float((np.abs(Y) @ residual).max())
    radius = 2 * eta if eta > 0 else 2.0**-150
    if not alpha + change * radius < CONTRACTION or not radius < 1:
        raise NotDecided("the system of optimality conditions may be singular")
    return [v + arb(0, radius) for v in x]


def _contraction(system: NuclearSystem, Y: Float64[np.ndarray, "k k"], x: Vector) -> tuple[float, float]:
    """Return a bound of ‖I − YJ‖_∞ at x, with all rounding errors, and how much ‖I − YJ‖_∞ grows per distance from x.

    J is the derivative of the system, and Y its approximate inverse.
    """
    d, e, r, s = system.sizes
    J = system.derivative(x)
    size, inverse = len(J), float(np.abs(Y).sum(axis=1).max())
    defect = float(np.abs(np.eye(size) - Y @ J).sum(axis=1).max())
    # The rounding error of the product is at most γ_k |Y||J|, γ_k = k eps/(1 − k eps). Entries of J are sums of
    # products of factors below 1 and unknowns; ``entry`` bounds their errors.
    product = 2 * (size + 2) * EPS * float((np.abs(Y) @ np.abs(J)).sum(axis=1).max())
    entry = 2 * (s + d + e + 8) * EPS * (1 + (s + d + e) * float(np.abs(x).max()))
    # J is affine in the unknowns. As |a|, |z| < 1, its absolute row sums change by at most the sum in brackets times
    # the distance from x.
    change = 2 * inverse * (2 * s * max(d, e) + 3 * r + 2 * d * e * r)
    return 2 * (defect + product + inverse * size * entry), change


def _proven(
    rows: OuterRows, support: list[int], solution: tuple[arb_mat, arb_mat, Sequence[arb], Sequence[arb]]
) -> NuclearEnclosure:
    """Return the enclosure if the zero of the system is proven to be the solution; raise NotDecided otherwise."""
    K, Q, positive, _ = solution
    if not all(x > 0 for x in positive):
        raise NotDecided("a dual of a tight constraint may be zero")
    duals = [arb(0)] * len(rows.b)
    for j, x in zip(support, positive, strict=True):
        duals[j] = x
    margins = margins_of(rows.a_balls, rows.z_balls, K, Q)
    if not all(margins[j] > rows.b_balls[j] for j in range(len(duals)) if j not in support):
        raise NotDecided("a constraint without a dual may be tight")
    factor = cholesky(K.transpose() * K)
    if factor is None:
        raise NotDecided("W may have less than the guessed rank")
    turn = factor.inv().transpose()
    U1, V1 = K * turn, Q * turn
    M = dual_matrix(rows.a_balls, rows.z_balls, duals)
    d, e, r = M.nrows(), M.ncols(), K.ncols()
    within = M.transpose() * M - V1 * V1.transpose() if e <= d else M * M.transpose() - U1 * U1.transpose()
    # With σ the singular values of M, I − ``within`` has the eigenvalue 1 on the range of V1 (or U1), and 1 − σ² on its
    # complement.
    least = least_eigenvalue(identity(min(d, e)) - within)
    # A lower bound of the gap that is right up to a factor of 2 suffices, as the gap is used only in bounds.
    if not 2 * least.lower() > least.upper():
        raise NotDecided("a further singular value of Σ λ_j a_j z_jᵀ may be 1")
    gap = arb(1) if r == min(d, e) else 1 - (1 - least).nonnegative_part().sqrt()
    return _in_units(rows, support, K, Q, duals, margins, U1, V1, gap)


def _in_units(
    rows: OuterRows,
    support: list[int],
    K: arb_mat,
    Q: arb_mat,
    duals: list[arb],
    margins: list[arb],
    U1: arb_mat,
    V1: arb_mat,
    gap: arb,
) -> NuclearEnclosure:
    """Convert an enclosure from the units of ``rows`` to the units of the data."""
    unit = arb(2) ** rows.unit
    root, value = unit.sqrt(), squared_norm(K) * unit
    sizes = [arb(2) ** int(k) for k in rows.p + rows.q]
    rescaled = [x / size for x, size in zip(duals, sizes, strict=True)]
    real = [x * size * unit for x, size in zip(margins, sizes, strict=True)]
    for j in support:
        real[j] = arb(1)
    injective = _least_singular_value(_images(rows.a_balls * U1, rows.z_balls * V1, sizes, support))
    times = [arb_mat(m.nrows(), m.ncols(), [x * root for x in m.entries()]) for m in (K, Q)]
    return NuclearEnclosure(times[0], times[1], rescaled, support, real, value, U1, V1, gap, injective)


def _least_singular_value(images: arb_mat) -> arb:
    """Return the least singular value of A = ``images`` in a ball whose ends differ by less than a factor 2.

    It is computed from the largest eigenvalue of (AᵀA)⁻¹.

    Raises:
        NotDecided: the singular value may be zero.
    """
    try:
        inverse = (images.transpose() * images).inv()
    except ZeroDivisionError:
        raise NotDecided("several matrices with the same singular spaces may have the same tight margins") from None
    largest = -least_eigenvalue(multiply(inverse, arb(-1)))
    if not 2 * largest.lower() > largest.upper():
        raise NotDecided("several matrices with the same singular spaces may have the same tight margins")
    return 1 / largest.sqrt()


def _images(aU: arb_mat, zV: arb_mat, sizes: list[arb], support: list[int]) -> arb_mat:
    """Return ⟨a_j z_jᵀ, U1 P V1ᵀ⟩ for an orthonormal basis of symmetric matrices P, one row for each j in ``support``.

    ``aU`` and ``zV`` are the products of all a_j with U1 and of all z_j with V1, and the results are multiplied by
    ``sizes``.
    """
    r, half = aU.ncols(), 1 / arb(2).sqrt()
    images = []
    for j in support:
        u, v = [aU[j, k] * sizes[j] for k in range(r)], [zV[j, k] for k in range(r)]
        images.append([u[k] * v[k] for k in range(r)])
        images[-1] += [(u[k] * v[l] + u[l] * v[k]) * half for k in range(r) for l in range(k + 1, r)]
    return arb_mat(images)
