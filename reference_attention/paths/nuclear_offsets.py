"""The regularization path of (K, Q) near the ray of W_⋆, as a smooth system of equations that is regular at 1/ρ = 0.

W_⋆ = K_⋆Q_⋆ᵀ is the unique solution of ATT-SVM⋆, which minimises the nuclear norm ‖W‖_⋆ subject to the margins ⟨G_j, W⟩
≥ 1, where the rows G_j are the matrices (x_iα − x_it) z_iᵀ. Let C_⋆ = ‖W_⋆‖_⋆, m_j = ⟨G_j, W_⋆⟩ the margins, λ_j the
duals, S the set of rows with λ_j > 0, and M_⋆ = Σ λ_jG_j. On the sphere ½(‖K‖² + ‖Q‖²) = ρC_⋆ write K = √ρ (K_⋆ + k/ρ)
and Q = √ρ (Q_⋆ + q/ρ); then W = KQᵀ = ρW_⋆ + o with the offset o = K_⋆qᵀ + kQ_⋆ᵀ + kqᵀ/ρ. At large ρ the log excess
risk is f(W) = log Σ_j c_j e^{−h_j} with h_j = ⟨G_j, W⟩ and costs c_j > 0. With the softmax weights ω_j ∝ c_j e^{−h_j},
−∇f = M(W) = Σ ω_jG_j, and a point is stationary if M(W)Q = μK and M(W)ᵀK = μQ for a multiplier μ. Substitute ω_j =
λ_j/C_⋆ + δ_j/ρ on S, δM = Σ_S δ_jG_j + ρ Σ_∖S ω_jG_j and μ = 1/C_⋆ + ν/ρ. Then the terms that do not vanish with 1/ρ
cancel. With ε = 1/ρ, K' = K_⋆ + εk, Q' = Q_⋆ + εq, an unknown t for the logarithm of Σ_j c_j e^{−h_j} (without its
leading part −ρ), and an antisymmetric matrix Ω, which is 0 at a solution, the equations are

    δM Q' + M_⋆q/C_⋆ − νK' − k/C_⋆ + K'Ω = 0,   δMᵀK' + M_⋆ᵀk/C_⋆ − νQ' − q/C_⋆ = 0,
    log(λ_j/C_⋆ + εδ_j) + ⟨G_j, o⟩ + t = log c_j (j ∈ S),   log ω_j = log c_j − ρ(m_j − 1) − ⟨G_j, o⟩ − t (j ∉ S),
    Σ_S δ_j + ρ Σ_∖S ω_j = 0,   tr(K_⋆ᵀk + Q_⋆ᵀq) + ε(‖k‖² + ‖q‖²)/2 = 0,   K_⋆ᵀk = kᵀK_⋆.

At ε = 0 the system is linear and square in the unknowns k, q, δ, ν, t, Ω, and singular only if W_⋆ is not unique; the o
of its solution is the limit of the offset as ρ → ∞.

References: *Transformers as Support Vector Machines*, Theorem 2 (KQ-ERM).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb
from jaxtyping import Float64, Int64

from reference_attention.svm.ball_matrices import midpoints, multiply, precision
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin

Vector = Float64[np.ndarray, "k"]


@dataclass(frozen=True, eq=False)
class NuclearOffsets:
    """The system of equations of the module, in units in which C_⋆ is about 1 (symbols: see the module).

    Attributes:
        K, Q: the factors K_⋆ and Q_⋆ of W_⋆, shapes (d, r) and (e, r).
        a, z: the factors of the rows G_j = a_j z_jᵀ, shapes (N, d) and (N, e).
        duals: the duals λ_j, shape (N,).
        beyond: the margins minus one, m_j − 1, shape (N,).
        log_costs: the logarithms log c_j of the costs, shape (N,).
        support: the indices of the rows in S, whose duals are positive.
        unit: the exponent for which 2^unit times a matrix W in the units of this system is W in the units of the data.
    """

    K: Float64[np.ndarray, "d r"]
    Q: Float64[np.ndarray, "e r"]
    a: Float64[np.ndarray, "N d"]
    z: Float64[np.ndarray, "N e"]
    duals: Float64[np.ndarray, "N"]
    beyond: Float64[np.ndarray, "N"]
    log_costs: Float64[np.ndarray, "N"]
    support: Int64[np.ndarray, "s"]
    unit: int

    @classmethod
    def of(cls, svm: NuclearMaxMargin, log_costs: Float64[np.ndarray, "N"]) -> NuclearOffsets:
        """Return the system near the ray of a solution that is proven to be the only one.

        Args:
            svm: the solution.
            log_costs: the logarithms log c_j of the costs, in the order of the solution's rows (i, t), t ≠ α_i.
        """
        exact, rows = svm.exact, svm.rows
        assert exact is not None
        with precision():
            unit = arb(2) ** -rows.unit
            root = unit.sqrt()
            K, Q = (midpoints(multiply(m, root)) for m in (exact.K, exact.Q))
            duals = np.array([float((x * unit).mid()) for x in exact.duals])
            beyond = np.array([float((x - 1).mid()) for x in exact.margins])
        return cls(K, Q, rows.a / rows.b[:, None], rows.z, duals, beyond, log_costs, np.array(exact.support), rows.unit)

    @cached_property
    def value(self) -> float:
        """Return C_⋆ = ‖W_⋆‖_⋆, which is the sum of the duals."""
        return float(self.duals.sum())

    @cached_property
    def rest(self) -> Int64[np.ndarray, "m"]:
        """Return the indices of the rows outside S."""
        return np.setdiff1d(np.arange(len(self.duals)), self.support)

    @cached_property
    def M(self) -> Float64[np.ndarray, "d e"]:
        """Return M_⋆ = Σ_j λ_j G_j."""
        return self.matrix(self.duals)

    def matrix(self, weights: Float64[np.ndarray, "N"]) -> Float64[np.ndarray, "d e"]:
        """Return Σ_j weights_j G_j."""
        return np.asarray((self.a * weights[:, None]).T @ self.z)

    @property
    def start(self) -> Vector:
        """Return the vector of unknowns, all zero: k and q by rows, δ on S, ν, t, and Ω above its diagonal."""
        (d, r), (e, _) = self.K.shape, self.Q.shape
        return np.zeros((d + e) * r + len(self.support) + 2 + r * (r - 1) // 2)

    def factors(self, x: Vector) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "e r"]]:
        """Return k and q from the vector of unknowns."""
        (d, r), (e, _) = self.K.shape, self.Q.shape
        return x[: d * r].reshape(d, r), x[d * r : (d + e) * r].reshape(e, r)

    def offset(self, x: Vector, eps: float) -> Float64[np.ndarray, "d e"]:
        """Return the offset o = K_⋆qᵀ + kQ_⋆ᵀ + ε kqᵀ at the unknowns x and ε = ``eps``."""
        k, q = self.factors(x)
        return np.asarray(self.K @ q.T + k @ self.Q.T + eps * (k @ q.T))

    def system(self, x: Vector, eps: float) -> tuple[Vector, Float64[np.ndarray, "k k"]]:
        """Return the residuals of the equations and their Jacobian; entries are NaN if an ω_j would be negative.

        Args:
            x: the vector of unknowns, see :attr:`start`.
            eps: the number ε = 1/ρ.
        """
        (d, r), e, C, S = self.K.shape, len(self.Q), self.value, self.support
        k, q = self.factors(x)
        n_k, n_kq, s = d * r, (d + e) * r, len(S)
        delta, nu, t, turns = x[n_kq : n_kq + s], x[n_kq + s], x[n_kq + s + 1], x[n_kq + s + 2 :]
        above = np.triu_indices(r, 1)
        turning = np.zeros((r, r))
        turning[above] = turns
        turning -= turning.T
        K, Q = self.K + eps * k, self.Q + eps * q
        aK, zQ = self.a @ K, self.z @ Q
        # Derivatives of ⟨G_j, o⟩, the part of h_j that varies, in k and q.
        slopes = np.concatenate(
            [
                (self.a[:, :, None] * zQ[:, None]).reshape(-1, n_k),
                (self.z[:, :, None] * aK[:, None]).reshape(-1, e * r),
            ],
            axis=1,
        )
        h = np.vecdot(self.a @ self.offset(x, eps), self.z)
        weights = np.zeros(len(h))
        weights[S] = delta
        if eps > 0:
            far = self.log_costs[self.rest] - self.beyond[self.rest] / eps - h[self.rest] - t
            weights[self.rest] = np.exp(far) / eps
        change = self.matrix(weights)
        multipliers = self.duals[S] / C + eps * delta
        with np.errstate(invalid="ignore"):
            logs = np.log(multipliers)
        first = change @ Q + self.M @ q / C - nu * K - k / C + K @ turning
        second = change.T @ K + self.M.T @ k / C - nu * Q - q / C
        rotation = (self.K.T @ k - k.T @ self.K)[above]
        radius = np.vdot(self.K, k) + np.vdot(self.Q, q) + eps * (np.vdot(k, k) + np.vdot(q, q)) / 2
        margins = logs + h[S] + t - self.log_costs[S]
        F = np.concatenate([first.ravel(), second.ravel(), margins, [weights.sum(), radius], rotation])

        J = np.zeros((x.size, x.size))
        eye, kq = np.eye(r), slice(0, n_kq)
        J[:n_k, :n_k] = np.kron(np.eye(d), eps * turning.T - (nu * eps + 1 / C) * eye)
        J[n_k:n_kq, n_k:n_kq] = -(nu * eps + 1 / C) * np.eye(e * r)
        J[:n_k, n_k:n_kq] = np.kron(eps * change + self.M / C, eye)
        J[n_k:n_kq, :n_k] = J[:n_k, n_k:n_kq].T
        # The weights ω_j outside S decrease as ⟨G_j, o⟩ and t increase.
        falling = weights[self.rest][:, None] * slopes[self.rest]
        J[kq, kq] -= slopes[self.rest].T @ falling
        lost = -(weights[self.rest] @ slopes[self.rest])
        J[kq, n_kq : n_kq + s] = slopes[S].T
        J[:n_k, n_kq + s], J[n_k:n_kq, n_kq + s] = -K.ravel(), -Q.ravel()
        J[kq, n_kq + s + 1] = lost
        J[n_kq : n_kq + s, kq] = slopes[S]
        J[n_kq : n_kq + s, n_kq : n_kq + s] = np.diag(eps / multipliers)
        J[n_kq : n_kq + s, n_kq + s + 1] = 1.0
        J[n_kq + s, kq], J[n_kq + s, n_kq : n_kq + s] = lost, 1.0
        J[n_kq + s, n_kq + s + 1] = -weights[self.rest].sum()
        J[n_kq + s + 1, kq] = np.concatenate([K.ravel(), Q.ravel()])
        for p, (i, j) in enumerate(zip(*above, strict=True)):
            column, row = np.zeros((d, r)), np.zeros((d, r))
            column[:, j], column[:, i] = K[:, i], -K[:, j]
            row[:, j], row[:, i] = self.K[:, i], -self.K[:, j]
            J[:n_k, n_kq + s + 2 + p], J[n_kq + s + 2 + p, :n_k] = column.ravel(), row.ravel()
        return F, J
