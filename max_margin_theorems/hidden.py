"""Detection of a user's file that takes the place of one of our packages."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = ("theorems", "attention_conformance", "generators", "reference_attention")
HOME = Path(__file__).resolve().parents[1]
"""The folder of all our packages: of the checkout, or of the installation."""


def shadowing_warning(*, anew: bool = False) -> str:
    """Return a sentence that names a file imported in place of one of our packages and what to do; empty if none is.

    Args:
        anew: whether to look at what another process with this ``sys.path`` would import, whatever is imported here.
    """
    for name in PACKAGES:
        origin = _origin(name, anew)
        if origin and Path(origin).resolve() != HOME / name / "__init__.py":
            return (
                f"{origin} hides the package {name!r} of max-margin-theorems; rename that file, or run where it is not"
                " found."
            )
    return ""


def _origin(name: str, anew: bool) -> str | None:
    """Return the file that ``import name`` runs; None for a folder without ``__init__.py``, which hides nothing."""
    if not anew and name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    # importlib.util.find_spec would look at sys.modules first.
    specs = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec.origin for spec in specs if spec is not None), None)
