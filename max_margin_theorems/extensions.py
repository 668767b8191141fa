"""Extensions of the suite, found by entry points, such as the conformance suite for attention kernels.

    [project.entry-points."max_margin_theorems.extensions"]
    my-extension = "my_extension:EXTENSION"

The suite imports only those modules of an extension that the extension's :class:`Extension` object names.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from max_margin_theorems.papers import entries

GROUP = "max_margin_theorems.extensions"


@dataclass(frozen=True)
class Extension:
    """Names of the modules and objects of an extension; each is imported when it is first needed.

    Attributes:
        formats: the module that registers the extension's formats of data (:class:`generators.subject.FileFormat`).
        statements: ``module:NAME`` of a function that returns the extension's statements by id.
        kernels: the module that implements ``--attention`` (:class:`theorems.run.kernel_suite.KernelSuite`).
    """

    formats: str = ""
    statements: str = ""
    kernels: str = ""


def object_at(place: str) -> Any:
    """Import the module in ``place``, ``module:NAME``, and return the object with that name."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all installed extensions in the order of their names.

    Raises:
        TypeError: an entry point does not refer to an :class:`Extension`.
    """
    objects = [object_at(entry.value) for entry, _ in sorted(entries(GROUP), key=lambda pair: pair[0].name)]
    for extension in objects:
        if not isinstance(extension, Extension):
            raise TypeError(f"an entry point of {GROUP} leads to a {type(extension).__name__}, not to an Extension")
    return tuple(objects)


@cache
def import_formats() -> None:
    """Import the modules of extensions that register formats of data files."""
    for extension in extensions():
        if extension.formats:
            importlib.import_module(extension.formats)
