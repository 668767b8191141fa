"""Whether a worker has the sources and the libraries that a result depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from theorems.run.identity import digest_of_file, surroundings

SHARED = ("version", "source", "libraries", "files")


def needed_identity(run: Mapping[str, Any]) -> dict[str, Any]:
    """Of the identity of a run what each worker is to have too."""
    return {name: run[name] for name in SHARED if name in run}


def difference(run: Mapping[str, Any]) -> str:
    """What is different here; empty if nothing is."""
    here = surroundings()
    for name, value in run.items():
        if name == "files":
            for file, digest in value.items():
                if digest_of_file(file) != digest:
                    return f"has not the same {file}; put it on a file system that all workers see"
        elif here.get(name) != value:
            another = _mismatch(name, value, here[name])
            return f"has another {another}; install there what is installed here, and restart it"
    return ""


def _mismatch(name: str, wanted: Any, found: Any) -> str:
    if isinstance(wanted, Mapping):
        one = next(each for each in wanted if found.get(each) != wanted[each])
        return f"{one} ({found.get(one)} there, {wanted[one]} here)"
    return f"{name} of max-margin-theorems ({found} there, {wanted} here)"
