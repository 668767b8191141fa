"""What results depend on: of a run, for its journal; of a unit, as the address of its result; whether all is here."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import reference_attention
from generators.user_data import Given, as_text
from max_margin_theorems.papers import folders_of, papers
from reference_attention.files import to_json
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import OnKernel
from theorems.core.version import version, version_of
from theorems.run.description import Heading
from theorems.run.journal import key_of

LIBRARIES = ("numpy", "scipy", "hypothesis", "python-flint", "scikit-learn", "torch")
"""Another version may draw other cases, or compute other last digits."""
PACKAGES = ("reference_attention", "generators", "theorems", "attention_conformance")
OF_THE_RUN = ("statements", "examples", "faults", "figures")
"""What an identity says of all units together; each unit has its own share of it among its fields."""
BESIDE = ("so_far", "lost", "isolated", "title")
"""Fields of a unit that its result does not depend on."""
_PLAIN = (str, int, float, bool, type(None), tuple)
SHARED = ("version", "source", "libraries", "papers", "files")
"""Of the identity of a run what each worker is to have, too."""


def identity(command: str, **options: Any) -> dict[str, Any]:
    """The run of a command with those options, by name; two runs of one identity have the same results."""
    return {"command": command, **options, **surroundings()}


def surroundings() -> dict[str, Any]:
    """What the results of every run here depend on: our version, our sources, the libraries, papers of others."""
    here = {"version": version(), "source": _source(), "libraries": _libraries()}
    return here | ({"papers": _papers()} if _papers() else {})


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


def address(unit: Any, run: Mapping[str, Any]) -> str:
    """The address of the result of a unit.

    Args:
        unit: a dataclass; its plain fields count, what need not be done again does not.
        run: :func:`identity`, with sources, libraries, data and kernel.
    """
    shared = {name: value for name, value in run.items() if name not in OF_THE_RUN}
    own = {one.name: getattr(unit, one.name) for one in fields(unit) if one.name not in BESIDE}
    plain = {name: value for name, value in own.items() if isinstance(value, _PLAIN)}
    text = to_json({"run": shared, "unit": key_of(unit), "fields": plain})
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def difference(run: Mapping[str, Any]) -> str:
    """What is different here; empty if nothing is."""
    here = surroundings()
    for name, value in run.items():
        if name == "files":
            for file, digest in value.items():
                if digest_of_file(file) != digest:
                    return f"has not the same {file}; put it on a file system that all workers see"
        elif here.get(name) != value and (another := _mismatch(name, value, here.get(name))):
            return f"has another {another}; install there what is installed here, and restart it"
    return ""


def _mismatch(name: str, wanted: Any, found: Any) -> str:
    if isinstance(wanted, Mapping):
        found = found or {}
        one = next(each for each in wanted if found.get(each) != wanted[each])
        return f"{one} ({found.get(one)} there, {wanted[one]} here)"
    return f"{name} of max-margin-theorems ({found} there, {wanted} here)"


@cache
def _source() -> str:
    home = Path(reference_attention.__file__).parents[1]
    return _digest(file for package in PACKAGES for file in sorted((home / package).rglob("*.py")))


@cache
def _libraries() -> dict[str, str]:
    return {name: version_of(name) for name in LIBRARIES}


@cache
def _papers() -> dict[str, str]:
    """What packages with papers hold, by name and version; ours is among our sources."""
    tops = {(one.package, one.top) for one in papers() if one.package}
    held = {package: files for package, top in sorted(tops) if (files := _files_of(top))}
    return {package: _digest(files) for package, files in held.items()}


def _files_of(top: str) -> list[Path]:
    inside = (file for folder in folders_of(top) for file in sorted(folder.rglob("*")))
    return [file for file in inside if file.is_file() and file.suffix != ".pyc"]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
