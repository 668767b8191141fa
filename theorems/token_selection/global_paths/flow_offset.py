"""Gradient flow for one input: its distance from the ray of p_mm, bounded from the start and predicted in the limit.

Under Assumption B with n = 1, −∇L(p) is a positive multiple of Σ_j e^{−g_j·p} g_j over all t ≠ opt *at every p*: the
flow's curve is that of separable exponential regression on the g_j = k_opt − k_t. In units of ‖p_mm‖ and its own time,

    dp/dt = Σ_j e^{−ĝ_j·p} ĝ_j,    p̄_mm = Σ_S w_j ĝ_j,    w = λ/Σλ > 0 on S.

Let e^{−ĝ_j·q} = w_j on S and r = p − p̄_mm log t − q. Then, since w_j (e^{−x} − 1) x ≤ 0 and x e^{−x} ≤ 1/e,

    d|r|²/dt / 2 ≤ Σ_{j∉S} e^{−1−ĝ_j·q} t^{−m_j},    m_j = ĝ_j·p̄_mm ≥ 1 the SVM margin.        (*)

So |r| is bounded by data if all m_j > 1 off S, and so is the offset from the ray: 1 − cos = O(‖p‖^{−2}). q is free
in the complement of span(ĝ_S). If S misses an SVM-neighbour (its dual is zero in every dual solution), moving q by
h log log t, h ⟂ ĝ_S and h·ĝ_j ≥ 1 there, keeps (*) integrable: 1 − cos = O((log‖p‖/‖p‖)²).

Source: D. Soudry et al., *The Implicit Bias of Gradient Descent on Separable Data*, JMLR 2018, proof of Theorem 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from scipy.optimize import nnls

from reference_attention.svm.max_margin import MaxMargin
from theorems.token_selection.global_paths.path_constants import Constraints
from theorems.token_selection.global_paths.path_offset import FAR, Reduced, tangent_basis, tangent_span


@dataclass(frozen=True, eq=False)
class FlowOffset:
    """What (*) speaks of, in units of ‖p_mm‖.

    Attributes:
        constraints: rows ĝ_j and margins.
        direction: p̄_mm, shape (d,).
        support: S, shape (m,).
        weights: w on S, shape (s,).
        span: orthonormal basis of span(ĝ_S), shape (rank, d).
        q: the q of least norm, inside the span, shape (d,).
        solved: whether the dual weights were found (dependent rows need Newton's method).
    """

    constraints: Constraints
    direction: Float64[np.ndarray, "d"]
    support: Bool[np.ndarray, "m"]
    weights: Float64[np.ndarray, "s"]
    span: Float64[np.ndarray, "rank d"]
    q: Float64[np.ndarray, "d"]
    solved: bool

    @classmethod
    def of(cls, constraints: Constraints, svm: MaxMargin) -> FlowOffset:
        """S = all SVM-neighbours where some dual solution is positive on them, else the support of the SVM's own."""
        support, weights, solved = constraints.weights > 0, None, True
        if svm.strictly_complementary and not svm.independent:
            support = constraints.neighbours
            span = tangent_span(constraints, tangent_basis(svm.direction))
            costs = constraints.log_costs[support]
            reduced = Reduced(constraints.rows[support] @ span, np.ones(len(costs)), costs, FAR)
            y, solved = reduced.newton(np.zeros(span.shape[1]))
            weights = reduced.slopes(y)[0]
        rows = constraints.rows[support]
        weights = constraints.weights[support] if weights is None else weights
        _, _, vectors = np.linalg.svd(rows, full_matrices=False)
        # The support of the SVM's own duals is linearly independent.
        span = vectors[: constraints.rank if support is constraints.neighbours else len(rows)]
        # Within the span ĝ_S·q = log(c/w) has exactly one solution: consistent, because w is a dual solution.
        log_ratios = constraints.log_costs[support] - np.log(weights)
        q = span.T @ np.linalg.lstsq(rows @ span.T, log_ratios, rcond=None)[0]
        return cls(constraints, svm.direction, support, weights, span, q, solved)

    def across(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b d"]:
        """The part orthogonal to p̄_mm."""
        return np.asarray(p - (p @ self.direction)[..., None] * self.direction)

    def free(self, p: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "d"]:
        """The part orthogonal to span(ĝ_S)."""
        return np.asarray(p - self.span.T @ (self.span @ p))

    @property
    def stiffness(self) -> float:
        """σ = λ_min of Σ_S w_j ĝ_j ĝ_jᵀ on the span: |r| falls like e^{−σ log t} there."""
        rows = self.constraints.rows[self.support] @ self.span.T
        return float(np.linalg.eigvalsh((rows * self.weights[:, None]).T @ rows)[0])

    def growth(self, q: Float64[np.ndarray, "d"], begin: float, end: float) -> float:
        """2 ∫ Σ_{j∉S} e^{−1−ĝ_j·q} t^{−m_j} dt between the times of logarithm ``begin`` and ``end``."""
        off = ~self.support
        excess = self.constraints.margins[off] - 1
        logs = self.constraints.log_costs[off] - self.constraints.rows[off] @ q - excess * begin
        size = np.exp(np.minimum(logs, 700.0))
        span = max(end - begin, 0.0)
        lasting = np.where(excess * span > 1e-12, -np.expm1(-excess * span) / np.where(excess > 0, excess, 1.0), span)
        return float(2 / math.e * (size @ lasting))

    def after(self, p: Float64[np.ndarray, "d"], rho: float, q: Float64[np.ndarray, "d"], delay: float = 0.0) -> float:
        """A bound on |r| at norm ρ for the flow through p, with log t = ⟨p − q, p̄_mm⟩ + delay at p.

        The time at norm ρ is log t = ⟨p(t) − q − r, p̄_mm⟩ ≤ ρ − ⟨q, p̄_mm⟩ + |r|; |r| enters its own bound.
        """
        begin = float((p - q) @ self.direction) + delay
        first = float(np.sum(self.across(p - q) ** 2)) + delay**2
        bound = math.sqrt(first)
        for _ in range(60):
            end = rho - float(q @ self.direction) + bound
            new = math.sqrt(first + self.growth(q, begin, end))
            if not math.isfinite(new) or new <= bound * (1 + 1e-9):
                break
            bound = new
        return bound * (1 + 1e-6)

    def contracted(self, p: Float64[np.ndarray, "d"], later: Float64[np.ndarray, "d"]) -> float:
        """A bound on the part of r within the span at ``later``, for the flow that passed through p before.

        With x_j = ĝ_j·r, (1 − e^{−x}) x ≥ x²/(1 + X) for |x| ≤ X, so d|r|/d log t ≤ −σ|r|/(1 + X) + f; f, the pull
        of the other constraints t Σ_{j∉S} e^{−ĝ_j·p} |ĝ_j|, falls along the flow, so its value at p serves.
        """
        r = self.across(self.span.T @ (self.span @ (p - self.q)))
        rows, off = self.constraints.rows, ~self.support
        spread = 1 + float(np.abs(rows[self.support] @ r).max(initial=0.0))
        log_time = float((p - self.q) @ self.direction)
        pull = np.exp(np.minimum(log_time - rows[off] @ p, 700.0)) @ np.linalg.norm(rows[off] @ self.span.T, axis=1)
        rate = self.stiffness / spread
        elapsed = float((later - p) @ self.direction)
        return float(np.linalg.norm(r) * math.exp(-max(rate * elapsed, 0.0)) + pull / rate)

    def from_start(self, p: Float64[np.ndarray, "d"], rho: float) -> float:
        """A bound on the offset at norm ρ for the flow from p, over a grid of the freedom that (*) leaves."""
        base = self.q + self.free(p)
        best = math.inf
        h = self._escape()
        for shift in (0.0, 1.0, 2.0, math.log(1 + math.log(1 + rho)), math.log(1 + rho), 2 * math.log(1 + rho)):
            if shift > 0 and h is None:
                break
            q = base + shift * h if h is not None else base
            size = float(np.linalg.norm(self.across(q)))
            for delay in (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4):
                best = min(best, size + self.after(p, rho, q, delay))
        return best

    def _escape(self) -> Float64[np.ndarray, "d"] | None:
        """h ⟂ ĝ_S of least norm with h·ĝ_j ≥ 1 on the SVM-neighbours off S; None if there are none or no such h."""
        rest = self.constraints.neighbours & ~self.support
        if not rest.any():
            return None
        rows = np.array([self.free(row) for row in self.constraints.rows[rest]])
        target = np.zeros(rows.shape[1] + 1)
        target[-1] = 1.0
        stacked = np.vstack([rows.T, np.ones(len(rows))])
        residual = target - stacked @ nnls(stacked, target)[0]
        if not residual[-1] > 1e-9:
            return None
        h = -residual[:-1] / residual[-1]
        smallest = float((rows @ h).min())
        return h / smallest if smallest > 0 else None
