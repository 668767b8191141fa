"""The named constants in the explicit bounds of steepest and mirror descent, each with a weaker value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from generators.case import Case
from generators.labelled_features import LabelledFeatures
from generators.subject import Subject
from tests.theorems.constants.weakening import Constant, case, faded, less_share, scaled
from theorems.steepest_descent import mirror_one_input, mirror_run, potential, steepest_momentum, steepest_one_input
from theorems.steepest_descent.geometry import RowGeometry
from theorems.steepest_descent.label_loss import LabelGeometry
from theorems.steepest_descent.mirror_run import MirrorRun
from theorems.steepest_descent.steepest_from_a_margin import SteepestConstants
from theorems.token_selection.global_paths.margin_constants import MarginConstants

SHORTENED = "the same D shortens the steps until b ≥ 0, and τ leaves more room than the second-order term uses"
MIRROR = ("mirror-one-input", "mirror-from-a-margin")
STEEPEST = ("steepest-one-input", "steepest-from-a-margin")
LABELS = ("steepest-multiclass", "steepest-momentum")


def _without_coefficients(original: Any, share: float) -> Any:
    """Return the constant χ multiplied by 1 − share where it is finite."""

    def change(constants: Any, margin: float) -> float:
        value = float(original(constants, margin))
        return value * (1 - share) if math.isfinite(value) else value

    return change


CONSTANTS: tuple[Constant, ...] = (
    Constant(STEEPEST, "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(STEEPEST, "D'", "D'/4", RowGeometry, "diameter", scaled(0.25)),
    Constant(("steepest-one-input",), "D'²η²/8", "D'²η²/8.5", potential, "second_order", scaled(8 / 8.5)),
    Constant(("steepest-one-input",), "τ", "3τ/4", steepest_one_input, "momentum_lag", scaled(0.75)),
    Constant(("steepest-from-a-margin",), "χ", "0", SteepestConstants, "change", _without_coefficients),
    Constant(MIRROR, "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(MIRROR, "B", "0", MirrorRun, "remainder", faded),
    Constant(MIRROR, "distance of directions", "half of it", mirror_run, "distance", scaled(0.5)),
    Constant(("mirror-one-input",), "log(T − 1)", "0", mirror_one_input, "log_rows", faded),
    Constant(("mirror-from-a-margin",), "1 − Aq", "1", MarginConstants, "share", less_share),
    Constant(("mirror-from-a-margin",), "K = κ − log 2", "0", MarginConstants, "spread", faded),
    Constant(LABELS, "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(("steepest-multiclass",), "D", "D/2", RowGeometry, "reach", scaled(0.5)),
    Constant(("steepest-multiclass",), "V(u)", "V(u)/2", LabelGeometry, "curvature", scaled(0.5)),
    Constant(("steepest-momentum",), "D", "D/2", RowGeometry, "reach", scaled(0.5), SHORTENED),
    Constant(("steepest-momentum",), "τ", "0", steepest_momentum, "momentum_lag", faded),
)
"""The constants of all statements that have explicit bounds."""


def _from(case: Case, start: list[float], seed: int) -> Case:
    """Return the case with the given start and seed; the statement draws norm and steps from the seed."""
    return case.replace(start=np.array(start), seed=seed)


def _opposed_features() -> LabelledFeatures:
    """Return two samples that differ in only one coordinate, in which sign descent moves to and fro."""
    ones = np.ones(2, dtype=np.int64)
    return LabelledFeatures(np.array([[1.0, 0.3], [1.0, -0.3]]), 0 * ones, ones, 2, seed=0)


WITNESSES: dict[str, dict[str, Subject]] = {
    "steepest-one-input": {
        "to and fro": _from(case([[1.0, 1.0], [1.0, -1.0]], [1.0, 0.0, 0.0], "logistic"), [0.0, 1e-3], 4),
        "far to and fro": _from(case([[1.0, 3.0], [1.0, -3.0]], [1.0, 0.0, 0.0], "correlation"), [0.0, 0.01], 0),
    },
    "steepest-from-a-margin": {
        "equal but for coefficients": _from(
            case([[1.0, 2.0], [1.0, -2.0]], [1.0, 0.0, 0.5], "correlation"), [4.69427712, 0.1765209], 0
        )
    },
    "steepest-multiclass": {"opposed features": _opposed_features()},
}
"""For each statement, cases that are tried before any others; in most, sign descent moves to and fro."""
