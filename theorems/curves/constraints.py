"""The constraints of ATT-SVM as Theorem 1 needs them: rows, costs of violations, a dual bound, and rounding errors.

Everything is dimensionless: lengths are in units of ‖p_mm‖, so that a radius R is ρ = R/‖p_mm‖, and the margins of the
point R p̄_mm are ρ times the margins of p_mm. Slopes ℓ' of the loss are kept in logarithms, since they range over
e^{±100} at scores of ±50.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; its proof is Theorem 8 with Lemma 14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flint import fmpq_mat
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import log_excess_risk
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import value_of
from theorems.core.key_rows import key_rows
from theorems.core.tolerances import tolerance

EXPONENT_ROUNDING = tolerance(
    "exponent-rounding",
    "(d + 6) eps (max_j Σ_k |ĝ_jk p_k| + max|log c_j| + m); for keys that are rounded products, also the row's error",
    "a logit difference is a sum of d products of rounded differences; the log-excess risk is a log-sum-exp of m"
    " of them plus the logarithms of slope and gap, and has at most the largest error of a term",
)


@dataclass(frozen=True, eq=False)
class Constraints:
    """The constraints of ATT-SVM for the optimal tokens, in units of ‖p_mm‖: a row j for each (i, t) with t ≠ opt_i.

    Attributes:
        rows: the rows ĝ_j = ‖p_mm‖ (k_i,opt − k_it), shape (m, d).
        margins: the margins (k_i,opt − k_it)·p_mm ≥ 1 of p_mm, shape (m,).
        neighbours: a mask of the rows whose margin is exactly 1, shape (m,).
        log_costs: log c_j of the costs c_j = |ℓ'(γ_i,opt)| (γ_i,opt − γ_it) / unit > 0, the increase of an input's loss
            per softmax weight on token t, shape (m,).
        log_unit: the logarithm of the unit of the costs, which is the largest cost, so that sums keep their digits at
            slopes of e^{−200}.
        weights: the normalized duals w_j = λ_j / Σ_k λ_k, λ the duals of the SVM, shape (m,).
        rank: the exact rank of the rows of the SVM-neighbours.
        others: a mask of the tokens to which the rows belong, shape (n, T).
        row_errors: bounds of the errors of ``rows`` where keys are rounded products, shape (m, d); 0 for other keys.
    """

    rows: Float64[np.ndarray, "m d"]
    margins: Float64[np.ndarray, "m"]
    neighbours: Bool[np.ndarray, "m"]
    log_costs: Float64[np.ndarray, "m"]
    log_unit: float
    weights: Float64[np.ndarray, "m"]
    rank: int
    others: Bool[np.ndarray, "n T"]
    row_errors: Float64[np.ndarray, "#m #d"] = field(default_factory=lambda: np.zeros((1, 1)))

    @classmethod
    def of(cls, problem: Problem, svm: MaxMargin) -> Constraints:
        """Build the constraints of a problem whose optimal tokens are unique and separable."""
        opt = problem.optimal
        others = np.arange(problem.T) != opt[:, None]
        rows = key_rows(problem, opt)
        top = np.take_along_axis(problem.scores, opt[:, None], axis=1)
        log_slope = np.broadcast_to(problem.loss.log_slope(top), others.shape)
        duals = svm.duals[others]
        log_costs = log_slope[others] + np.log(problem.gaps()[others])
        return cls(
            rows=svm.norm * value_of(rows)[others],
            margins=svm.margins[others],
            neighbours=svm.neighbours[others],
            log_costs=log_costs - log_costs.max(),
            log_unit=float(log_costs.max()),
            weights=duals / duals.sum(),
            rank=rank_of_neighbours(svm),
            others=others,
            row_errors=np.zeros((1, 1)) if problem.factors is None else svm.norm * rows.error[others],
        )

    @property
    def dual_value(self) -> float:
        """The dual value D(w) = Σ w_j log(c_j / w_j), a lower bound of log Σ c_j e^{−ĝ_j·y} for y orthogonal to p_mm.

        The bound is Jensen's inequality, because Σ w_j ĝ_j is parallel to p_mm.
        """
        support = self.weights > 0
        return float(np.sum(self.weights[support] * (self.log_costs[support] - np.log(self.weights[support]))))

    @property
    def dual_rounding(self) -> float:
        """The rounding error of :attr:`dual_value` or of a log-sum-exp of costs: m + 8 roundings of the largest log."""
        support = self.weights > 0
        size = 1 + np.abs(self.log_costs).max() + np.abs(np.log(self.weights[support])).max()
        return float((self.weights.size + 8) * EPS * size)

    def exponent_rounding(self, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b"]:
        """Return a bound of the error of a computed (k_i,opt − k_it)·p, with p in units of ‖p_mm‖.

        A difference of keys has one rounding per coordinate, its product with p one more, the sum over coordinates d −
        1, and the softmax normaliser, the logarithm of the cost and that of the slope one each: in total (d + 6) eps
        Σ_k |ĝ_jk p_k|. If the keys are rounded products, an implementation computes with the rows of the rounded keys,
        so ``row_errors`` count, too.
        """
        size = np.max(np.abs(p) @ np.abs(self.rows).T, axis=-1)
        row_rounding = np.max(np.abs(p) @ np.broadcast_to(self.row_errors, self.rows.shape).T, axis=-1)
        costs = np.abs(self.log_costs).max() + abs(self.log_unit)
        return np.asarray((p.shape[-1] + 6) * EPS * (size + costs + self.others.size) + row_rounding)


def rank_of_neighbours(svm: MaxMargin) -> int:
    """Compute the exact rank of the rows of the SVM-neighbours."""
    pairs = np.argwhere(svm.neighbours).tolist()
    if svm.independent:
        return len(pairs)
    return int(fmpq_mat([svm.exact.row(i, t) for i, t in pairs]).rank())


def log_excess(under_test: Any, problem: Problem, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b"]:
    """Return log(L(p) − L_opt) of the implementation under test, (*b,); NaN where its L(p) is below L_opt.

    L_opt is the risk if all weight is on the optimal tokens.
    """
    sign, log_size = under_test[log_excess_risk](problem.keys, problem.scores, problem.loss, p, problem.optimal)
    return np.where(sign > 0, log_size, np.where(sign == 0, -np.inf, np.nan))


def exact_to_rounding(problem: Problem, kappa: float, rho: float) -> bool:
    """Return whether n(L − L_opt) = Σ_j c_j e^{−margin_j} up to rounding on the sublevel set of radius ρ.

    The symbols are those of :class:`Constraints`, with radius and margins in units of ‖p_mm‖. On the sublevel set every
    margin is at least ρ − κ. So the softmax normaliser 1 + Σ e^{−margin} and the second order of the loss (|ℓ''| ≤
    |ℓ'|, see :meth:`Loss.relative_curvature`) change a term by less than (T−1)(1 + Γ_max) e^{−(ρ−κ)}, where Γ_max is
    the largest score gap.
    """
    spread = math.log(problem.T - 1) + math.log1p(float(problem.gaps().max()))
    return spread - (rho - kappa) < math.log(EPS) - 3
