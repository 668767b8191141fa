"""What the results of a run depend on, for its journal: options, data, sources, libraries."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import reference_attention
from generators.user_data import Given, as_text
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import OnKernel
from theorems.core.version import version, version_of
from theorems.run.description import Heading

LIBRARIES = ("numpy", "scipy", "hypothesis", "python-flint", "scikit-learn", "torch")
"""Another version may draw other cases, or compute other last digits."""
PACKAGES = ("reference_attention", "generators", "theorems")


def identity(command: str, **options: Any) -> dict[str, Any]:
    """The run of a command with those options, by name; two runs of one identity have the same results."""
    return {"command": command, **options, **surroundings()}


def surroundings() -> dict[str, Any]:
    """What the results of every run here depend on: our version, our sources, the libraries."""
    return {"version": version(), "source": _source(), "libraries": _libraries()}


def of_headings(chosen: Sequence[Heading]) -> dict[str, Any]:
    """Statements by id, and the files of those that are somebody's own."""
    return {"statements": [one.id for one in chosen], **of_files(one.file for one in chosen if one.file)}


def of_files(paths: Iterable[str]) -> dict[str, Any]:
    """The files that somebody's own code stands in, by what they hold."""
    files = {path: digest_of_file(path) for path in paths}
    return {"files": files} if files else {}


def of_data(given: Given | None) -> str | None:
    """Data by what they are, whatever they are called."""
    if given is None:
        return None
    return hashlib.sha256(f"{given.failed} {as_text(given.case)}".encode()).hexdigest()[:16]


def of_implementation(under_test: Implementation) -> str | None:
    """A kernel by its name, what it computes in, and the file that it stands in; the reference is our own source."""
    if under_test is REFERENCE:
        return None
    if not isinstance(under_test, OnKernel):
        return under_test.name
    kernel = under_test.kernel
    try:
        held = _digest([Path(inspect.getsourcefile(kernel.call) or "")])
    except (TypeError, OSError):
        held = "built in"
    return f"{kernel.name} {kernel.dtype} {held}"


def digest_of_file(file: str) -> str:
    """Of what a file holds; empty if it cannot be read."""
    try:
        return _digest([Path(file)])
    except OSError:
        return ""


@cache
def _source() -> str:
    home = Path(reference_attention.__file__).parents[1]
    return _digest(file for package in PACKAGES for file in sorted((home / package).rglob("*.py")))


@cache
def _libraries() -> dict[str, str]:
    return {name: version_of(name) for name in LIBRARIES}


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
