"""The regularization path at finite radius as a smooth convex program, and its limit in closed form.

On the sphere of radius ρ, in units of ‖p_mm‖, write p = √(ρ² − |y|²) p̄_mm + y with the *tangential part* y orthogonal
to p̄_mm. The costs c_j, rows ĝ_j and margins m_j of p_mm are those of :class:`.Constraints`, and L_opt is the risk if
all weight is on the optimal tokens. If all margins of p are at least ρ − κ for a constant κ, then log n(L(p) − L_opt) +
ρ is, up to an error of e^{−(ρ−κ)}, far below rounding,

    F_ρ(y) = log Σ_j c_j exp(−ĝ_j·y − (m_j − 1) ρ + m_j (ρ − √(ρ² − |y|²))),

which is strictly convex where the margins are positive. All constraints enter, so there is no need to decide whether a
row of margin m = 1 + 3e-9 belongs to an SVM-neighbour; it acts like one until ρ ≫ 1/(m − 1). As ρ → ∞ only the
neighbours (m_j = 1) remain:

    F_∞(y) = log Σ_{j ∈ neighbours} c_j e^{−ĝ_j·y},

which attains its minimum if and only if some dual solution is positive on all neighbours; the minimiser in the span of
the neighbours' rows is then unique.

Source: derived here for the limit in Theorem 1; the analogue for separable logistic regression is D. Soudry et
al., *The Implicit Bias of Gradient Descent on Separable Data*, JMLR 2018, Theorem 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.span import thin_tangents
from theorems.curves.constraints import Constraints

QUADRATIC = 0.1
"""Newton steps that change every exponent by at most this number shrink quadratically; if such steps no longer shrink,
they count as rounding errors."""

FAR = 1e13
"""A radius ρ that represents infinity: the curvature 1/ρ of its sphere is below rounding."""


def tangent_basis(direction: Float64[np.ndarray, "d"], rows: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "d e"]:
    """Return an orthonormal basis, as columns, of the orthogonal complement of a unit vector, shape (d, e), e = d − 1.

    If d is large and there are few rows, the basis spans only the part of the complement within the span of the rows,
    and one direction orthogonal to this span; see :func:`reference_attention.span.thin_tangents`.
    """
    if (thin := thin_tangents(direction, rows)) is not None:
        return thin
    d = direction.shape[0]
    sign = 1.0 if direction[0] >= 0 else -1.0
    axis = np.zeros(d)
    axis[0] = 1.0
    mirror = direction * sign + axis
    return (np.eye(d) - np.outer(mirror, mirror) * (2 / (mirror @ mirror)))[:, 1:]


def tangent_span(constraints: Constraints, basis: Float64[np.ndarray, "d e"]) -> Float64[np.ndarray, "d k"]:
    """Return an orthonormal basis of the span of the tangential parts of the neighbours' rows.

    The basis has k = rank − 1 vectors, because p̄_mm lies in the span of the rows.
    """
    _, _, vectors = np.linalg.svd(constraints.rows[constraints.neighbours] @ basis, full_matrices=False)
    return np.asarray(basis @ vectors[: constraints.rank - 1].T)


NONE = np.zeros(1)


@dataclass(frozen=True, eq=False)
class Reduced:
    """The function F_ρ of the module for given constraints, in coordinates of a basis of the complement of p̄_mm.

    Attributes:
        rows: the tangential parts of the rows ĝ_j, in coordinates of the basis, shape (m, e); see
            :func:`tangent_basis`.
        margins: the margins m_j of p_mm, shape (m,).
        log_costs: the logarithms log c_j of the costs, shape (m,).
        rho: the radius ρ, in units of ‖p_mm‖.
    """

    rows: Float64[np.ndarray, "m e"]
    margins: Float64[np.ndarray, "m"]
    log_costs: Float64[np.ndarray, "m"]
    rho: float

    @classmethod
    def at(cls, constraints: Constraints, basis: Float64[np.ndarray, "d e"], rho: float) -> Reduced:
        """Build F_ρ for the given constraints, in coordinates of ``basis``."""
        return cls(constraints.rows @ basis, constraints.margins, constraints.log_costs, rho)

    @classmethod
    def limit(cls, constraints: Constraints, span: Float64[np.ndarray, "d e"]) -> Reduced:
        """Build F_∞ in coordinates of :func:`tangent_span`, in which F_∞ has no flat direction."""
        near = constraints.neighbours
        return cls(constraints.rows[near] @ span, np.ones(int(near.sum())), constraints.log_costs[near], FAR)

    def exponents(self, y: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "m"]:
        """Compute the exponents of F_ρ at y: the logarithms of the terms whose sum's logarithm is F_ρ(y)."""
        drop = (y @ y) / (self.rho + self.height(y))
        along = self.rows @ y + (self.margins - 1) * self.rho
        return np.asarray(self.log_costs - along + self.margins * drop)

    def height(self, y: Float64[np.ndarray, "e"]) -> float:
        """Compute √(ρ² − |y|²), the component along p̄_mm of the point of the sphere with tangential part y."""
        size = float(np.linalg.norm(y))
        return math.sqrt(max((self.rho - size) * (self.rho + size), 0.0))

    def value(self, y: Float64[np.ndarray, "e"]) -> float:
        """Return F_ρ(y), or +∞ if |y| > ρ."""
        if not np.linalg.norm(y) < self.rho:
            return np.inf
        return float(np.logaddexp.reduce(self.exponents(y)))

    def value_rounding(self, y: Float64[np.ndarray, "e"]) -> float:
        """Return a bound of the rounding error of F_ρ(y): (m + e + 4) eps times an exponent's mean size."""
        weights, _ = self.slopes(y)
        size = np.abs(self.log_costs) + np.abs(self.rows) @ np.abs(y) + (self.margins - 1) * self.rho + 1
        return float((weights.size + y.size + 4) * EPS * (weights @ size))

    def slopes(self, y: Float64[np.ndarray, "e"]) -> tuple[Float64[np.ndarray, "m"], Float64[np.ndarray, "m e"]]:
        """Compute each term's share of the sum at y, (m,), and the gradients of the terms' exponents, (m, e)."""
        exponents = self.exponents(y)
        weights = np.exp(exponents - np.logaddexp.reduce(exponents))
        return weights, -self.rows + self.margins[:, None] * (y / self.height(y))

    def gradient(self, y: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "e"]:
        """Compute ∇F_ρ(y)."""
        weights, slopes = self.slopes(y)
        return np.asarray(weights @ slopes)

    def factor(self, y: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "k e"]:
        """Return J with JᵀJ = ∇²F_ρ(y), the covariance of the exponents' gradients plus the curvature of the sphere."""
        weights, slopes = self.slopes(y)
        centred = slopes - weights @ slopes
        height, mean = self.height(y), float(weights @ self.margins)
        sphere = math.sqrt(mean / height) * np.concatenate([np.eye(y.size), y[None] / height])
        return np.concatenate([centred * np.sqrt(weights)[:, None], sphere])

    def curvatures(self, y: Float64[np.ndarray, "e"]) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "e e"]]:
        """Compute the eigenvalues of ∇²F_ρ(y), the largest first, and the eigenvectors as columns.

        The eigenvalues are squares of the singular values of the matrix J of :meth:`factor`, which have errors of eps
        σ_max, where σ_max is the largest singular value. Eigenvalues of a computed JᵀJ would have errors of eps σ_max².
        If the columns of the keys differ in size by a factor of 10⁷, such errors exceed 1/ρ, the curvature of the
        sphere, which is a lower bound of all eigenvalues.
        """
        weights, _ = self.slopes(y)
        _, sizes, vectors = np.linalg.svd(np.linalg.qr(self.factor(y), mode="r"))
        return np.maximum(sizes**2, float(weights @ self.margins) / self.height(y)), vectors.T

    def newton(self, start: Float64[np.ndarray, "e"], steps: int = 400) -> tuple[Float64[np.ndarray, "e"], bool]:
        """Return the minimiser by Newton's method with backtracking, and True if the method converged to rounding.

        Near the minimum the rounded value of F_ρ no longer shows progress; from then on full steps are taken while they
        shrink or change an exponent. This matters where a term of weight 10⁻¹⁴ on a long row balances the curvature of
        the sphere: each Newton step changes the exponent of this term by about one, which does not show in the value.
        """
        y = np.array(start)
        if y.size == 0:
            return y, True
        value, last = self.value(y), np.inf
        for _ in range(steps):
            gradient = self.gradient(y)
            step = -self.solve(y, gradient)
            length, decrement = float(np.linalg.norm(step)), float(-gradient @ step)
            noise = 8 * EPS * (1 + abs(value) + float(np.abs(self.rows @ y).max()))
            if decrement <= noise:
                if length >= last / 2 and self.change(y, step) <= QUADRATIC:
                    return y, True
                y, last = y + step, length
                value = self.value(y)
                continue
            scale = self.longest(y, step)
            new = self.value(y + scale * step)
            while not new <= value - 1e-4 * scale * decrement + noise and scale > 1e-20:
                scale /= 2
                new = self.value(y + scale * step)
            y, value = y + scale * step, new
        return y, False

    def solve(self, y: Float64[np.ndarray, "e"], right: Float64[np.ndarray, "e"]) -> Float64[np.ndarray, "e"]:
        """Return H⁻¹b for b = ``right`` and H = ∇²F_ρ(y)."""
        if y.size == 0:
            return right
        values, vectors = self.curvatures(y)
        return np.asarray(vectors @ (vectors.T @ right / values))

    def longest(self, y: Float64[np.ndarray, "e"], step: Float64[np.ndarray, "e"]) -> float:
        """Return the largest share of a Newton step at which no term exceeds e^10 times the sum of the terms at y.

        Where one term dominates, the Hessian is nearly zero, and Newton's step is thousands of times too long.
        """
        exponents = self.exponents(y)
        log_weights = exponents - np.logaddexp.reduce(exponents)
        weights, slopes = self.slopes(y)
        changes = (slopes - weights @ slopes) @ step
        rising = changes > 0
        return float(np.min((10 - log_weights[rising]) / changes[rising], initial=1.0))

    def change(self, y: Float64[np.ndarray, "e"], step: Float64[np.ndarray, "e"]) -> float:
        """Return the largest change that a step from y makes in a resolved term's exponent minus the mean exponent.

        Resolved terms are those whose contribution to the gradient is above the rounding error of the gradient.
        """
        weights, slopes = self.slopes(y)
        centred = slopes - weights @ slopes
        rounding = EPS * float(weights @ np.linalg.norm(slopes, axis=1))
        resolved = weights * np.linalg.norm(centred, axis=1) > rounding
        return float(np.abs(centred[resolved] @ step).max(initial=0.0))

    def displacement(
        self, y: Float64[np.ndarray, "e"], exponent_error: float, row_errors: Float64[np.ndarray, "#m"] = NONE
    ) -> float:
        """Return a first-order bound of how far errors of the exponents and of the rows move the minimiser y.

        At y let the terms have weights w_j, and their exponents gradients e_j with mean ē = Σ w_j e_j and errors ε_j of
        size ``exponent_error``; let the rows have errors δĝ_j of length ``row_errors``, and H = ∇²F_ρ(y). Then the
        minimiser moves by δy = H⁻¹ Σ w_j (ε_j (e_j − ē) + δĝ_j); rounding of the sums in the gradient adds ‖H⁻¹‖ m eps
        Σ w_j |e_j|.
        """
        if y.size == 0:
            return 0.0
        weights, slopes = self.slopes(y)
        values, vectors = self.curvatures(y)
        centred = (slopes - weights @ slopes) @ vectors / values
        first = exponent_error * float(weights @ np.linalg.norm(centred, axis=1))
        sums = (weights.size + y.size) * EPS * float(weights @ np.linalg.norm(slopes, axis=1))
        sums += float(weights @ np.broadcast_to(row_errors, weights.shape))
        return first + sums / float(values[-1])

    def approximate_dual(self, y: Float64[np.ndarray, "e"]) -> tuple[float, float]:
        """Return the dual value D(w) = Σ w_j log(c_j/w_j) and |Σ w_j ĝ_j|, for weights w_j ∝ c_j e^{−ĝ_j·y} of sum 1.

        By Jensen's inequality F_∞(y') ≥ D(w) − |Σ w_j ĝ_j| |y'| for all y'.
        """
        exponents = self.log_costs - self.rows @ y
        log_weights = exponents - exponents.max()
        weights = np.exp(log_weights)
        log_weights -= math.log(weights.sum())
        weights /= weights.sum()
        value = float(np.sum(weights * np.where(weights > 0, self.log_costs - log_weights, 0.0)))
        sums = (weights.size + 2) * EPS * float(weights @ np.linalg.norm(self.rows, axis=1))
        return value, float(np.linalg.norm(weights @ self.rows)) + sums

    def correction(self, y: Float64[np.ndarray, "e"]) -> tuple[Float64[np.ndarray, "e"], float]:
        """Return Newton's step s from y, and a bound of |minimiser − (y + s)|, which is ∞ if y is too far away.

        Let H = ∇²F_ρ(y), |v|_H = √(vᵀHv), e_j the gradients of the exponents at y with mean ē, v = minimiser − y and s
        = −H⁻¹∇F_ρ(y). A log-sum-exp is quasi-self-concordant: between y and y + v the Hessian stays within factors
        e^{±δ} of H, where δ = 2 max_j |(e_j − ē)·v| ≤ 2 M |v|_H with M = max_j |e_j − ē|_{H⁻¹} over the terms that have
        weight (the curvature of the sphere adds |y|/ρ to δ). As v = −(∫H)⁻¹∇F_ρ(y), with the mean ∫H of the Hessian
        between y and y + v, |v|_H ≤ e^δ |s|_H and |v − s|_H ≤ (e^δ − 1)|s|_H. For x = 2M|s|_H + |y|/ρ ≤ 1/4 it follows
        that δ ≤ 1.5 x, and |v − s| ≤ |v − s|_H / √λ_min(H).
        """
        weights, slopes = self.slopes(y)
        gradient = weights @ slopes
        if not (np.linalg.norm(y) < self.rho and np.isfinite(self.factor(y)).all()):
            # y is not the tangential part of a point of the sphere.
            return np.zeros_like(y), np.inf
        values, vectors = self.curvatures(y)
        step = -self.solve(y, gradient)
        size = float(np.sqrt(max(-gradient @ step, 0.0)))
        reaches = np.linalg.norm((slopes - gradient) @ vectors / np.sqrt(values), axis=1)
        # A term counts as having no weight if its weight is below the rounding error of the Hessian wherever the
        # minimiser may lie.
        grown = np.log(np.maximum(weights, 1e-300)) + 3 * reaches * size + 2 * np.log1p(reaches)
        reach = float(reaches[grown > math.log(EPS)].max())
        x = 2 * reach * size + float(np.linalg.norm(y)) / self.rho
        if not x <= 0.25:
            return step, np.inf
        return step, float(np.expm1(1.5 * x) * size / np.sqrt(values[-1]))


def closed_form(constraints: Constraints, basis: Float64[np.ndarray, "d e"]) -> tuple[Float64[np.ndarray, "e"], float]:
    """Return the minimiser of F_∞ in closed form, for linearly independent rows of the neighbours and positive duals.

    With the matrix Ĝ of the neighbours' rows ĝ_j, its pseudoinverse Ĝ⁺, the costs c_j, the normalized duals w_j and b_j
    = log(c_j/w_j), the minimiser is Ĝ⁺b without its part along p_mm. Indeed at a stationary y, Σ e_j ĝ_j is parallel to
    p_mm for e_j = c_j e^{−ĝ_j·y}. As the rows are independent, e_j is proportional to w_j, so Ĝy = b + const, and the
    constant adds a multiple of Ĝ⁺1 = p̄_mm (every margin is 1).

    Returns:
        The minimiser in coordinates of ``basis``, and its error in units of eps: the condition number of the rows times
            their number.
    """
    near = constraints.neighbours
    rows, b = constraints.rows[near], constraints.log_costs[near] - np.log(constraints.weights[near])
    q, r = np.linalg.qr(rows.T)
    y = basis.T @ (q @ np.linalg.solve(r.T, b - b.mean()))
    return np.asarray(y), float(np.linalg.cond(r) * len(b))
