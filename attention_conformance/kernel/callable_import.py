"""Import ``MODULE:CALLABLE`` or ``path.py:CALLABLE`` as a callable on torch tensors.

A prefix, as in ``jax:MODULE:CALLABLE`` or ``numpy:MODULE:CALLABLE``, names the library whose arrays the callable takes.
"""

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
"""Prefixes that may precede ``MODULE:CALLABLE``: the libraries whose arrays a callable may take instead of tensors."""
MODEL = "ModelNew"
"""The torch module's class in a KernelBench file; ``get_init_inputs()`` in the file returns the class's arguments."""


def import_callable(source: str) -> Callable[..., Any]:
    """Return the callable that a source ``MODULE:CALLABLE`` names, adapted to torch tensors if it takes other arrays.

    Raises:
        InvalidInput: the source has no colon; the module cannot be imported, or has no such attribute; the attribute is
            not a callable, or is a class (other than KernelBench's ModelNew, which is instantiated if possible); a file
            of the working directory hides one of our packages; or a library is not installed.
    """
    library, _, name_in_library = source.partition(":")
    if ":" in name_in_library and library in LIBRARIES:
        adapter = importlib.import_module(f"attention_conformance.kernel.{library}_adapter")
        adapted: Callable[..., Any] = adapter.on_tensors(import_callable(name_in_library))
        return adapted
    module, colon, path = source.partition(":")
    if not (colon and module and path):
        raise InvalidInput(f"--attention: {source!r} is not MODULE:CALLABLE; give e.g. my_package.attention:kernel.")
    is_file = module.endswith(".py")
    if "/" in module and not is_file:
        raise InvalidInput(f"--attention: {module!r} is not a module name; give MODULE:NAME or path.py:NAME.")
    _look_in_the_working_directory_first()
    value: Any
    try:
        imported = value = _module_in(Path(module)) if is_file else importlib.import_module(module)
    except InvalidInput as error:
        raise InvalidInput(f"--attention: {error}") from None
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise InvalidInput(
            f"--attention: module {module!r} does not import, {type(error).__name__}: {text}; it must be in the"
            " working directory or installed."
        ) from None
    for part in path.split("."):
        if not hasattr(value, part):
            raise InvalidInput(f"--attention: {module!r} has no {path!r}; give the name of a callable in it.")
        value = getattr(value, part)
    if path == MODEL and inspect.isclass(value):
        value = _model(value, imported, source)
    check_callable(value, source)
    checked: Callable[..., Any] = value
    return checked


def _model(made_by: Callable[..., Any], module: ModuleType, source: str) -> Any:
    """Return an instance of KernelBench's torch module, created with the arguments that its file defines.

    Raises:
        InvalidInput: the file has no ``get_init_inputs``, the instance cannot be created, or its forward pass does not
            take three tensors.
    """
    arguments = getattr(module, "get_init_inputs", None)
    if not callable(arguments):
        raise InvalidInput(
            f"--attention: {source} needs a function get_init_inputs() in its file that returns the class's arguments."
        )
    try:
        model = made_by(*arguments())
        parameters = inspect.signature(model.forward).parameters.values()
        required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    except Exception as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise InvalidInput(
            f"--attention: {source} cannot be created with get_init_inputs(), {type(error).__name__}: {text}."
        ) from None
    if len(required) != 3:
        raise InvalidInput(
            f"--attention: the forward pass of {source} takes ({', '.join(required)}), but must take query,"
            " key and value; give the function that it calls with these."
        )
    return model.eval() if hasattr(model, "eval") else model


def _module_in(file: Path) -> ModuleType:
    """Return the module that a file defines; run the file only if it was not yet run with its present content.

    Raises:
        InvalidInput: the file cannot be read.
    """
    path = file.resolve()
    name = f"attention_in_{hashlib.sha256(read_bytes(path, 'a Python file') + os.fsencode(path)).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _look_in_the_working_directory_first() -> None:
    """Put the working directory first in ``sys.path``, which worker processes inherit.

    Raises:
        InvalidInput: a file of the working directory hides one of our packages.
    """
    folder = os.getcwd()
    if folder in sys.path:
        return
    sys.path.insert(0, folder)
    warning = shadowing_warning(anew=True)
    if warning:
        sys.path.remove(folder)
        raise InvalidInput(f"--attention: {warning}")


def check_callable(value: object, name: str) -> None:
    """Refuse an object that cannot be called, and a class.

    Raises:
        InvalidInput: the object cannot be called, or is a class.
    """
    if inspect.isclass(value):
        raise InvalidInput(f"--attention: {name} is a class; give a function, or an instance that can be called.")
    if not callable(value):
        raise InvalidInput(
            f"--attention: {name} is of type {type(value).__name__} and cannot be called; give {SIGNATURE}."
        )
