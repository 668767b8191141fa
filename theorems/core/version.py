"""Versions: of this package, and of the libraries that numbers come from."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version


def version() -> str:
    """As installed; ``not installed`` when run from a checkout."""
    return version_of("max-margin-theorems")


def version_of(name: str) -> str:
    """Of a distribution; ``not installed`` where it is not."""
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return "not installed"
