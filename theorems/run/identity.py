"""Identities of runs, addresses of results, and differences between two machines.

The identity of a run, a JSON object, is stored in the run's journal. The address of the result of a unit of work (such
as a statement on its cases) is a digest. Both depend on everything on which results depend.
"""

from __future__ import annotations

import hashlib
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
from theorems.core.version import version, version_of
from theorems.run.description import Heading
from theorems.run.journal import key_of

LIBRARIES = ("numpy", "scipy", "hypothesis", "python-flint", "scikit-learn", "torch")
"""Libraries whose versions are part of an identity, since another version may draw other cases or round differently."""
PACKAGES = ("reference_attention", "generators", "theorems", "attention_conformance")
OF_THE_RUN = ("statements", "examples", "figures")
"""Entries of a run's identity that describe all units of work together; each unit has its own values of these as
fields."""
BESIDE = ("so_far", "lost", "isolated", "title")
"""Fields of a unit of work on which its result does not depend."""
_PLAIN_TYPES = (str, int, float, bool, type(None), tuple)
SHARED = ("version", "source", "libraries", "papers", "files")
"""Entries of a run's identity that must be the same on every worker."""


def identity(command: str, **options: Any) -> dict[str, Any]:
    """Return the identity of a run: command, options, digest of the sources, versions of libraries.

    Equal identities give equal results.
    """
    return {"command": command, **options, **surroundings()}


def surroundings() -> dict[str, Any]:
    """Return what every run on this machine depends on: our version and sources, libraries, other papers.

    Sources and papers are given by digests, libraries by versions.
    """
    values = {"version": version(), "source": _source(), "libraries": _libraries()}
    return values | ({"papers": _papers()} if _papers() else {})


def of_headings(chosen: Sequence[Heading]) -> dict[str, Any]:
    """Return the ids of the statements, and the digests of the users' files that define some of the statements."""
    return {
        "statements": [heading.id for heading in chosen],
        **of_files(heading.file for heading in chosen if heading.file),
    }


def of_files(paths: Iterable[str]) -> dict[str, Any]:
    """Return the digests of the user's files by path, under the key "files"; an empty object without files."""
    files = {path: digest_of_file(path) for path in paths}
    return {"files": files} if files else {}


def of_data(data: Given | None) -> str | None:
    """Return a digest of the data, on which the name of their file has no influence; None without data."""
    if data is None:
        return None
    return hashlib.sha256(f"{data.failed} {as_text(data.case)}".encode()).hexdigest()[:16]


def of_implementation(under_test: Implementation) -> str | None:
    """Return a text that identifies an implementation; None for the reference, which is part of our sources."""
    return None if under_test is REFERENCE else under_test.identity()


def digest_of_file(file: str) -> str:
    """Return a digest of a file's content; empty if the file cannot be read."""
    try:
        return _digest([Path(file)])
    except OSError:
        return ""


def address(unit: Any, run: Mapping[str, Any]) -> str:
    """Return the address of a unit's result: a digest, in 32 hexadecimal digits, of all on which the result depends.

    Args:
        unit: the unit, a dataclass; the digest covers its id and its fields that are numbers, strings or tuples, except
            :data:`BESIDE`.
        run: the :func:`identity` of the unit's run, with sources, libraries, data and kernel.
    """
    shared = {name: value for name, value in run.items() if name not in OF_THE_RUN}
    values = {field.name: getattr(unit, field.name) for field in fields(unit) if field.name not in BESIDE}
    plain = {name: value for name, value in values.items() if isinstance(value, _PLAIN_TYPES)}
    text = to_json({"run": shared, "unit": key_of(unit), "fields": plain})
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def difference(run: Mapping[str, Any]) -> str:
    """Return how this machine differs from a run's identity, as the end of a sentence; empty if they agree."""
    current = surroundings()
    for name, value in run.items():
        if name == "files":
            for file, digest in value.items():
                if digest_of_file(file) != digest:
                    return f"has a different {file}; put it on a file system that all workers see"
        elif current.get(name) != value and (mismatch := _mismatch(name, value, current.get(name))):
            return f"has another {mismatch}; install there what is installed here, and restart it"
    return ""


def _mismatch(name: str, current: Any, recorded: Any) -> str:
    if isinstance(current, Mapping):
        recorded = recorded or {}
        key = next(name for name in current if recorded.get(name) != current[name])
        return f"{key} ({recorded.get(key)} there, {current[key]} here)"
    return f"{name} of max-margin-theorems ({recorded} there, {current} here)"


@cache
def _source() -> str:
    home = Path(reference_attention.__file__).parents[1]
    return _digest(file for package in PACKAGES for file in sorted((home / package).rglob("*.py")))


@cache
def _libraries() -> dict[str, str]:
    return {name: version_of(name) for name in LIBRARIES}


@cache
def _papers() -> dict[str, str]:
    """Return the digest of each other installed package with papers, by the package's name and version."""
    tops = {(paper.package, paper.top) for paper in papers() if paper.package}
    by_package = {package: files for package, top in sorted(tops) if (files := _files_of(top))}
    return {package: _digest(files) for package, files in by_package.items()}


def _files_of(top: str) -> list[Path]:
    inside = (file for folder in folders_of(top) for file in sorted(folder.rglob("*")))
    return [file for file in inside if file.is_file() and file.suffix != ".pyc"]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
