"""Detection of a user's file that shadows one of our packages."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = ("theorems", "attention_conformance", "generators", "reference_attention")
HOME = Path(__file__).resolve().parents[1]
"""Folder that contains our packages: the root of the repository, or Python's folder of installed packages."""


def shadowing_warning(*, anew: bool = False) -> str:
    """Return a message about a file that is imported in place of one of our packages; empty if there is none.

    Args:
        anew: whether to search ``sys.path`` as a new process would, rather than look at the modules imported so far.
    """
    for name in PACKAGES:
        origin = _origin(name, anew)
        if origin and Path(origin).resolve() != HOME / name / "__init__.py":
            return (
                f"{origin} hides the package {name!r} of max-margin-theorems; rename that file, or run the command in"
                " another directory."
            )
    return ""


def _origin(name: str, anew: bool) -> str | None:
    """Return the path of the file that ``import name`` runs; None for a folder without ``__init__.py``."""
    if not anew and name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    # Search with the finders: importlib.util.find_spec would look in sys.modules first.
    specs = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec.origin for spec in specs if spec is not None), None)
