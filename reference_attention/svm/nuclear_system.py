"""A square system of equations for the solution of the nuclear-norm SVM, for a guess of its rank and tight constraints.

The problem is min ‖W‖_⋆ subject to ⟨a_j z_jᵀ, W⟩ ≥ b_j, with duals λ_j. For a rank r of W and a support S, the set of j
with λ_j > 0, the unknowns are K (d × r) and Q (e × r) with W = KQᵀ, λ on S, and an antisymmetric Ω (r × r). The
equations are

    MQ − K + KΩ = 0,   MᵀK − Q = 0,   ⟨a_j z_jᵀ, KQᵀ⟩ = b_j (j ∈ S),   K0ᵀK = KᵀK0,   M = Σ_S λ_j a_j z_jᵀ.

For a given K0, the equation K0ᵀK = KᵀK0 selects one of the pairs KU, QU, U orthogonal, which have the same W; Ω gives
as many unknowns as equations. Where KᵀK ≻ 0, Ω is 0 at a solution: KᵀK(I − Ω) = KᵀMQ = QᵀQ is symmetric, so KᵀKΩ + ΩKᵀK
= 0, a Lyapunov equation, whose only solution is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat
from jaxtyping import Float64

from reference_attention.svm.ball_matrices import balls
from reference_attention.svm.nuclear_bounds import dual_matrix, margins_of

Vector = Float64[np.ndarray, "k"]
Entries = Float64[np.ndarray, "_"]


@dataclass(frozen=True, eq=False)
class NuclearSystem:
    """The system of the module for given constraints j ∈ S, s of them.

    A vector of unknowns contains K and Q by rows, λ, and the entries of Ω above its diagonal.

    Attributes:
        a, z: the factors a_j and z_j of the constraints, shapes (s, d) and (s, e).
        b: the required margins b_j, shape (s,).
        exact: a, z and b in balls.
        anchor: K0, shape (d, r).
    """

    a: Float64[np.ndarray, "s d"]
    z: Float64[np.ndarray, "s e"]
    b: Float64[np.ndarray, "s"]
    exact: tuple[arb_mat, arb_mat, Sequence[arb]]
    anchor: Float64[np.ndarray, "d r"]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Return d, e, r and s (see the module and the class)."""
        return (*self.anchor.shape[:1], self.z.shape[1], self.anchor.shape[1], len(self.b))

    @property
    def unknowns(self) -> int:
        """Return the number of unknowns, which is also the number of equations."""
        d, e, r, s = self.sizes
        return (d + e) * r + s + r * (r - 1) // 2

    def arrays(self, x: Vector) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "e r"], Entries, Entries]:
        """Return K, Q, λ and the entries of Ω above its diagonal."""
        d, e, r, s = self.sizes
        K, Q, duals, omega = np.split(x, np.cumsum([d * r, e * r, s]))
        return K.reshape(d, r), Q.reshape(e, r), duals, omega

    def ball_arrays(self, x: Sequence[arb]) -> tuple[arb_mat, arb_mat, Sequence[arb], Sequence[arb]]:
        """Return K, Q, λ and the entries of Ω above its diagonal, in balls."""
        d, e, r, s = self.sizes
        k, q = d * r, (d + e) * r
        return arb_mat(d, r, x[:k]), arb_mat(e, r, x[k:q]), x[q : q + s], x[q + s :]

    def residual(self, x: Vector) -> Vector:
        """Return the left sides of the equations minus the right sides, as a vector."""
        K, Q, duals, omega = self.arrays(x)
        M, overlap = (self.a * duals[:, None]).T @ self.z, self.anchor.T @ K
        above = np.triu_indices(len(overlap), 1)
        turning = np.zeros_like(overlap)
        turning[above] = omega
        margins = np.vecdot(self.a @ K, self.z @ Q) - self.b
        parts = (M @ Q - K + K @ (turning - turning.T), M.T @ K - Q, margins, (overlap - overlap.T)[above])
        return np.concatenate([part.ravel() for part in parts])

    def ball_residual(self, x: Sequence[arb]) -> list[arb]:
        """Return the left sides of the equations minus the right sides, in balls."""
        K, Q, duals, omega = self.ball_arrays(x)
        a, z, b = self.exact
        M, overlap = dual_matrix(a, z, duals), balls(self.anchor).transpose() * K
        r = overlap.nrows()
        above = [(i, j) for i in range(r) for j in range(i + 1, r)]
        turning = arb_mat(r, r)
        for (i, j), x_ij in zip(above, omega, strict=True):
            turning[i, j], turning[j, i] = x_ij, -x_ij
        margins = [x - y for x, y in zip(margins_of(a, z, K, Q), b, strict=True)]
        first, second = M * Q - K + K * turning, M.transpose() * K - Q
        return [*first.entries(), *second.entries(), *margins, *(overlap[i, j] - overlap[j, i] for i, j in above)]

    def derivative(self, x: Vector) -> Float64[np.ndarray, "k k"]:
        """Return the derivative of :meth:`residual` with respect to the unknowns."""
        d, e, r, s = self.sizes
        K, Q, duals, omega = self.arrays(x)
        M, eye = (self.a * duals[:, None]).T @ self.z, np.eye(r)
        k, q = d * r, (d + e) * r
        J = np.zeros((self.unknowns, self.unknowns))
        J[:k, k:q], J[k:q, :k] = np.kron(M, eye), np.kron(M.T, eye)
        J[k:q, k:q] = -np.eye(e * r)
        J[:k, q : q + s] = (self.a[:, :, None] * (self.z @ Q)[:, None, :]).reshape(s, k).T
        J[k:q, q : q + s] = (self.z[:, :, None] * (self.a @ K)[:, None, :]).reshape(s, e * r).T
        J[q : q + s, :q] = J[:q, q : q + s].T
        turning = np.zeros((r, r))
        for p, (i, j) in enumerate(zip(*np.triu_indices(r, 1), strict=True)):
            column, row = J[:k, q + s + p].reshape(d, r), np.zeros((d, r))
            column[:, j], column[:, i] = K[:, i], -K[:, j]
            row[:, j], row[:, i] = self.anchor[:, i], -self.anchor[:, j]
            J[:k, q + s + p], J[q + s + p, :k] = column.ravel(), row.ravel()
            turning[i, j], turning[j, i] = omega[p], -omega[p]
        J[:k, :k] = np.kron(np.eye(d), turning.T - eye)
        return J
