"""Gradient flow for one input: p's distance from the ray of p_mm, bounded at every norm and predicted in the limit.

Under Assumption B with n = 1, −∇L(p) is *at every p* a positive multiple of Σ_j e^{−g_j·p} g_j, summed over the rows
g_j = k_opt − k_t, t ≠ opt: the flow's curve is that of separable exponential regression on these rows. In units of
‖p_mm‖, and with a suitable time t,

    dp/dt = Σ_j c_j e^{−ĝ_j·p} ĝ_j,    p̄_mm = Σ_S w_j ĝ_j,

where c_j > 0 are the costs of :class:`theorems.curves.constraints.Constraints`, ĝ_j = g_j‖p_mm‖, S is the set of
SVM-neighbours whose dual is positive in some dual solution (decided exactly), w > 0 on S is the dual solution of the
form w_j = c_j e^{−ĝ_j·q}, and m_j = ĝ_j·p̄_mm ≥ 1 is the SVM margin, 1 on S.

**From the start.** Let r = p − p̄_mm log t − q and e = Σ_S c_j e^{−ĝ_j·q} ĝ_j − p̄_mm, which is zero up to the rounding
of q (large for nearly dependent rows). Then, since c_j e^{−ĝ_j·q} (e^{−x} − 1) x ≤ 0 and x e^{−x} ≤ 1/e,

    d|r|²/d log t ≤ 2 |e| |r| + 2 Σ_{j∉S} c_j e^{−1−ĝ_j·q} t^{1−m_j}.                                      (*)

So if all m_j > 1 off S, |r| and the offset of p from the ray of p_mm are bounded by numbers computed from the data: 1 −
cos = O(‖p‖^{−2}). The part of q orthogonal to span(ĝ_S) can be chosen freely. If S misses an SVM-neighbour, moving q by
h log log t, with h ⟂ ĝ_S and h·ĝ_j ≥ 1 for the missed neighbours j, keeps (*) integrable: 1 − cos = O((log‖p‖/‖p‖)²).

**Within span(ĝ_S)** the offset tends to that of q. With u = ⟨p, p̄_mm⟩, z = p − u p̄_mm and ẑ_j = ĝ_j − m_j p̄_mm let

    Φ(u, z) = log Σ_j c_j e^{−(m_j−1)u − ẑ_j·z},    E(p) = Φ − inf Φ,    inf Φ = log Σ_S c_j e^{−ẑ_j·q}.

In the time τ in which the curve is dp/dτ = Σ_j s_j ĝ_j, Σ_j s_j = 1, that is Φ's own gradient flow in p,

    dE/dτ = −M (M − 1) − |Σ_j s_j ẑ_j|² ≤ 0,    M = du/dτ = Σ_j s_j m_j ≥ 1,

and |dp/dτ| falls, because Φ(p) − u is convex. Hence from each point of the curve on: with v the part of z − q in the
span and x_j = ẑ_j·v, e^E = Σ_S w_j e^{−x_j} + Σ_{j∉S} f_j, where the first sum is ≥ 1 as Σ_S w_j x_j = 0. So

- the pull of the other rows stays Σ_{j∉S} f_j ≤ e^E − 1 =: ε. (This pull need not fall: the pull of an SVM-neighbour
without a dual may rise while v moves along its row.)
- w_j (e^{−x_j} − 1 + x_j) ≤ ε, and e^{−x} − 1 + x ≥ x²/(2 + x), so x_j ≤ X_j = (y + √(y² + 8y))/2 with y = ε/w_j.
- d|v|/dτ ≤ (−σ|v| + A ε + |e|)/e^E, σ = λ_min of Σ_S w_j/(1 + X_j) ẑ_j ẑ_jᵀ on the span, A the largest norm of the part
  in the span of a row ẑ_j off S, for (1 − e^{−x}) x ≥ x²/(1 + X). From u to u' the time τ advances by at least (u' −
  u)/(|dp/dτ| e^E) and at most u' − u:

    |v(u')| ≤ |v| e^{−σθ} + (A ε + |e|)(1 − e^{−σ(u'−u)})/σ,    θ = (u' − u)/(|dp/dτ| e^E).               (**)

ε falls exponentially if all m_j > 1 off S, and like 1/u if an SVM-neighbour has no dual.

Source: D. Soudry et al., *The Implicit Bias of Gradient Descent on Separable Data*, JMLR 2018, proof of Theorem 4, for
(*); (**) is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq_mat
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares
from theorems.curves.constraints import Constraints
from theorems.curves.reduced_program import FAR, Reduced

ROUNDS = 100
"""The largest number of fixed-point iterations for a bound on |r| that depends on |r| itself."""


@dataclass(frozen=True, eq=False)
class FlowOffset:
    """The quantities in the bounds (*) and (**) of the module's docstring, whose notation is used; in units of ‖p_mm‖.

    Attributes:
        constraints: the rows ĝ_j with their margins m_j and constants c_j.
        direction: the direction p̄_mm, shape (d,).
        support: the mask of S among the rows, shape (m,).
        weights: the dual solution w on S, shape (s,).
        tangents: an orthonormal basis of the vectors in span(ĝ_S) that are orthogonal to p̄_mm, shape (rank − 1, d).
        q: the q of least norm, inside the span, shape (d,).
        solved: whether the dual weights were computed; for dependent rows Newton's method may fail.
    """

    constraints: Constraints
    direction: Float64[np.ndarray, "d"]
    support: Bool[np.ndarray, "m"]
    weights: Float64[np.ndarray, "s"]
    tangents: Float64[np.ndarray, "k d"]
    q: Float64[np.ndarray, "d"]
    solved: bool

    @classmethod
    def of(cls, constraints: Constraints, svm: MaxMargin) -> FlowOffset:
        """Return the quantities for these constraints; the support S and the rank of its rows are computed exactly."""
        support = svm.dual_support[constraints.others]
        rows, costs = constraints.rows[support], constraints.log_costs[support]
        across = rows - np.outer(rows @ svm.direction, svm.direction)
        independent = svm.supports == len(rows)
        rank = len(rows) if independent else _rank(svm)
        tangents = np.linalg.svd(across, full_matrices=False)[2][: rank - 1]
        weights, solved = constraints.weights[support], True
        if not independent:
            reduced = Reduced(rows @ tangents.T, np.ones(len(costs)), costs, FAR)
            y, solved = reduced.newton(np.zeros(len(tangents)))
            weights = reduced.slopes(y)[0]
        # The equations ĝ_j·q = log(c_j/w_j) on S have one solution q in the span, because w is a dual solution.
        span = np.vstack([svm.direction, tangents])
        q = span.T @ np.linalg.lstsq(rows @ span.T, costs - np.log(weights), rcond=None)[0]
        return cls(constraints, svm.direction, support, weights, tangents, q, solved)

    def across(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b d"]:
        """Return the part of p orthogonal to p̄_mm."""
        return np.asarray(p - (p @ self.direction)[..., None] * self.direction)

    def inside(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b d"]:
        """Return the part of p that is orthogonal to p̄_mm and lies in the span of the rows of S."""
        return np.asarray(self.across(p) @ self.tangents.T @ self.tangents)

    def free(self, p: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "d"]:
        """Return the part of p that is orthogonal to the rows of S."""
        return np.asarray(self.across(p) - self.inside(p))

    def residual(self, q: Float64[np.ndarray, "d"]) -> float:
        """Return an upper bound, with rounding, of |Σ_S c_j exp(−ĝ_j·q) ĝ_j − p̄_mm| (symbols: see the module)."""
        rows, costs = self.constraints.rows[self.support], self.constraints.log_costs[self.support]
        terms = np.exp(costs - rows @ q)
        size = np.abs(rows) @ np.abs(q) + np.abs(costs) + 1
        sums = (len(rows) + q.size + 4) * EPS * float((terms * size) @ np.linalg.norm(rows, axis=1))
        return float(np.linalg.norm(terms @ rows - self.direction)) + sums

    def growth(self, q: Float64[np.ndarray, "d"], begin: float) -> Callable[[float], float]:
        """Return the function that maps x to the integral of the second term of (*) over log t from ``begin`` to x.

        The integrand is 2 Σ_{j∉S} c_j e^{−1−ĝ_j·q} t^{1−m_j}.
        """
        off = ~self.support
        excess = self.constraints.margins[off] - 1
        with np.errstate(over="ignore"):
            sizes = np.exp(self.constraints.log_costs[off] - self.constraints.rows[off] @ q - excess * begin)
        falling = excess > 0
        constant_terms, sizes, excess = float(sizes[~falling].sum()), sizes[falling], excess[falling]

        def until(end: float) -> float:
            span = max(end - begin, 0.0)
            return (
                float(2 / math.e * (constant_terms * span - (sizes / excess) @ np.expm1(-excess * span)))
                if span
                else 0.0
            )

        return until

    def after(self, p: Float64[np.ndarray, "d"], rho: float, q: Float64[np.ndarray, "d"], delay: float = 0.0) -> float:
        """Return a bound on |r| at norm ρ = ``rho`` for the flow through p, where r is the offset in (*).

        At p, log t = ⟨p − q, p̄_mm⟩ + ``delay``. The time at norm ρ satisfies log t = ⟨p(t) − q − r, p̄_mm⟩ ≤ ρ − ⟨q,
        p̄_mm⟩ + |r|, so |r| enters its own bound. In any case the part of r orthogonal to p̄_mm is at most ρ + |q|.
        """
        begin = float((p - q) @ self.direction) + delay
        first = float(np.sum(self.across(p - q) ** 2)) + delay**2
        residual, shift, growth = self.residual(q), float(q @ self.direction), self.growth(q, begin)

        def squared_offset(bound: float) -> float:
            end = rho - shift + bound
            return first + growth(end) + 2 * bound * residual * max(end - begin, 0.0)

        return min(fixed_point_bound(squared_offset, first), rho + float(np.linalg.norm(self.across(q))))

    def from_start(self, p: Float64[np.ndarray, "d"], rho: float) -> float:
        """Return the least bound, over a grid of q, of the offset from the ray at norm ``rho`` for the flow from p."""
        base = self.q + self.free(p)
        best = rho
        h = self.escape
        for shift in (0.0, 1.0, 2.0, math.log(1 + math.log(1 + rho)), math.log(1 + rho), 2 * math.log(1 + rho)):
            if shift > 0 and h is None:
                break
            q = base + shift * h if h is not None else base
            size = float(np.linalg.norm(self.across(q)))
            for delay in (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4):
                best = min(best, size + self.after(p, rho, q, delay))
        return best

    @cached_property
    def escape(self) -> Float64[np.ndarray, "d"] | None:
        """The shortest h orthogonal to the rows of S with h·ĝ_j ≥ 1 on the SVM-neighbours that are not in S.

        None if S contains all SVM-neighbours, or if rounding leaves h without correct digits.
        """
        without_dual = self.constraints.neighbours & ~self.support
        if not without_dual.any():
            return None
        rows = np.array([self.free(row) for row in self.constraints.rows[without_dual]])
        target = np.zeros(rows.shape[1] + 1)
        target[-1] = 1.0
        stacked = np.vstack([rows.T, np.ones(len(rows))])
        u, distance = nonnegative_least_squares(stacked, target)
        if math.isinf(distance):
            return None
        residual = target - stacked @ u
        if not residual[-1] > 1e-9:
            return None
        h = -residual[:-1] / residual[-1]
        smallest = float((rows @ h).min())
        return h / smallest if smallest > 0 else None

    def contraction_bounds(self, p: Float64[np.ndarray, "r d"]) -> Float64[np.ndarray, "r"]:
        """Return, at each recorded point, the least bound of |v| by (**) from an earlier one, (r,); ∞ at the first."""
        rows, support, k = self.constraints.rows, self.support, len(self.tangents)
        if k == 0:
            return np.where(np.arange(len(p)) > 0, 0.0, np.inf)
        u, v = p @ self.direction, np.linalg.norm(self.inside(p - self.q), axis=1)
        energy, speed = self._energy(p)
        with np.errstate(over="ignore", invalid="ignore"):
            pulls = np.expm1(energy)
            y = pulls[:, None] / self.weights
            reach = (y + np.sqrt(y * (y + 8))) / 2
            tangential = rows[support] @ self.tangents.T
            stiffness = np.einsum("rs,sa,sb->rab", self.weights / (1 + reach), tangential, tangential)
        # Earlier points at which E is very large give no bound, because e^E overflows.
        usable = np.isfinite(stiffness).all(axis=(1, 2)) & np.isfinite(pulls)
        values = np.linalg.eigvalsh(np.where(usable[:, None, None], stiffness, 0.0))
        sigma = np.maximum(values[:, 0] - 8 * k * EPS * values[:, -1], 0.0)
        pull = float(np.linalg.norm(rows[~support] @ self.tangents.T, axis=1).max(initial=0.0))
        drift = pull * pulls + self.residual(self.q)
        advance = np.maximum(u[None, :] - u[:, None], 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            remainder = v[:, None] * np.exp(-sigma[:, None] * advance / (speed * np.exp(energy))[:, None])
            safe = np.where(sigma > 0, sigma, 1.0)[:, None]
            durations = np.where(sigma[:, None] > 0, -np.expm1(-sigma[:, None] * advance) / safe, advance)
            bounds = remainder + drift[:, None] * durations
        before = np.triu(np.ones_like(bounds, dtype=bool), 1) & usable[:, None]
        return np.where(before & ~np.isnan(bounds), bounds, np.inf).min(axis=0)

    def _energy(self, p: Float64[np.ndarray, "r d"]) -> tuple[Float64[np.ndarray, "r"], Float64[np.ndarray, "r"]]:
        """Return upper bounds of E(p) and of the speed |dp/dτ| in (**), (r,) each.

        A point of norm ρ has the rounding error δ = 8 d eps ρ, which changes E by |Σ s_j ẑ_j| δ to first order. The
        infimum of Φ is at least the dual value at w, minus a term for the residual Σ w_j ẑ_j, which rounding makes
        nonzero.
        """
        margins, costs = self.constraints.margins, self.constraints.log_costs
        z, u = self.across(p), p @ self.direction
        rows = self.across(self.constraints.rows)
        exponents = costs - z @ rows.T - u[:, None] * (margins - 1)
        total = np.logaddexp.reduce(exponents, axis=1)
        shares = np.exp(exponents - total[:, None])
        turning, along = np.linalg.norm(shares @ rows, axis=1), shares @ margins
        support_rows = rows[self.support]
        dual = float(self.weights @ (costs[self.support] - np.log(self.weights)))
        unbalanced = float(np.linalg.norm(self.weights @ support_rows) * np.linalg.norm(self.across(self.q)))
        point_rounding = 8 * p.shape[1] * EPS * np.linalg.norm(p, axis=1)
        summed = np.sum(shares * (np.abs(z) @ np.abs(self.constraints.rows).T + np.abs(costs)), axis=1)
        summed += float(np.abs(np.log(self.weights)).max())
        rounding = turning * point_rounding + (np.linalg.norm(support_rows, axis=1).max() * point_rounding) ** 2
        rounding += (len(costs) + p.shape[1] + 8) * EPS * (1 + summed) + unbalanced
        return np.maximum(total - dual, 0.0) + rounding, np.hypot(along, turning) * (1 + 1e-9)


def fixed_point_bound(squared: Callable[[float], float], first: float) -> float:
    """Return the least b with b² ≥ squared(b), approached from below; inf if the iteration does not converge.

    Args:
        squared: an increasing function of b.
        first: a lower bound of squared(0); the iteration begins at b = √first.
    """
    bound = math.sqrt(first)
    for _ in range(ROUNDS):
        new = math.sqrt(squared(bound))
        if new <= bound * (1 + 1e-9):
            return bound * (1 + 1e-6)
        if not math.isfinite(new):
            break
        bound = new
    return math.inf


def _rank(svm: MaxMargin) -> int:
    """Return the exact rank of the rows with a positive dual in some dual solution."""
    return int(fmpq_mat([svm.exact.row(i, t) for i, t in svm.exact_maximal_duals]).rank())
