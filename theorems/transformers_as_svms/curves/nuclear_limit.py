"""Closed form of the limit offset o of the nuclear-norm path from the ray of W_⋆: W̄(R) = ρW_⋆ + o + O(1/ρ).

Here ρ = R/C_⋆, C_⋆ = ‖W_⋆‖_⋆, S is the set of rows G_j with duals λ_j > 0, and M = Σ λ_j G_j is scaled to ‖M‖_op = 1.
In the bases [U1 U2] and [V1 V2] of the singular vectors of M, W_⋆ = U1 P V1ᵀ, M = diag(I, Σ), and o has the blocks o11
… o22. On the path, a matrix M(R) = M + Δ/ρ + … with Δ = Σ_S δ_j G_j is a subgradient of the nuclear norm at W̄(R). To
first order in 1/ρ, M(R) maps the right singular vectors of W̄(R), V1 + V2 Y/ρ, to its left singular vectors, U1 + U2
X/ρ, both up to one rotation, so that

    sym Δ11 = 0,   Δ21 = X − ΣY,   Δ12ᵀ = Y − ΣᵀX   with   X = o21 P⁻¹,   Y = o12ᵀ P⁻¹.

The block 11 of W̄(R) is the rotation I + Δ11/ρ times a symmetric matrix: o11 − o11ᵀ = Δ11 P + P Δ11. The rank of W̄(R)
is that of W_⋆: o22 = 0. The nuclear norm of W̄(R) is ρC_⋆: tr o11 = 0. The weights c_j e^{−h_j} of the rows in −∇L,
with h_j the margins of W̄(R), are proportional to λ_j + δ_j/ρ: ⟨G_j, o⟩ = log(c_j/λ_j) + t on S, with one unknown t.
These equations are a square linear system in o, δ and t.

References: *Transformers as Support Vector Machines*, Theorem 2 (KQ-ERM).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.paths.nuclear_offsets import NuclearOffsets
from reference_attention.paths.nuclear_path import newton
from theorems.transformers_as_svms.curves.nuclear_bounds import NuclearBounds


@dataclass(frozen=True, eq=False)
class Offset:
    """The offset o, with its rounding error.

    Attributes:
        value: the offset o, shape (d, e); NaN if the linear system could not be solved in floats.
        rounding: a bound of the error of ``value`` in the Frobenius norm; ∞ if the system could not be solved.
    """

    value: Float64[np.ndarray, "d e"]
    rounding: float


def offset_in_closed_form(bounds: NuclearBounds, log_costs: Float64[np.ndarray, "N"]) -> Offset:
    """Solve the linear system for the offset o; the solution of ATT-SVM⋆ must be proven unique.

    ``log_costs`` are the logarithms of the factors c_j in the weights c_j e^{−h_j} of the module.
    """
    svm, (a, z, _) = bounds.svm, bounds.certificate.floats
    assert svm.face is not None
    support = np.flatnonzero(bounds.duals > 0)
    (d, e), r, s = svm.W.shape, svm.K.shape[1], len(support)
    (U, V), (U1, V1) = (_complete_basis(x) for x in svm.face), svm.face
    P, Sigma = U1.T @ svm.W @ V1, (U.T @ bounds.M @ V)[r:, r:]
    unsolved = Offset(np.full((d, e), np.nan), np.inf)
    try:
        P, inverse = (P + P.T) / 2, np.linalg.inv((P + P.T) / 2)
    except np.linalg.LinAlgError:
        return unsolved
    # Choose the unit of δ so that o, δ and t have similar sizes.
    unit = bounds.duals[support].sum()
    G = np.einsum("ja,jb->jab", a[support] @ U, z[support] @ V)
    above, lower = np.triu_indices(r), np.triu_indices(r, 1)

    def equations(x: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
        o, delta, t = x[: d * e].reshape(d, e), unit * x[d * e : -1], x[-1]
        change = np.einsum("j,jab->ab", delta, G)
        turn, o11 = change[:r, :r], o[:r, :r]
        X, Y = o[r:, :r] @ inverse, o[:r, r:].T @ inverse
        parts = (
            np.einsum("jab,ab->j", G, o) - t,
            np.atleast_1d(np.trace(o11)) / unit,
            o[r:, r:] / unit,
            (turn + turn.T)[above],
            (o11 - o11.T - turn @ P - P @ turn)[lower] / unit,
            change[r:, :r] - X + Sigma @ Y,
            change[:r, r:].T - Y + Sigma.T @ X,
        )
        return np.concatenate([part.ravel() for part in parts])

    size = d * e + s + 1
    A = np.array([equations(basis_vector) for basis_vector in np.eye(size)]).T
    right = np.zeros(size)
    right[:s] = log_costs[support] - np.log(bounds.duals[support])
    try:
        x = np.linalg.solve(A, right)
    except np.linalg.LinAlgError:
        return unsolved
    o = U @ x[: d * e].reshape(d, e) @ V.T
    return Offset(o, 8 * size * EPS * float(np.linalg.cond(A)) * float(np.linalg.norm(x)))


def corrections(offsets: NuclearOffsets, rho: float) -> tuple[float, float]:
    """Return the lengths of two Newton steps from the limit offset to the path at radius ρ; ∞ if a step fails."""
    x = newton(offsets, offsets.start, 0.0)
    if x is None:
        return np.inf, np.inf
    at = [offsets.offset(x, 0.0)]
    for _ in range(2):
        F, J = offsets.system(x, 1 / rho)
        if not np.isfinite(F).all():
            return np.inf, np.inf
        try:
            x = x - np.linalg.solve(J, F)
        except np.linalg.LinAlgError:
            return np.inf, np.inf
        at.append(offsets.offset(x, 1 / rho))
    first, second = (float(np.linalg.norm(b - a)) * 2.0**offsets.unit for a, b in pairwise(at))
    return first, second


def _complete_basis(columns: Float64[np.ndarray, "d r"]) -> Float64[np.ndarray, "d d"]:
    """Return an orthonormal basis whose first vectors are the given orthonormal columns."""
    full = np.linalg.qr(columns, mode="complete")[0]
    return np.concatenate([columns, full[:, columns.shape[1] :]], axis=1)
