"""Shapes and dtypes in signatures are checked at every call while the tests run (not in the benchmarks)."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies
from jaxtyping import install_import_hook

# The function that a composite strategy draws with is no instance of Hypothesis' own protocol for it.
hypothesis.strategies.DrawFn = Callable  # type: ignore[misc, assignment]

install_import_hook(("attention", "generators", "theorems"), "beartype.beartype")
