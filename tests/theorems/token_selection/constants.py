"""The named constants in the explicit bounds of Max-Margin Token Selection, each with a weaker value.

A row is a difference k_α − k_t; p must satisfy row·p ≥ 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.case import Case
from generators.subject import Subject
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from tests.theorems.constants.weakening import (
    AT_LESS,
    LOG_2,
    Constant,
    case,
    faded,
    half,
    less_share,
    log_gaps,
    log_rows,
    log_slopes,
    lowered,
    scaled,
    towards_one,
)
from theorems.token_selection.global_paths import (
    descent_from_a_margin,
    lemma_05_gradient_correlation,
    margin_constants,
    theorem_1_regularization_path,
    theorem_2_global_convergence,
    unwinnable_scores,
)
from theorems.token_selection.global_paths.margin_constants import MarginConstants
from theorems.token_selection.joint_paths import joint_constants
from theorems.token_selection.joint_paths.joint_constants import Sublevel
from theorems.token_selection.joint_paths.joint_setup import JointSetup
from theorems.token_selection.local_paths.local_constants import LocalConstants
from theorems.token_selection.nonlinear_heads import theorem_8_nonlinear_heads
from theorems.token_selection.softmax import lemma_06_smoothness_and_descent

READ_LATE = "the offset is measured only where E ≤ 0.01, and there E changes it by less than floats resolve"
GIBBS = "an average of margins exceeds the least by at most W((N − 1)r/e), r the ratio of coefficients, W Lambert's"
TWO_CASES = "the bound adds two worst cases, of which every pair (v, p) tried has at most one; it may be needed"
ANY_SHARE = "the bounds hold wherever Aq < 1; that Aq ≤ ½ only makes β explicit"
AT_REST = "Newton's last step is about the square of the step before: it and the slope are far smaller than the bound"
DESCENT = ("descent-from-a-margin",)
JOINT = ("theorem-5", "theorem-6")
PATH = ("theorem-1",)
UNWINNABLE = ("unwinnable-scores",)


def _with(problem_of: Any, amount: Any) -> Any:
    return lambda *of, **by: amount(problem_of(*of))


def _own(constants: Any) -> Problem:
    problem: Problem = constants.problem
    return problem


def _less_stretch(original: Any, share: float) -> Any:
    return lambda self, m: 1 + (original(self, m) - 1) * (1 - share)


def _less_lag(original: Any, share: float) -> Any:
    return lambda self, m: self.spread + (original(self, m) - self.spread) * (1 - share)


def _without_lag(original: Any, share: float) -> Any:
    return lambda constants, later: np.maximum(original(constants, later) * (1 - share), 1e-9)


def _without_change(original: Any, share: float) -> Any:
    return lambda constants, later: np.where(
        original(constants, later) < 1, original(constants, later) * (1 - share), np.inf
    )


def _without_others(original: Any, share: float) -> Any:
    """Return the bounds on the weight q of other tokens, the upper one with (T − 1)^(1 − share) in place of T − 1."""
    return lambda margin, T: (original(margin, 1 + (T - 1) ** (1 - share))[0], original(margin, T)[1])


def _deficit_without_n(sublevel: Any) -> float:
    return float(np.log(sublevel.setup.problem.n))


CONSTANTS: tuple[Constant, ...] = (
    Constant(DESCENT, "A = max g·p_mm", "1", MarginConstants, "widest", towards_one),
    Constant(DESCENT, "1 − Aq", "1", MarginConstants, "share", less_share),
    Constant(DESCENT, "1 + q", "1", MarginConstants, "stretch", _less_stretch),
    Constant(DESCENT, "K + log(1 + q)", "K", MarginConstants, "lag", _less_lag, GIBBS),
    Constant(DESCENT, "max‖g‖", "max‖g‖/2", MarginConstants, "reach", scaled(0.5)),
    Constant(DESCENT, "K with N = n(T − 1)", "1", MarginConstants, "spread", lowered(_with(_own, log_rows))),
    Constant(DESCENT, "K with c_max/c_min", "1", MarginConstants, "spread", lowered(_with(_own, log_slopes))),
    Constant(DESCENT, "K with Γ_max/Γ_min", "1", MarginConstants, "spread", lowered(_with(_own, log_gaps))),
    Constant(DESCENT, "κ of margin-is-kept", "κ/10", MarginConstants, "kappa", scaled(0.1)),
    Constant(DESCENT, "log(2(T − 1)A)", "log((T − 1)A)", MarginConstants, "region", lowered(half), ANY_SHARE),
    Constant(DESCENT, "β", "10³ β", MarginConstants, "log_growth", lowered(lambda *of: -np.log(1e3))),
    Constant(DESCENT, "‖Δ‖²/(2‖p‖)", "0", margin_constants, "second_order", faded),
    Constant(
        DESCENT,
        "E of the flow's offset",
        "0",
        descent_from_a_margin,
        "log_coefficient_change",
        _without_change,
        READ_LATE,
    ),
    Constant(DESCENT, "K_j of the flow", "0", descent_from_a_margin, "lags_later", _without_lag),
    Constant(("lemma-5",), "log(T − 1)", "0", lemma_05_gradient_correlation, "log_others", faded),
    Constant(("lemma-6",), "L̂", "L̂/2", lemma_06_smoothness_and_descent, "log_sharp_smoothness", lowered(half)),
    Constant(("lemma-7",), "κ(ρ)", "0", LocalConstants, "kappa", faded),
    Constant(("lemma-7",), "C⁻", "2 C⁻", LocalConstants, "log_lower", lowered(lambda *of: -LOG_2)),
    Constant(("lemma-7",), "C⁺", "C⁺/2", LocalConstants, "log_upper", lowered(half)),
    Constant(PATH, "κ with 2", "1", theorem_1_regularization_path, "log_kappa", lowered(half)),
    Constant(PATH, "κ with n(T − 1)", "1", theorem_1_regularization_path, "log_kappa", lowered(log_rows)),
    Constant(PATH, "κ with c_max/c_min", "1", theorem_1_regularization_path, "log_kappa", lowered(log_slopes)),
    Constant(PATH, "κ with Γ_max/Γ_min", "1", theorem_1_regularization_path, "log_kappa", lowered(log_gaps)),
    Constant(PATH, "b min(x, 1)", "0", theorem_1_regularization_path, "bend", faded, AT_LESS),
    Constant(("theorem-2",), "D of climbs-like-log-t", "D/2", theorem_2_global_convergence, "reach", scaled(0.5)),
    Constant(("theorem-2",), "β", "4 β", theorem_2_global_convergence, "log_rate", lowered(lambda *of: -2 * LOG_2)),
    Constant(("theorem-2",), "λ and Σ‖Δ‖²", "0", theorem_2_global_convergence, "correlation_deficit", faded),
    Constant(("theorem-8",), "κ", "0", theorem_8_nonlinear_heads, "mixing_kappa", scaled(1e-3)),
    Constant(JOINT, "F with log n", "0", Sublevel, "deficit", lowered(_deficit_without_n)),
    Constant(JOINT, "B = F/(rν)", "B/2", Sublevel, "bound", scaled(0.5)),
    Constant(JOINT, "Δ of the head", "0", JointSetup, "spread", faded, TWO_CASES),
    Constant(JOINT, "(F/r + BΔ)/Γ", "half of it", Sublevel, "head_loss", scaled(0.5), TWO_CASES),
    Constant(JOINT, "D_i of the competitor", "0", JointSetup, "largest_drops", faded),
    Constant(JOINT, "T − 1 of what q is at most", "1", joint_constants, "nonoptimality_bounds", _without_others),
    Constant(("theorem-6",), "Q_i", "Q_i/2", Sublevel, "other_bounds", scaled(0.5)),
    Constant(UNWINNABLE, "c_iΓ_i", "c_iΓ_i/2", unwinnable_scores, "losses_across", scaled(0.5)),
    Constant(UNWINNABLE, "x/(1 + x)", "half of it", unwinnable_scores, "share_off", scaled(0.5)),
    Constant(UNWINNABLE, "the bound of ‖∇²L_F‖", "a tenth", unwinnable_scores, "curvature", scaled(0.1), AT_REST),
)
"""The constants of all statements that have explicit bounds."""


def _two_inputs(scores: list[list[float]], loss: str, seed: int = 1) -> Case:
    """Return two inputs of two tokens; the first input has the row (1, 0), the second the row (0, 1)."""
    keys = np.array([[[0.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]]])
    return Case(Problem(keys, np.array(scores), loss_named(loss)), seed=seed)


def _idle_rows() -> Problem:
    """Return an input with the rows (1, 0), (1, 1), …, (1, 6) and equal score gaps: all tokens are neighbours, but p_mm
    = (1, 0) is determined by the first row.
    """
    rows = np.stack([np.ones(7), np.arange(7.0)], axis=1)
    keys = np.concatenate([np.zeros((1, 2)), -rows])
    return Problem(keys[None], np.array([[1.0, *[0.0] * 7]]), loss_named("correlation"))


def _idle_inputs() -> Case:
    """Return seven inputs of two tokens, with one row each: (1, 0), …, (1, 6)."""
    X = np.array([[[1.0, 0.0], [0.0, -k]] for k in np.arange(7.0)])
    return Case(Problem(X, np.array([[1.0, 0.0]] * 7), loss_named("correlation")), seed=1)


WITNESSES: dict[str, dict[str, Subject]] = {
    "descent-from-a-margin": {
        "weight and gap apart": case([[1.0, 0.0], [20.0, 5.0]], [1.0, 0.0, 1 - 1e-6], "correlation"),
        "gap and weight apart": case([[1.0, 0.0], [20.0, 5.0]], [1.0, 1 - 1e-6, 0.0], "correlation"),
        "opposite rows": case([[1.0, 30.0], [1.0, -30.0]], [1.0, 1 - 1e-6, 0.0], "correlation"),
        "two equal inputs": _two_inputs([[1.0, 0.0], [1.0, 0.0]], "correlation"),
        "slopes apart": _two_inputs([[0.0, -1.0], [-3.0, -4.0]], "exponential"),
        "gaps apart": _two_inputs([[1.0, 0.0], [1.0, 1 - 1e-6]], "correlation"),
        "gaps apart, from the ray": _two_inputs([[1.0, 0.0], [1.0, 1 - 1e-6]], "correlation", 2),
        "gaps apart, from elsewhere": _two_inputs([[1.0, 0.0], [1.0, 1 - 1e-6]], "correlation", 3),
    },
    "lemma-6": {"wide scores": Case(Problem(np.array([[[1.0], [-1.0]]]), np.array([[1e3, -1e3]])), seed=1)},
    "theorem-2": {"a row that does not support": case([[1.0, 0.0], [2.0, 1.0]], [1.0, 0.0, 0.0], "logistic")},
    "theorem-1": {
        "idle neighbours": Case(_idle_rows(), seed=1),
        "slopes apart": _two_inputs([[0.0, -1.0], [-3.0, -4.0]], "exponential"),
    },
}
"""For each statement, cases that are tried before any others; in some, one token has most weight, another the score
gap.
"""
WITNESSES["theorem-1"]["idle inputs"] = _idle_inputs()
