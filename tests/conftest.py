"""Shapes and dtypes in signatures are checked at every call while the tests run (not in the benchmarks)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies
from jaxtyping import install_import_hook

# The function that a composite strategy draws with is no instance of Hypothesis' own protocol for it.
hypothesis.strategies.DrawFn = Callable  # type: ignore[misc, assignment]

# A run in the background inherits that Ctrl-C is ignored; tests and the commands they start are about what it does.
signal.signal(signal.SIGINT, signal.default_int_handler)

INNER_LOOPS = {
    "reference_attention.exact",
    "reference_attention.floats",
    "reference_attention.loss",
    "reference_attention.losses",
    "reference_attention.paths.ball_search",
    "reference_attention.paths.excess",
    "reference_attention.paths.joint",
    "reference_attention.paths.joint_curvature",
    "reference_attention.paths.joint_newton",
    "reference_attention.paths.local_path",
    "reference_attention.pieces",
    "reference_attention.risk",
    "reference_attention.svm.certificate",
    "reference_attention.svm.float_solution",
    "reference_attention.svm.least_norm",
    "reference_attention.training.arc_length",
    "reference_attention.training.derivatives",
    "reference_attention.training.iteration",
    "reference_attention.training.joint_descent",
    "theorems.rounding.bounded.arithmetic",
    "theorems.rounding.bounded.array",
    "theorems.token_selection.local_paths.local_constants",
    "theorems.token_selection.local_paths.local_correlation",
}
"""Called thousands of times by one call of a module that is checked, or making functions by the thousand, each of
which would be wrapped: checking them too costs most of the tests' time."""

ROOT = Path(__file__).parent.parent
PACKAGES = ("reference_attention", "generators", "theorems")
CHECKED = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.stem != "__init__"
]

install_import_hook([name for name in CHECKED if name not in INNER_LOOPS], "beartype.beartype")
