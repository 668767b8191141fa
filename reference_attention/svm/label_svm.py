"""The SVM of the head v in Section 3, and the relaxed ATT-SVM of Theorem 6, both exact.

v_mm = argmin ‖v‖ subject to Y_i v·r_i ≥ 1 on the features r_i = x_iα_i. With z_i = Y_i r_i this is the ATT-SVM with the
two tokens z_i and 0 per input, so it is solved by the certified solver of :mod:`reference_attention.svm.max_margin`,
and the inputs of margin exactly 1, Y_i v_mm·r_i = 1, are decided over the rationals.

Source: *Max-Margin Token Selection in Attention Mechanism*, (SVM), (10) and Theorem 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.exact import to_float
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin


@dataclass(frozen=True, eq=False)
class LabelSvm:
    """The max-margin head v_mm for signed features z_i = Y_i r_i.

    Attributes:
        v: v_mm, correctly rounded, shape (d,).
        direction: v̄_mm = v_mm/‖v_mm‖, shape (d,).
        margin: Γ = 1/‖v_mm‖.
        slack: v̄_mm·z_i − Γ, exactly 0.0 where v_mm·z_i = 1 and rounded once from the exact v_mm·z_i elsewhere, (n,).
        support: whether v_mm·z_i is exactly 1, shape (n,).
        duals: λ ≥ 0 with Σ λ_i = 1 and Σ λ_i z_i = Γ v̄_mm; positive wherever ``support`` is True if such λ exist, (n,).
        strictly_complementary: whether duals that are positive wherever ``support`` is True exist; proven either way.
    """

    v: Float64[np.ndarray, "d"]
    direction: Float64[np.ndarray, "d"]
    margin: float
    slack: Float64[np.ndarray, "n"]
    support: Bool[np.ndarray, "n"]
    duals: Float64[np.ndarray, "n"]
    strictly_complementary: bool

    @property
    def norm(self) -> float:
        """Return ‖v_mm‖ = 1/Γ."""
        return 1.0 / self.margin


def label_svm(features: Float64[np.ndarray, "n d"]) -> LabelSvm | Infeasible:
    """Solve min ‖v‖ subject to v·z_i ≥ 1 for signed features z_i = Y_i r_i, exactly.

    Returns:
        The solution; or, if no v separates the features, a proof: multipliers λ ≥ 0 (in column 1) with Σ λ_i z_i = 0.

    Raises:
        InvalidInput: features that have NaN or infinite entries, or a shape other than (n, d).
    """
    keys = np.stack([features, np.zeros_like(features)], axis=1)
    solution = max_margin(keys, np.zeros(len(features), dtype=np.int64))
    if isinstance(solution, Infeasible):
        return solution
    positive = solution.positive_duals
    duals = (solution.duals if positive is None else positive)[:, 1]
    above = np.array([to_float(solution.exact.margin(i, 1) - 1) for i in range(len(features))])
    return LabelSvm(
        v=solution.p,
        direction=solution.direction,
        margin=solution.margin,
        slack=above * solution.margin,
        support=np.array(solution.neighbours[:, 1]),
        duals=duals / duals.sum(),
        strictly_complementary=solution.strictly_complementary,
    )


def relaxed_max_margin(
    keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"], support: Bool[np.ndarray, "n"]
) -> MaxMargin | Infeasible:
    """Return p_relax of Theorem 6, exact, or a proof that there is none.

    p_relax solves min ‖p‖ subject to (k_iα − k_it)·p ≥ 1 for the inputs i in ``support`` and ≥ 0 for the other inputs.

    Raises:
        InvalidInput: arguments that :func:`reference_attention.svm.max_margin.max_margin` refuses; an empty
            ``support``.
    """
    return max_margin(keys, alpha, required=support.astype(np.int64))
