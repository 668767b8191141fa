"""A mutated function in the place of the one that every module has imported: its code object is exchanged."""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

Live = Mapping[tuple[str, str, int], Sequence[FunctionType]]
"""The functions that there are, by file, qualified name and first line: also those inside properties and wrappers."""


def outermost(qualified: str) -> str:
    """The function in which another one is defined."""
    return qualified.split(".<locals>")[0]


def live_functions(folder: Path) -> Live:
    """Those that were defined in a folder."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(folder)):
            found.setdefault(_key(one.__code__), []).append(one)
    return found


def is_there(live: Live, path: Path, function: str) -> bool:
    """Whether there is a function of that name."""
    return any(file == str(path) and outermost(name) == function for file, name, _ in live)


def exchange(live: Live, path: Path, mutated: str, function: str) -> None:
    """Give the functions of that name their mutated code."""
    for code in codes(compile(mutated, str(path), "exec", dont_inherit=True)):
        if outermost(code.co_qualname) == function:
            for one in live.get(_key(code), ()):
                # What is defined in a function has the variables of that.
                if one.__code__.co_freevars == code.co_freevars:
                    one.__code__ = code


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects in one, and itself."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes(one)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


class Mutated(importlib.abc.MetaPathFinder):
    """Imports one file with another source."""

    def __init__(self, root: Path, file: str, source: str) -> None:
        parts = Path(file).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.path, self.source = root / file, source

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None:
            found.loader = _Loader(name, str(self.path), self.source)
        return found


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> Any:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def forget(packages: Sequence[str]) -> None:
    """Unload packages, so that they are imported anew."""
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            del sys.modules[name]
