"""Statements in a user's Python file, named ``path.py:name``: the file is run, and its statements are collected.

The id contains the path, so that a worker process, which receives only the id, can read the file, too. Such a file
cannot add a statement to the suite, or hide or replace one.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import read_bytes
from theorems.core.check import line_in
from theorems.core.statement import Statement
from theorems.run.registry.suite import statements


def is_in_a_file(id: str) -> bool:
    """Return whether an id names a statement in a user's file: ``path.py:name``, or ``path.py`` without the name."""
    return id.endswith(".py") or ".py:" in id


def statement_in_file(id: str) -> Statement:
    """Return the statement that ``path.py:name`` names, where name is the statement's variable or id.

    Raises:
        InvalidInput: there is no such file, running it fails (the message names the line), the file does not define the
            name, or the name is not a statement's.
    """
    path, name = parts_of(id)
    text = _text(Path(path), "a statement")
    file = _load(path, str(Path(path).resolve()), text)
    statement = file.find(name)
    return replace(statement, id=f"{path}:{statement.id}", file=path)


def parts_of(id: str) -> tuple[str, str]:
    """Return path and name of ``path.py:name``; the name is empty if it is missing."""
    path, _, name = id.rpartition(":") if ".py:" in id else (id, "", "")
    return os.path.normpath(path), name


def names_in_file(path: str, kind: str) -> dict[str, Any]:
    """Run a file and return its global variables by name; a file that has run with the same text is not run again.

    Args:
        path: the path of the file, as error messages name it.
        kind: what the file should define, such as "a statement", for error messages.

    Raises:
        InvalidInput: there is no such file, or running it fails (the message names the line).
    """
    text = _text(Path(path), kind)
    return vars(_module(path, str(Path(path).resolve()), text))


@dataclass(frozen=True)
class _File:
    """Content of a user's file: its statements by variable, and for each other variable the kind of its value."""

    path: str
    statements: dict[str, Statement]
    others: dict[str, str]

    def find(self, name: str) -> Statement:
        if name in self.statements:
            return self.statements[name]
        by_id = {statement.id: statement for statement in self.statements.values()}
        if name in by_id:
            return by_id[name]
        names = ", ".join(self.statements) or "none; decorate a function with @statement from theorems.api"
        if not name:
            raise InvalidInput(f"{self.path}: name the statement as {self.path}:NAME; its statements are {names}.")
        if name in self.others:
            raise InvalidInput(
                f"{self.path}: {name!r} is {self.others[name]}, not a statement of this file; its"
                f" statements are {names}."
            )
        raise InvalidInput(f"{self.path}: has no statement {name!r}; its statements are {names}.")


def _text(path: Path, kind: str) -> bytes:
    return read_bytes(path, f"PATH.py:NAME of {kind}")


@lru_cache(maxsize=32)
def _load(path: str, resolved: str, text: bytes) -> _File:
    module = _module(path, resolved, text)
    suite = {id(statement) for statement in statements().values()}
    own_statements = {n: v for n, v in vars(module).items() if isinstance(v, Statement) and id(v) not in suite}
    for statement in own_statements.values():
        if any(statement.id in (theirs.id, *theirs.aliases) for theirs in statements().values()):
            line = getattr(getattr(inspect.unwrap(statement.conclusion), "__code__", None), "co_firstlineno", 0)
            raise InvalidInput(
                f"{path}, line {line}: statement: the id {statement.id!r} is one of the suite's; choose another."
            )
    others = {n: _what(v) for n, v in vars(module).items() if n not in own_statements and not n.startswith("__")}
    ids = [statement.id for statement in {id(statement): statement for statement in own_statements.values()}.values()]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"{path}: two statements have the id {twice!r}; choose another for one of them.")
    return _File(path, own_statements, others)


def _what(value: object) -> str:
    if isinstance(value, Statement):
        return f"the suite's {value.id}"
    return "a function" if callable(value) and not isinstance(value, type) else f"of type {type(value).__name__}"


@lru_cache(maxsize=32)
def _module(path: str, resolved: str, text: bytes) -> ModuleType:
    """Run a file and return the module that this makes; a file that has run with the same text is not run again."""
    # Do not use importlib: it may use outdated bytecode, and tracebacks would show another path than the user gave.
    try:
        code = compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InvalidInput(f"{path}: {where}is no Python ({message}); correct the file.") from None
    digest = hashlib.sha256(resolved.encode()).hexdigest()[:8]
    module = ModuleType(f"theorems_file_{re.sub(r'[^0-9A-Za-z]+', '_', Path(path).stem)}_{digest}")
    module.__file__ = resolved
    folder = str(Path(resolved).parent)
    if folder not in sys.path:
        # Files beside the user's file can be imported; their folder comes last in sys.path, so that they hide no
        # installed module.
        sys.path.append(folder)
    sys.modules[module.__name__] = module
    statements()  # load the suite's tolerances first: the file may use them, but not declare them again
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise InvalidInput(sentence_of(path, error)) from None
    return module


LONGEST = 500
"""Largest number of characters that a message quotes from an exception raised by a user's file."""


def sentence_of(path: str, error: BaseException) -> str:
    """Return the error message for an exception raised by the code of a user's file, with the path and the line."""
    line = line_in(path, error)
    where = f"{path}, line {line}" if line else path
    message = " ".join(str(error).split())
    if isinstance(error, InvalidInput):
        return f"{where}: {message}"
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} …"
    return f"{where}: {type(error).__name__}: {message or 'no message'}; correct the file."
