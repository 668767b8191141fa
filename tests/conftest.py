"""Shapes and dtypes in signatures are checked at every call while the tests run (not in the benchmarks)."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies
from jaxtyping import install_import_hook

# The function that a composite strategy draws with is no instance of Hypothesis' own protocol for it.
hypothesis.strategies.DrawFn = Callable  # type: ignore[misc, assignment]

INNER_LOOPS = {
    "attention.arc_length",
    "attention.ball_search",
    "attention.certificate",
    "attention.derivatives",
    "attention.exact",
    "attention.excess",
    "attention.float_solution",
    "attention.iteration",
    "attention.least_norm",
    "attention.losses",
}
"""Called thousands of times by one call of a module that is checked: checking them too costs most of the tests' time."""

ROOT = Path(__file__).parent.parent
CHECKED = [
    f"{package}.{module.name}"
    for package in ("attention", "generators", "theorems")
    for module in pkgutil.iter_modules([str(ROOT / package)])
]

install_import_hook([name for name in CHECKED if name not in INNER_LOOPS], "beartype.beartype")
