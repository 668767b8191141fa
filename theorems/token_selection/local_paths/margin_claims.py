"""Claims about the margins of p_mm itself: exactly the solution of ATT-SVM(α), and steady in the cone."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from generators.margin_assumptions import difference_rows, dot
from reference_attention.exact import to_float, to_floats
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.claim import Claim, Form, at_least
from theorems.core.tolerances import EXACT
from theorems.rounding.bounded import exact, rounded
from theorems.token_selection.local_paths.local_constants import LocalConstants


def solves_att_svm(problem: Problem, alpha: Int64[np.ndarray, "n"], solution: MaxMargin) -> Claim:
    """The certificate of the solution satisfies the KKT conditions of ATT-SVM(α) and Definition 2, over the rationals.

    Feasible, stationary, complementary, neighbours are exactly the margins 1, and the floats are those rationals
    rounded (p and duals to two units in the last place, margins as an inner product with the rounded p).
    """
    differences: Any = exact(np.take_along_axis(problem.keys, alpha[:, None, None], axis=1)) - problem.keys
    # Reported margins may be off by what this evaluation of them is off by, and as much again.
    error = 2 * np.vecdot(differences, rounded(solution.p)).error
    rows = difference_rows(problem.keys, alpha)
    p, duals = list(solution.exact.p), solution.exact.duals
    margins = {pair: dot(row, p) for pair, row in rows.items()}
    combined = [fmpq(0)] * len(p)
    for pair, weight in duals.items():
        combined = [x + weight * g for x, g in zip(combined, rows.get(pair, combined), strict=True)]
    wrong = ""
    for (i, t), margin in margins.items():
        if margin < 1:
            wrong = f"margin of token {t} of input {i} is {to_float(margin):.17g} < 1"
        elif bool(solution.neighbours[i, t]) != (margin == 1):
            reported = "a" if solution.neighbours[i, t] else "no"
            wrong = f"token {t} of input {i} has margin 1 + {to_float(margin - 1):.3g}, reported {reported} neighbour"
        elif not abs(float(solution.margins[i, t]) - to_float(margin)) <= error[i, t]:
            wrong = (
                f"margin of token {t} of input {i} is {to_float(margin):.17g}, reported {solution.margins[i, t]:.17g}"
            )
    if any(weight < 0 or (weight > 0 and margins.get(pair) != 1) for pair, weight in duals.items()):
        wrong = "a dual is negative, or positive off the neighbours"
    elif combined != p:
        wrong = "p_mm is not the combination of the rows with the duals"
    elif not all(_rounded(x, y) for x, y in zip(solution.p.tolist(), p, strict=True)):
        wrong = "the float p_mm is not the exact one rounded"
    elif not np.allclose(_dual_floats(solution), to_floats(duals.values()), rtol=4 * EPS, atol=0.0):
        wrong = "the float duals are not the exact ones rounded"
    detail = wrong or f"{len(margins)} margins, {int(solution.neighbours.sum())} of them exactly 1"
    return Claim("solves-att-svm", Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, detail)


def _dual_floats(solution: MaxMargin) -> Float64[np.ndarray, "k"]:
    return np.array([solution.duals[pair] for pair in solution.exact.duals])


def _rounded(x: float, exact: fmpq) -> bool:
    return abs(x - to_float(exact)) <= 2 * EPS * abs(x)


def margins_in_cone(constants: LocalConstants, points: Float64[np.ndarray, "m d"]) -> Claim:
    """In the cone no margin of p̃ = p‖p_mm‖/‖p‖ differs from that of p_mm by more than w_it, and w_it suffices.

    w_it ≤ ¼ for good tokens, ≤ (m_it − 1)/4 for harmful ones; both in one claim, worst token per point.
    """
    constants, others = constants.carrying, constants.others
    p, p_mm = exact(points), rounded(constants.solution.p)
    tilted = norm(p_mm) * p / norm(p, axis=1)[:, None] - p_mm
    beyond = np.where(constants.harmful, constants.beyond / 4, 0.25)[others]
    allowed = np.minimum(constants.tilt[others], beyond)
    return at_least("margins-in-cone", Form.EFFECTIVE, allowed, np.abs(tilted @ constants.rows[others].T))
