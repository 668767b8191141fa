"""The named constants of the effective bounds of adaptive methods, and a weaker value for each."""

from __future__ import annotations

from tests.theorems.constants.weakening import Constant, faded, scaled
from theorems.adaptive_methods import inexact_steps, minibatch_from_a_margin, minibatch_momentum
from theorems.adaptive_methods.adam_bounds import AdamBounds
from theorems.steepest_descent.geometry import RowGeometry

ROOM = "steps are so short that κ leaves more room than the second-order term uses"
ON_ATTENTION = ("adam-one-input", "adam-from-a-margin")
ADAM = ("adam-max-margin", *ON_ATTENTION)
BATCHES = ("minibatch-momentum", "minibatch-from-a-margin")

CONSTANTS: tuple[Constant, ...] = (
    Constant(("gradient-proxy", *BATCHES, *ADAM), "γ", "1.5 γ", RowGeometry, "margin", scaled(1.5)),
    Constant(("gradient-proxy",), "D", "D/2", RowGeometry, "reach", scaled(0.5)),
    Constant(ADAM, "c", "c/4", AdamBounds, "most", scaled(0.25)),
    Constant(ADAM, "e^{Dℓ + χ} − 1", "0", AdamBounds, "change", faded),
    Constant(("adam-one-input",), "D'²ρ²η²/8", "0", inexact_steps, "second_order", faded, ROOM),
    Constant(("minibatch-momentum",), "tanh(χ/4)", "0", minibatch_momentum, "misplaced", faded),
    Constant(("minibatch-from-a-margin",), "tanh(χ/4)", "0", minibatch_from_a_margin, "misplaced", faded),
)
"""The constants of all statements that have effective bounds."""

WITNESSES: dict[str, dict[str, object]] = {}
"""For each statement, cases that are tried before any others."""
