"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version


def version() -> str:
    """As installed; ``not installed`` when run from a checkout."""
    try:
        return installed_version("max-margin-theorems")
    except PackageNotFoundError:
        return "not installed"
