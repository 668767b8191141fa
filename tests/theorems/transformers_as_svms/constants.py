"""The named constants in the explicit bounds of Transformers as Support Vector Machines, each with a weaker value.

A row is a difference k_α − k_t of keys vec(x zᵀ), for a query z; a gap is a difference of scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.case import Case
from generators.subject import Subject
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset
from tests.theorems.constants.weakening import (
    AT_LESS,
    LOG_2,
    Constant,
    faded,
    half,
    log_gaps,
    log_rows,
    log_slopes,
    lowered,
    scaled,
    towards_one,
)
from tests.theorems.transformers_as_svms.mixing_examples import CASES as MIXING_CASES
from theorems.bounded import exact
from theorems.token_selection.global_paths import theorem_1_regularization_path
from theorems.token_selection.global_paths.margin_constants import MarginConstants
from theorems.transformers_as_svms import (
    factored_descent,
    feasible_weights,
    floor_bounds,
    local_path_bounds,
    no_stationary_point,
    nuclear_path,
    row_independence,
)
from theorems.transformers_as_svms.curves.nuclear_bounds import NuclearBounds
from theorems.transformers_as_svms.curves.nuclear_local_bounds import NuclearLocalBounds
from theorems.transformers_as_svms.local_path_bounds import LocalPathBounds
from theorems.transformers_as_svms.mixing_numbers import Mixing
from theorems.transformers_as_svms.sequence_numbers import SequenceRows

TO_THE_END = "only a run that reaches L_⋆ while curvature shortens its steps by an eighth would need it"
NEAR_ONE = "beyond R0 the chosen tokens have nearly all the weight, and another token e^{−a}, without a factor T"
HALF_TAKEN = "harmful tokens account for half of the excess only at R0, if at all"
SAFE = "safe steps lower the risk by far more than it may rise if κ is smaller"
PATH = ("tsvm-frobenius-path",)
LOCAL = ("tsvm-local-path",)
SEQUENCE = ("tsvm-sequence",)
NUCLEAR = ("tsvm-nuclear-path",)
MIXING = ("tsvm-mixing",)


def _scaled_constant(factor: float) -> Any:
    return lambda original, share: original * factor**share


def _fewer_harm(original: Any, share: float) -> Any:
    return lambda self, rho: original(self, rho) + (np.log1p(-share) if share < 1 else -700.0)


def _of_each(which: str) -> Any:
    """Return a weakening of one constant of the loss: its least slope, its largest slope, its steepening b or
    its M0.
    """

    def weaken(original: Any, share: float) -> Any:
        def weakened(problem: Problem, what: str) -> Any:
            value = original(problem, what)
            if what != which:
                return value
            if which == "steepening":
                return value * (1 - share)
            if which == "log_lipschitz":
                return value - share * LOG_2
            apart = share * (original(problem, "log_bound") - original(problem, "log_floor"))
            return value + apart if which == "log_floor" else value - apart

        return weakened

    return weaken


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
    Constant(PATH, "κ with 2", "1", theorem_1_regularization_path, "log_kappa", lowered(half)),
    Constant(PATH, "κ with n(T − 1)", "1", theorem_1_regularization_path, "log_kappa", lowered(log_rows)),
    Constant(PATH, "κ with c_max/c_min", "1", theorem_1_regularization_path, "log_kappa", lowered(log_slopes)),
    Constant(PATH, "κ with Γ_max/Γ_min", "1", theorem_1_regularization_path, "log_kappa", lowered(log_gaps)),
    Constant(PATH, "b min(x, 1)", "0", theorem_1_regularization_path, "bend", faded, AT_LESS),
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
        lambda original, share: lambda rows: original(rows) * int(1024 * 2**share) / 1024,
    ),
    Constant(
        ("tsvm-no-stationary-point",), "σ² and σ_min²", "4 σ²", row_independence, "certified_eigenvalue", scaled(4.0)
    ),
    Constant(
        ("tsvm-no-stationary-point",), "√(T − 1) of saturation", "1", no_stationary_point, "root_of_others", towards_one
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
    Constant(NUCLEAR, "κ with n(T − 1)", "1", nuclear_path, "log_kappa", lowered(log_rows)),
    Constant(NUCLEAR, "κ with c_max/c_min", "1", nuclear_path, "log_kappa", lowered(log_slopes)),
    Constant(NUCLEAR, "κ with Γ_max/Γ_min", "1", nuclear_path, "log_kappa", lowered(log_gaps)),
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
    Constant(("tsvm-factored-descent",), "κ of the margin", "κ/100", MarginConstants, "kappa", scaled(0.01), SAFE),
    Constant(MIXING, "log B", "log B/2", Mixing, "log_ceiling", lowered(half)),
    Constant(MIXING, "2√2 ε/s⋆_min", "a tenth", Mixing, "deviation", scaled(0.1)),
    Constant(MIXING, "(D/λ)^½", "a tenth", Mixing, "spread", scaled(0.1)),
    Constant(MIXING, "‖m‖₁δ of the length", "0", Mixing, "lost_by_ratios", faded),
)
"""The constants of all statements that have explicit bounds."""


def _middle_token() -> Case:
    """Return an input with the unit vectors as tokens and scores 1, 0, −1, so that gains and losses of the first and
    third token cancel if the second is selected.
    """
    data = QueryDataset(np.eye(3)[None], np.ones((1, 1)), np.ones(1), np.array([1.0, 0.0, -1.0]), "correlation")
    return Case(data.problem, queried=data, seed=1)


def _idle_queries() -> Case:
    """Return an input with the query 1, the rows (1, 0), (1, 1), …, (1, 6), and the first entry of a token as score."""
    X = np.array([[[1.0, 0.0], *([0.0, -k] for k in np.arange(7.0))]])
    data = QueryDataset(X, np.ones((1, 1)), np.ones(1), np.array([1.0, 0.0]), "correlation")
    return Case(data.problem, queried=data, seed=1)


def _slopes_apart() -> Case:
    """Return two inputs with orthogonal queries, equal gaps, and the loss slopes e^0 and e^3."""
    X = np.array([[[0.0], [-1.0]], [[-3.0], [-4.0]]])
    data = QueryDataset(X, np.eye(2), np.ones(2), np.ones(1), "exponential")
    return Case(data.problem, queried=data, seed=1)


def _sequence_with_slopes_apart() -> Case:
    """Return the data of :func:`_slopes_apart` as a sequence with one query per input."""
    X = np.array([[[0.0], [-1.0]], [[-3.0], [-4.0]]])
    data = SequenceDataset(X, np.eye(2)[:, None], np.ones((2, 1)), np.ones(1), "exponential")
    return Case(data.problem, sequence=data, seed=1)


def _equal_queries(n: int) -> Case:
    """Return n inputs of three tokens with orthogonal queries, so that the 2n rows have equal lengths and gaps."""
    X = np.array([[[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]] * n)
    data = QueryDataset(X, np.eye(n), np.ones(n), np.array([1.0, 0.0, 0.0]), "correlation")
    return Case(data.problem, queried=data, seed=1)


def _far_better_token() -> Case:
    """Return a case with a token that scores 1000 more than the chosen one, with margin 2; the other token has margin
    1.
    """
    X = np.array([[[0.0, 0.0], [-1.0, -1.0], [1000.0, -1004.0]]])
    data = QueryDataset(X, np.ones((1, 1)), np.ones(1), np.array([1.0, 0.0]), "correlation")
    return Case(data.problem, queried=data, alpha=np.array([0]), seed=1)


def _idle_inputs() -> tuple[Case, Case]:
    """Return seven inputs of two tokens with one row each, (1, 0), …, (1, 6): as data with queries, and as a
    sequence.
    """
    X = np.array([[[1.0, 0.0], [0.0, -k]] for k in np.arange(7.0)])
    ones, v = np.ones(7), np.array([1.0, 0.0])
    queried = QueryDataset(X, np.ones((7, 1)), ones, v, "correlation")
    sequence = SequenceDataset(X, np.ones((7, 1, 1)), np.ones((7, 1)), v, "correlation")
    return Case(queried.problem, queried=queried, seed=1), Case(sequence.problem, sequence=sequence, seed=1)


WITNESSES: dict[str, dict[str, Subject]] = {
    "tsvm-frobenius-path": {"idle neighbours": _idle_queries(), "slopes apart": _slopes_apart()},
    "tsvm-nuclear-path": {"idle neighbours": _idle_queries().replace(seed=2), "slopes apart": _slopes_apart()},
    "tsvm-mixing": {"a short query": MIXING_CASES["a-short-query"]},
    "tsvm-sequence": {"slopes apart": _sequence_with_slopes_apart()},
    "tsvm-local-path": {"eight equal rows": _equal_queries(4), "a far better token": _far_better_token()},
    "tsvm-no-stationary-point": {"the middle token selected": _middle_token()},
}
"""For each statement, cases that are tried before any others."""
WITNESSES["tsvm-frobenius-path"]["idle inputs"], WITNESSES["tsvm-sequence"]["idle inputs"] = _idle_inputs()
