"""The object behind ``MODULE:CALLABLE`` or ``path.py:CALLABLE``, as a callable on torch tensors; ``jax:`` or ``numpy:``
before it say what it is a callable on."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from max_margin_theorems.hidden import shadowing_warning
from reference_attention.errors import InvalidInput
from reference_attention.files import read_bytes

SIGNATURE = "(query (…, 1, d), keys (…, T, d), values (…, T, m)) → (…, 1, m)"
LIBRARIES = ("jax", "numpy")
"""What may stand before ``MODULE:CALLABLE``."""


def import_callable(source: str) -> Callable[..., Any]:
    """The object of that name; one of another library as a callable on torch tensors.

    Raises:
        InvalidInput: no colon, a module that does not import, no such attribute, not a callable, a class; a file of the
            working directory that hides one of our packages; a library that is not installed.
    """
    library, _, named = source.partition(":")
    if ":" in named and library in LIBRARIES:
        adapter = importlib.import_module(f"attention_conformance.kernel.{library}_adapter")
        adapted: Callable[..., Any] = adapter.on_tensors(import_callable(named))
        return adapted
    module, colon, path = source.partition(":")
    if not (colon and module and path):
        raise InvalidInput(f"--attention: {source!r} is not MODULE:CALLABLE; give e.g. my_package.attention:kernel.")
    is_file = module.endswith(".py")
    if "/" in module and not is_file:
        raise InvalidInput(
            f"--attention: {module!r} is no module; give the name that it is imported by, or path.py:NAME."
        )
    _look_in_the_working_directory_first()
    try:
        found: Any = _module_in(Path(module)) if is_file else importlib.import_module(module)
    except InvalidInput as error:
        raise InvalidInput(f"--attention: {error}") from None
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise InvalidInput(
            f"--attention: module {module!r} does not import, {type(error).__name__}: {said}; it is looked for in the"
            " working directory and among the installed packages."
        ) from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise InvalidInput(f"--attention: {module!r} has no {path!r}; give the name of a callable in it.")
        found = getattr(found, part)
    check_callable(found, source)
    return found


def _module_in(file: Path) -> ModuleType:
    """The module of a file, run once as long as it is the same.

    Raises:
        InvalidInput: it cannot be read.
    """
    path = file.resolve()
    name = f"attention_in_{hashlib.sha256(read_bytes(path, 'a Python file') + os.fsencode(path)).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        made = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(made)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _look_in_the_working_directory_first() -> None:
    """Also for the processes that share the work: they are handed this ``sys.path``."""
    folder = os.getcwd()
    if folder in sys.path:
        return
    sys.path.insert(0, folder)
    said = shadowing_warning(anew=True)
    if said:
        sys.path.remove(folder)
        raise InvalidInput(f"--attention: {said}")


def check_callable(found: object, name: str) -> None:
    """Refuse what cannot be called, and a class.

    Raises:
        InvalidInput: it is one of these.
    """
    if inspect.isclass(found):
        raise InvalidInput(f"--attention: {name} is a class; give a function, or an instance that can be called.")
    if not callable(found):
        raise InvalidInput(
            f"--attention: {name} is of type {type(found).__name__} and cannot be called; give {SIGNATURE}."
        )
