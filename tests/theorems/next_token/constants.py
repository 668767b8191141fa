"""The named constants in the explicit bounds of next-token prediction, each with a weaker value."""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.next_tokens import NextTokens
from generators.subject import Subject
from tests.theorems.constants.weakening import Constant, faded, half, lowered, scaled
from theorems.next_token import ntp_finite_part, ntp_path, sublevel_bounds
from theorems.next_token.descent_run import DescentRun
from theorems.next_token.limits import Limits
from theorems.next_token.loss_parts import LossParts

UNDER_THE_LOSS = "E is the bound (G1), far above the loss itself: margins exceed their bound by more than (D_c/D_F)τ"
AT_ONE_RADIUS = "e^x − 1 ≤ (e − 1)x is an equality only at x = E/π_min = 1, and few radii of the path are tried"
NEXT = ("ntp-extended-supports",)
NEXT_PATH = ("ntp-path",)
NEXT_DESCENT = ("ntp-descent",)
FINITE = ("ntp-finite-part",)


def _least_margin(original: Any, share: float) -> Any:
    return lambda at: original(at) * (1 - share) + np.min(at.margins, axis=(-2, -1)) * share


def _log_of_itself(original: Any, share: float) -> Any:
    return lambda x: original(x) * (1 - share) + np.log(x) * share


def _itself(original: Any, share: float) -> Any:
    return lambda t: original(t) * (1 - share) + t * share


CONSTANTS: tuple[Constant, ...] = (
    Constant(NEXT, "ω", "ω/2", Limits, "log_total", lowered(half)),
    Constant(NEXT, "K", "0", LossParts, "soft_margin", _least_margin),
    Constant(NEXT_PATH, "τ(s) ≈ √(2s)", "√s", sublevel_bounds, "turn", scaled(0.5**0.5)),
    Constant(NEXT_PATH, "(D_c/D_F)τ", "0", sublevel_bounds, "shift_bound", faded),
    Constant(NEXT_PATH, "log(e^{E/π} − 1)", "log(E/π)", sublevel_bounds, "log_of_expm1", _log_of_itself),
    Constant(
        NEXT_PATH, "κ with e − 1", "1", ntp_path, "kappa", lowered(lambda *of: np.log(np.expm1(1.0))), AT_ONE_RADIUS
    ),
    Constant(NEXT_PATH, "D_c", "0", Limits, "reach", faded),
    Constant(NEXT_DESCENT, "D_c", "0", Limits, "reach", faded, UNDER_THE_LOSS),
    Constant(NEXT_DESCENT, "‖θ_0 − ϑ_r‖²", "½ of it", DescentRun, "start_to_ray", scaled(0.5)),
    Constant(NEXT_DESCENT, "K", "0", LossParts, "soft_margin", _least_margin),
    Constant(FINITE, "λ_H", "2λ_H", Limits, "curvature", scaled(2.0)),
    Constant(FINITE, "(1 − e^{−t})/t", "1", ntp_finite_part, "share_kept", _itself),
    Constant(FINITE, "D_c", "0", Limits, "reach", faded),
)
"""The constants of all statements that have explicit bounds."""


WITNESSES: dict[str, dict[str, Subject]] = {
    "ntp-path": {
        "attention with repeats": NextTokens(
            np.eye(3),
            samples=np.array([[0, 1, 0, -1], [1, 1, 1, 0], [0, 0, 0, -1], [0, -1, -1, -1], [2, 1, 0, -1]]),
            labels=np.array([0, 0, 0, 0, 1]),
            seed=1600,
        )
    }
}
"""For each statement, cases that are tried before any others."""
