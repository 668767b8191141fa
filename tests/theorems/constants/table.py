"""The named constants of the effective bounds, and how each is weakened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from generators.case import Case
from generators.labelled import Labelled
from generators.next_tokens import NextTokens
from generators.subject import Subject
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset
from tests.theorems.constants.weakening import Constant, faded, lowered, scaled
from tests.theorems.transformers_as_svms.mixing_examples import CASES as MIXING_CASES
from theorems.bounded import exact
from theorems.curves.joint_setup import JointSetup
from theorems.curves.nuclear_bounds import NuclearBounds
from theorems.curves.nuclear_local_bounds import NuclearLocalBounds
from theorems.next_token import ntp_finite_part, ntp_path, sublevel
from theorems.next_token.followed import Followed
from theorems.next_token.limits import Limits
from theorems.next_token.loss_at import LossAt
from theorems.steepest_descent import mirror_one_input, mirrored, potential, steepest_momentum, steepest_one_input
from theorems.steepest_descent.geometry import RowGeometry
from theorems.steepest_descent.label_loss import LabelGeometry
from theorems.steepest_descent.mirrored import Mirrored
from theorems.steepest_descent.steepest_from_a_margin import SteepestConstants
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
from theorems.token_selection.local_paths.local_constants import LocalConstants
from theorems.token_selection.nonlinear_heads import theorem_8_nonlinear_heads
from theorems.token_selection.softmax import lemma_06_smoothness_and_descent
from theorems.transformers_as_svms import (
    factored_descent,
    feasible_weights,
    floor_bounds,
    local_path_bounds,
    no_stationary_point,
    nuclear_path,
    row_independence,
)
from theorems.transformers_as_svms.local_path_bounds import LocalPathBounds
from theorems.transformers_as_svms.mixing_numbers import Mixing
from theorems.transformers_as_svms.sequence_numbers import SequenceRows

READ_LATE = "the offset is read off from E ≤ 0.01 on, where it moves nothing that floats see"
GIBBS = "an average of margins exceeds the least by W((N − 1)r/e) at most, r the ratio of coefficients, W of Lambert"
TO_THE_END = "a run would have to come to L_⋆ with steps that curvature shortens by an eighth"
NEAR_ONE = "beyond R0 the chosen tokens have nearly all the weight, and others e^{−a} without a factor"
HALF_TAKEN = "harmful tokens take half of the excess at R0 alone, if at all"
AT_LESS = "log1p(x) is taken at the least margin, and is more than b makes up for"
TWO_CASES = "two worst cases added, of which a pair found has one: unseen, and not proven to be unneeded"
SAFE = "safe steps lower the risk by far more than it could rise by with κ less"
SHORTENED = "steps are made short until b ≥ 0 by the same D, and τ leaves more room than the second order takes"
ANY_SHARE = "the bounds hold wherever Aq < 1; that Aq ≤ ½ only makes β explicit"

UNDER_THE_LOSS = "E is the bound (G1), far above the loss itself: margins exceed their bound by more than (D_c/D_F)τ"
AT_ONE_RADIUS = "e^x − 1 ≤ (e − 1)x is an equality at x = E/π_min = 1 alone, and radii of the path are few"
AT_REST = "Newton's last step is the square of the one before: far shorter than it may be, and so is the slope"

LOG_2 = float(np.log(2.0))
DESCENT, JOINT = ("descent-from-a-margin",), ("theorem-5", "theorem-6")
PATH, LOCAL, SEQUENCE = ("theorem-1", "tsvm-frobenius-path"), ("tsvm-local-path",), ("tsvm-sequence",)
NUCLEAR = ("tsvm-nuclear-path",)
FACTORED, MIXING = ("tsvm-factored-flow",), ("tsvm-mixing",)
MIRROR, UNWINNABLE = ("mirror-one-input", "mirror-from-a-margin"), ("unwinnable-scores",)
STEEPEST, LABELS = ("steepest-one-input", "steepest-from-a-margin"), ("steepest-multiclass", "steepest-momentum")
NEXT, NEXT_PATH, NEXT_DESCENT, FINITE = (
    (f"ntp-{name}",) for name in ("extended-supports", "path", "descent", "finite-part")
)


def half(*of: Any) -> float:
    """log 2."""
    return LOG_2


def _log_rows(problem: Problem) -> float:
    return float(np.log(problem.n * (problem.T - 1)))


def _log_slopes(problem: Problem) -> float:
    low, high = problem.score_range
    return problem.loss.log_bound(low, high) - problem.loss.log_floor(low, high)


def _log_gaps(problem: Problem) -> float:
    others = np.arange(problem.T) != problem.optimal[:, None]
    gaps = np.log(problem.gaps()[others])
    return float(np.max(gaps) - np.min(gaps))


def _log_tokens(bounds: LocalPathBounds) -> float:
    return float(np.log(bounds.constants.problem.T))


def _with(problem_of: Any, amount: Any) -> Any:
    return lambda *of, **by: amount(problem_of(*of))


def _own(constants: Any) -> Problem:
    problem: Problem = constants.problem
    return problem


def _towards_one(held: Any, share: float) -> Any:
    """x^(1 − share)."""
    return lambda *of: np.exp((1 - share) * np.log(held(*of)))


def _less_share(held: Any, share: float) -> Any:
    return lambda self, m: 1 - (1 - held(self, m)) * (1 - share)


def _less_stretch(held: Any, share: float) -> Any:
    return lambda self, m: 1 + (held(self, m) - 1) * (1 - share)


def _less_lag(held: Any, share: float) -> Any:
    return lambda self, m: self.spread + (held(self, m) - self.spread) * (1 - share)


def _without_lag(held: Any, share: float) -> Any:
    return lambda constants, later: np.maximum(held(constants, later) * (1 - share), 1e-9)


def _without_change(held: Any, share: float) -> Any:
    return lambda constants, later: np.where(held(constants, later) < 1, held(constants, later) * (1 - share), np.inf)


def _without_coefficients(held: Any, share: float) -> Any:
    """χ less, where it is finite."""

    def change(constants: Any, margin: float) -> float:
        value = float(held(constants, margin))
        return value * (1 - share) if math.isfinite(value) else value

    return change


def _scaled_constant(factor: float) -> Any:
    return lambda held, share: held * factor**share


def _least_margin(held: Any, share: float) -> Any:
    return lambda at: held(at) * (1 - share) + np.min(at.margins, axis=(-2, -1)) * share


def _log_of_itself(held: Any, share: float) -> Any:
    return lambda x: held(x) * (1 - share) + np.log(x) * share


def _itself(held: Any, share: float) -> Any:
    return lambda t: held(t) * (1 - share) + t * share


def _fewer_harm(held: Any, share: float) -> Any:
    return lambda self, rho: held(self, rho) + (np.log1p(-share) if share < 1 else -700.0)


def _of_each(which: str) -> Any:
    """c_min raised to c_max, or c_max lowered to c_min; b or M0 less."""

    def weaken(held: Any, share: float) -> Any:
        def found(problem: Problem, what: str) -> Any:
            value = held(problem, what)
            if what != which:
                return value
            if which == "steepening":
                return value * (1 - share)
            if which == "log_lipschitz":
                return value - share * LOG_2
            apart = share * (held(problem, "log_bound") - held(problem, "log_floor"))
            return value + apart if which == "log_floor" else value - apart

        return found

    return weaken


def _without_others(held: Any, share: float) -> Any:
    """T − 1 → 1 in what q is at most."""
    return lambda margin, T: (held(margin, 1 + (T - 1) ** (1 - share))[0], held(margin, T)[1])


def _deficit_without_n(sublevel: Any) -> float:
    return float(np.log(sublevel.setup.problem.n))


def _sequence_slopes(rows: Any) -> Any:
    steep, flat = rows.log_slope_bounds
    return steep - flat


def _sequence_gaps(rows: Any) -> Any:
    gaps: Any = np.concatenate([gap.ravel() for gap in rows.log_gaps])
    return np.max(gaps) - np.min(gaps)


def _good_gaps(bounds: Any) -> Any:
    gaps: Any = np.log(bounds.constants.carrying.gaps[bounds.constants.good])
    return np.max(gaps) - np.min(gaps)


CONSTANTS: tuple[Constant, ...] = (
    Constant(DESCENT, "A = max g·p_mm", "1", MarginConstants, "widest", _towards_one),
    Constant(DESCENT, "1 − Aq", "1", MarginConstants, "share", _less_share),
    Constant(DESCENT, "1 + q", "1", MarginConstants, "stretch", _less_stretch),
    Constant(DESCENT, "K + log(1 + q)", "K", MarginConstants, "lag", _less_lag, GIBBS),
    Constant(DESCENT, "max‖g‖", "max‖g‖/2", MarginConstants, "reach", scaled(0.5)),
    Constant(DESCENT, "K with N = n(T − 1)", "1", MarginConstants, "spread", lowered(_with(_own, _log_rows))),
    Constant(DESCENT, "K with c_max/c_min", "1", MarginConstants, "spread", lowered(_with(_own, _log_slopes))),
    Constant(DESCENT, "K with Γ_max/Γ_min", "1", MarginConstants, "spread", lowered(_with(_own, _log_gaps))),
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
    Constant(DESCENT, "K_j of the flow", "0", descent_from_a_margin, "lag_later", _without_lag),
    Constant(("lemma-5",), "log(T − 1)", "0", lemma_05_gradient_correlation, "log_others", faded),
    Constant(("lemma-6",), "L̂", "L̂/2", lemma_06_smoothness_and_descent, "log_sharp_smoothness", lowered(half)),
    Constant(("lemma-7",), "κ(ρ)", "0", LocalConstants, "kappa", faded),
    Constant(("lemma-7",), "C⁻", "2 C⁻", LocalConstants, "log_lower", lowered(lambda *of: -LOG_2)),
    Constant(("lemma-7",), "C⁺", "C⁺/2", LocalConstants, "log_upper", lowered(half)),
    Constant(PATH, "κ with 2", "1", theorem_1_regularization_path, "log_kappa", lowered(half)),
    Constant(PATH, "κ with n(T − 1)", "1", theorem_1_regularization_path, "log_kappa", lowered(_log_rows)),
    Constant(PATH, "κ with c_max/c_min", "1", theorem_1_regularization_path, "log_kappa", lowered(_log_slopes)),
    Constant(PATH, "κ with Γ_max/Γ_min", "1", theorem_1_regularization_path, "log_kappa", lowered(_log_gaps)),
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
    Constant(("tsvm-risk-floor",), "c_min", "c_max", floor_bounds, "of_each", _of_each("log_floor")),
    Constant(("tsvm-risk-floor",), "c_max", "c_min", floor_bounds, "of_each", _of_each("log_bound")),
    Constant(("tsvm-risk-floor",), "b of the floor by slopes", "0", floor_bounds, "of_each", _of_each("steepening")),
    Constant(("tsvm-risk-floor",), "M0", "M0/2", floor_bounds, "of_each", _of_each("log_lipschitz")),
    Constant(
        ("tsvm-feasibility",),
        "σ_min²",
        "2 σ_min²",
        feasible_weights,
        "eigenvalue_bound",
        lambda held, share: lambda rows: held(rows) * int(1024 * 2**share) / 1024,
    ),
    Constant(
        ("tsvm-no-stationary-point",),
        "σ² and σ_min²",
        "4 σ²",
        row_independence,
        "certified_eigenvalue",
        scaled(4.0),
    ),
    Constant(
        ("tsvm-no-stationary-point",),
        "√(T − 1) of saturation",
        "1",
        no_stationary_point,
        "root_of_others",
        _towards_one,
    ),
    Constant(
        ("tsvm-no-stationary-point",),
        "8/7 of L − L_⋆",
        "1",
        no_stationary_point,
        "SUMMED",
        _scaled_constant(7 / 8),
        TO_THE_END,
    ),
    Constant(LOCAL, "κ_α with 2", "1", LocalPathBounds, "kappa", lowered(half), HALF_TAKEN),
    Constant(
        LOCAL, "κ_α with T", "1", LocalPathBounds, "kappa", lowered(lambda b: np.log(b.constants.problem.T)), NEAR_ONE
    ),
    Constant(LOCAL, "κ_α with N", "1", LocalPathBounds, "kappa", lowered(lambda b: np.log(b.constants.good.sum()))),
    Constant(LOCAL, "κ_α with Γ⁺/Γ⁻", "1", LocalPathBounds, "kappa", lowered(_good_gaps)),
    Constant(LOCAL, "κ_α", "0", LocalPathBounds, "kappa", scaled(1e-3)),
    Constant(LOCAL, "R0", "R0/2", LocalPathBounds, "first", scaled(0.5)),
    Constant(LOCAL, "c_max H", "0", LocalPathBounds, "log_harm", _fewer_harm),
    Constant(LOCAL, "b min(x, 1)", "0", local_path_bounds, "bend", faded, AT_LESS),
    Constant(LOCAL, "κ_α of the nuclear norm", "0", NuclearLocalBounds, "kappa", scaled(1e-3)),
    Constant(LOCAL, "R0 of the nuclear norm", "R0/2", NuclearLocalBounds, "first", scaled(0.5)),
    Constant(NUCLEAR, "κ with 2", "1", nuclear_path, "log_kappa", lowered(half)),
    Constant(NUCLEAR, "κ with n(T − 1)", "1", nuclear_path, "log_kappa", lowered(_log_rows)),
    Constant(NUCLEAR, "κ with c_max/c_min", "1", nuclear_path, "log_kappa", lowered(_log_slopes)),
    Constant(NUCLEAR, "κ with Γ_max/Γ_min", "1", nuclear_path, "log_kappa", lowered(_log_gaps)),
    Constant(NUCLEAR, "2√(Re/g)", "√(Re/g)", NuclearBounds, "from_face", scaled(0.5)),
    Constant(NUCLEAR, "bound of ‖W − ρW_⋆‖", "a tenth", NuclearBounds, "from_solution", scaled(0.1)),
    Constant(NUCLEAR, "b min(x, 1)", "0", nuclear_path, "bend", faded, AT_LESS),
    Constant(SEQUENCE, "κ with 2", "1", SequenceRows, "log_kappa", lowered(half)),
    Constant(SEQUENCE, "κ with N", "1", SequenceRows, "log_kappa", lowered(lambda rows: np.log(exact(rows.count)))),
    Constant(SEQUENCE, "κ with c_max/c_min", "1", SequenceRows, "log_kappa", lowered(_sequence_slopes)),
    Constant(SEQUENCE, "κ with Γ_max/Γ_min", "1", SequenceRows, "log_kappa", lowered(_sequence_gaps)),
    Constant(SEQUENCE, "½ of the floor", "1", SequenceRows, "log_least_gap", lowered(lambda rows: -LOG_2)),
    Constant(SEQUENCE, "b min(x, 1)", "0", SequenceRows, "bent", faded),
    Constant(("tsvm-factored-descent",), "2 L̂ M² + c", "half of it", factored_descent, "lipschitz", scaled(0.5)),
    Constant(FACTORED, "κ of the margin", "κ/100", MarginConstants, "kappa", scaled(0.01)),
    Constant(("tsvm-factored-descent",), "κ of the margin", "κ/100", MarginConstants, "kappa", scaled(0.01), SAFE),
    Constant(MIXING, "log B", "log B/2", Mixing, "log_ceiling", lowered(half)),
    Constant(MIXING, "2√2 ε/s⋆_min", "a tenth", Mixing, "deviation", scaled(0.1)),
    Constant(MIXING, "(D/λ)^½", "a tenth", Mixing, "spread", scaled(0.1)),
    Constant(MIXING, "‖m‖₁δ of the length", "0", Mixing, "lost_by_ratios", faded),
    Constant(STEEPEST, "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(STEEPEST, "D'", "D'/4", RowGeometry, "diameter", scaled(0.25)),
    Constant(("steepest-one-input",), "D'²η²/8", "D'²η²/8.5", potential, "second_order", scaled(8 / 8.5)),
    Constant(("steepest-one-input",), "τ", "3τ/4", steepest_one_input, "momentum_lag", scaled(0.75)),
    Constant(("steepest-from-a-margin",), "χ", "0", SteepestConstants, "change", _without_coefficients),
    Constant(MIRROR, "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(MIRROR, "B", "0", Mirrored, "remainder", faded),
    Constant(MIRROR, "distance of directions", "half of it", mirrored, "distance", scaled(0.5)),
    Constant(("mirror-one-input",), "log(T − 1)", "0", mirror_one_input, "log_rows", faded),
    Constant(("mirror-from-a-margin",), "1 − Aq", "1", MarginConstants, "share", _less_share),
    Constant(("mirror-from-a-margin",), "K = κ − log 2", "0", MarginConstants, "spread", faded),
    Constant(LABELS, "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(("steepest-multiclass",), "D", "D/2", RowGeometry, "reach", scaled(0.5)),
    Constant(("steepest-multiclass",), "V(u)", "V(u)/2", LabelGeometry, "curvature", scaled(0.5)),
    Constant(("steepest-momentum",), "D", "D/2", RowGeometry, "reach", scaled(0.5), SHORTENED),
    Constant(("steepest-momentum",), "τ", "0", steepest_momentum, "momentum_lag", faded),
    Constant(NEXT, "ω", "ω/2", Limits, "log_total", lowered(half)),
    Constant(NEXT, "K", "0", LossAt, "soft_margin", _least_margin),
    Constant(NEXT_PATH, "τ(s) ≈ √(2s)", "√s", sublevel, "turn", scaled(0.5**0.5)),
    Constant(NEXT_PATH, "(D_c/D_F)τ", "0", sublevel, "shift_bound", faded),
    Constant(NEXT_PATH, "log(e^{E/π} − 1)", "log(E/π)", sublevel, "log_of_expm1", _log_of_itself),
    Constant(
        NEXT_PATH, "κ with e − 1", "1", ntp_path, "kappa", lowered(lambda *of: np.log(np.expm1(1.0))), AT_ONE_RADIUS
    ),
    Constant(NEXT_PATH, "D_c", "0", Limits, "reach", faded),
    Constant(NEXT_DESCENT, "D_c", "0", Limits, "reach", faded, UNDER_THE_LOSS),
    Constant(NEXT_DESCENT, "‖θ_0 − ϑ_r‖²", "½ of it", Followed, "start_to_ray", scaled(0.5)),
    Constant(NEXT_DESCENT, "K", "0", LossAt, "soft_margin", _least_margin),
    Constant(FINITE, "λ_H", "2λ_H", Limits, "curvature", scaled(2.0)),
    Constant(FINITE, "(1 − e^{−t})/t", "1", ntp_finite_part, "share_kept", _itself),
    Constant(FINITE, "D_c", "0", Limits, "reach", faded),
    Constant(UNWINNABLE, "c_iΓ_i", "c_iΓ_i/2", unwinnable_scores, "losses_across", scaled(0.5)),
    Constant(UNWINNABLE, "x/(1 + x)", "half of it", unwinnable_scores, "share_off", scaled(0.5)),
    Constant(UNWINNABLE, "the bound of ‖∇²L_F‖", "a tenth", unwinnable_scores, "curvature", scaled(0.1), AT_REST),
)
"""Of all statements that have effective bounds with constants of their own."""


def _case(rows: list[list[float]], scores: list[float], loss: str) -> Case:
    """One input whose optimal token is the origin, and whose rows are these."""
    keys = np.array([[[0.0] * len(rows[0]), *(-np.array(row) for row in rows)]])
    return Case(Problem(keys, np.array([scores]), loss_named(loss)), seed=1)


def _two_inputs(scores: list[list[float]], loss: str, seed: int = 1) -> Case:
    """The row of the first is (1, 0), that of the second (0, 1)."""
    keys = np.array([[[0.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]]])
    return Case(Problem(keys, np.array(scores), loss_named(loss)), seed=seed)


def _from(case: Case, start: list[float], seed: int) -> Case:
    """From that start, with the norms and steps of that seed."""
    return case.replace(start=np.array(start), seed=seed)


def _opposed_features() -> Labelled:
    """Rows that differ in one coordinate alone, in which sign descent goes to and fro."""
    ones = np.ones(2, dtype=np.int64)
    return Labelled(np.array([[1.0, 0.3], [1.0, -0.3]]), 0 * ones, ones, 2, seed=0)


def _middle_token() -> Case:
    """Tokens e1, e2, e3 of scores 1, 0, −1: where the second is selected, the others balance."""
    data = QueryDataset(np.eye(3)[None], np.ones((1, 1)), np.ones(1), np.array([1.0, 0.0, -1.0]), "correlation")
    return Case(data.problem, queried=data, seed=1)


def _idle_rows() -> Problem:
    """Rows (1, 0), (1, 1), …, (1, 6) of one gap: all are neighbours, and p_mm = (1, 0) is the first one alone."""
    rows = np.stack([np.ones(7), np.arange(7.0)], axis=1)
    keys = np.concatenate([np.zeros((1, 2)), -rows])
    return Problem(keys[None], np.array([[1.0, *[0.0] * 7]]), loss_named("correlation"))


def _idle_queries() -> Case:
    """The same rows of tokens, whose first entry is their score, and a query that is 1."""
    X = np.array([[[1.0, 0.0], *([0.0, -k] for k in np.arange(7.0))]])
    data = QueryDataset(X, np.ones((1, 1)), np.ones(1), np.array([1.0, 0.0]), "correlation")
    return Case(data.problem, queried=data, seed=1)


def _idle_inputs() -> dict[str, Case]:
    """Seven inputs of two tokens with the rows (1, 0), …, (1, 6): as keys, with queries, and as a sequence."""
    X = np.array([[[1.0, 0.0], [0.0, -k]] for k in np.arange(7.0)])
    ones, v = np.ones(7), np.array([1.0, 0.0])
    queried = QueryDataset(X, np.ones((7, 1)), ones, v, "correlation")
    sequence = SequenceDataset(X, np.ones((7, 1, 1)), np.ones((7, 1)), v, "correlation")
    return {
        "theorem-1": Case(Problem(X, np.array([[1.0, 0.0]] * 7), loss_named("correlation")), seed=1),
        "tsvm-frobenius-path": Case(queried.problem, queried=queried, seed=1),
        "tsvm-sequence": Case(sequence.problem, sequence=sequence, seed=1),
    }


def _slopes_apart() -> Case:
    """Two inputs with orthogonal queries, one gap, and slopes of e^0 and e^3."""
    X = np.array([[[0.0], [-1.0]], [[-3.0], [-4.0]]])
    data = QueryDataset(X, np.eye(2), np.ones(2), np.ones(1), "exponential")
    return Case(data.problem, queried=data, seed=1)


def _sequence_with_slopes_apart() -> Case:
    """The same as two inputs of a sequence with one query each."""
    X = np.array([[[0.0], [-1.0]], [[-3.0], [-4.0]]])
    data = SequenceDataset(X, np.eye(2)[:, None], np.ones((2, 1)), np.ones(1), "exponential")
    return Case(data.problem, sequence=data, seed=1)


def _equal_queries(n: int) -> Case:
    """Inputs of three tokens and orthogonal queries: 2n rows of one length and one gap."""
    X = np.array([[[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]] * n)
    data = QueryDataset(X, np.eye(n), np.ones(n), np.array([1.0, 0.0, 0.0]), "correlation")
    return Case(data.problem, queried=data, seed=1)


def _far_better_token() -> Case:
    """A token that scores 1000 more than the chosen one, with a margin of 2 over it where the support has 1."""
    X = np.array([[[0.0, 0.0], [-1.0, -1.0], [1000.0, -1004.0]]])
    data = QueryDataset(X, np.ones((1, 1)), np.ones(1), np.array([1.0, 0.0]), "correlation")
    return Case(data.problem, queried=data, alpha=np.array([0]), seed=1)


WITNESSES: dict[str, dict[str, Subject]] = {
    "descent-from-a-margin": {
        "weight and gap apart": _case([[1.0, 0.0], [20.0, 5.0]], [1.0, 0.0, 1 - 1e-6], "correlation"),
        "gap and weight apart": _case([[1.0, 0.0], [20.0, 5.0]], [1.0, 1 - 1e-6, 0.0], "correlation"),
        "opposite rows": _case([[1.0, 30.0], [1.0, -30.0]], [1.0, 1 - 1e-6, 0.0], "correlation"),
        "two equal inputs": _two_inputs([[1.0, 0.0], [1.0, 0.0]], "correlation"),
        "slopes apart": _two_inputs([[0.0, -1.0], [-3.0, -4.0]], "exponential"),
        "gaps apart": _two_inputs([[1.0, 0.0], [1.0, 1 - 1e-6]], "correlation"),
        "gaps apart, from the ray": _two_inputs([[1.0, 0.0], [1.0, 1 - 1e-6]], "correlation", 2),
        "gaps apart, from elsewhere": _two_inputs([[1.0, 0.0], [1.0, 1 - 1e-6]], "correlation", 3),
    },
    "lemma-6": {"wide scores": Case(Problem(np.array([[[1.0], [-1.0]]]), np.array([[1e3, -1e3]])), seed=1)},
    "ntp-path": {
        "attention with repeats": NextTokens(
            np.eye(3),
            samples=np.array([[0, 1, 0, -1], [1, 1, 1, 0], [0, 0, 0, -1], [0, -1, -1, -1], [2, 1, 0, -1]]),
            labels=np.array([0, 0, 0, 0, 1]),
            seed=1600,
        )
    },
    "theorem-2": {"a row that does not support": _case([[1.0, 0.0], [2.0, 1.0]], [1.0, 0.0, 0.0], "logistic")},
    "theorem-1": {
        "idle neighbours": Case(_idle_rows(), seed=1),
        "slopes apart": _two_inputs([[0.0, -1.0], [-3.0, -4.0]], "exponential"),
    },
    "tsvm-frobenius-path": {"idle neighbours": _idle_queries(), "slopes apart": _slopes_apart()},
    "tsvm-nuclear-path": {"idle neighbours": _idle_queries().replace(seed=2), "slopes apart": _slopes_apart()},
    "tsvm-mixing": {"a short query": MIXING_CASES["a-short-query"]},
    "tsvm-sequence": {"slopes apart": _sequence_with_slopes_apart()},
    "tsvm-local-path": {"eight equal rows": _equal_queries(4), "a far better token": _far_better_token()},
    "steepest-one-input": {
        "to and fro": _from(_case([[1.0, 1.0], [1.0, -1.0]], [1.0, 0.0, 0.0], "logistic"), [0.0, 1e-3], 4),
        "far to and fro": _from(_case([[1.0, 3.0], [1.0, -3.0]], [1.0, 0.0, 0.0], "correlation"), [0.0, 0.01], 0),
    },
    "steepest-from-a-margin": {
        "equal but for coefficients": _from(
            _case([[1.0, 2.0], [1.0, -2.0]], [1.0, 0.0, 0.5], "correlation"), [4.69427712, 0.1765209], 0
        )
    },
    "steepest-multiclass": {"opposed features": _opposed_features()},
    "tsvm-no-stationary-point": {"the middle token selected": _middle_token()},
}
for _id, _made in _idle_inputs().items():
    WITNESSES[_id]["idle inputs"] = _made
"""Cases by the statement, tried before any others: one token has the weight, another the gap."""
