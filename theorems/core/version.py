"""Versions of this package and of the libraries that it computes with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version


def version() -> str:
    """Return the installed version of this package; ``not installed`` when run from a checkout."""
    return version_of("max-margin-theorems")


def version_of(name: str) -> str:
    """Return the installed version of the distribution ``name``; ``not installed`` if it is missing."""
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return "not installed"
