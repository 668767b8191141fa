"""Exact solution of the paper's (SVM) for the max-margin head v_mm on given features, with positive duals if possible.

The program (SVM) on the signed features f_i = Y_i r_i (label times feature of input i) is ATT-SVM with two tokens f_i
and 0 per input, so the same certified solver serves both programs.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, (SVM).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from generators.margin_assumptions import CheckedMargins, Vector, checked_margins, exact_vector
from reference_attention.exact import rational
from reference_attention.svm.max_margin import MaxMargin, max_margin


@dataclass(frozen=True)
class LabelMargin:
    """The solution v_mm, the margins v_mm·f_i ≥ 1 of the signed features f_i, and duals λ with v_mm = Σ λ_i f_i, exact.

    Attributes:
        checked: the equivalent ATT-SVM with tokens f_i and 0, whose solution is v_mm.
        margins: v_mm·f_i, n rationals; the inputs with margin 1 are the supports.
        duals: λ_i ≥ 0, n rationals; positive at every support if such a dual solution was found.
    """

    checked: CheckedMargins
    margins: list[fmpq]
    duals: list[fmpq]

    @property
    def v(self) -> Vector:
        """The solution v_mm, d rationals."""
        assert self.checked.p is not None
        return self.checked.p

    @property
    def norm_squared(self) -> fmpq:
        """The square ‖v_mm‖² = 1/Γ², with Γ the label margin; it equals Σ λ_i f_i·v_mm = Σ λ_i."""
        return sum(self.duals, fmpq(0))


def label_margin(features: Float64[np.ndarray, "n d"]) -> LabelMargin | None:
    """Return the max-margin head on the signed features Y_i r_i, or ``None`` if no head separates these features."""
    keys = np.stack([features, np.zeros_like(features)], axis=1)
    alpha = np.zeros(len(features), dtype=np.int64)
    checked = checked_margins(keys, alpha)
    if not checked.feasible:
        return None
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin)
    margins = [checked.margins[i, 1] for i in range(len(features))]
    duals = [solution.exact.duals.get((i, 1), fmpq(0)) for i in range(len(features))]
    tight = [i for i, m in enumerate(margins) if m == 1]
    if any(duals[i] == 0 for i in tight) and checked.p is not None and solution.positive_duals is not None:
        better = _complete_solution(features, checked.p, tight, solution.positive_duals[:, 1])
        duals = better if better is not None else duals
    return LabelMargin(checked, margins, duals)


def _complete_solution(
    features: Float64[np.ndarray, "n d"], v: Vector, tight: list[int], guess: Float64[np.ndarray, "n"]
) -> list[fmpq] | None:
    """Return exact duals λ, positive on ``tight``, with Σ λ_i f_i = v; None if no such duals are found.

    The rows of ``features`` are f_i. Free unknowns of the linear system are taken from ``guess``; the other unknowns
    are solved for.
    """
    d = len(v)
    rows = [exact_vector(features[i]) for i in tight]
    system = fmpq_mat([[row[k] for row in rows] + [v[k]] for k in range(d)])
    reduced, rank = system.rref()
    entries = reduced.tolist()
    pivots = [next(j for j in range(len(tight)) if entries[r][j] != 0) for r in range(int(rank))]
    values = [rational(float(guess[i])) for i in tight]
    for r, j in enumerate(pivots):
        free = (entries[r][k] * values[k] for k in range(len(tight)) if k not in pivots)
        values[j] = entries[r][len(tight)] - sum(free, fmpq(0))
    if any(x <= 0 for x in values):
        return None
    duals = [fmpq(0)] * len(features)
    for i, x in zip(tight, values, strict=True):
        duals[i] = x
    return duals
