"""Settings of PyTorch and of the process, which a call of a kernel must not change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import is_
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.kernel.torch_import import torch

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""A function that returns the value of a setting, and a function that sets the value."""

SETTINGS: MappingProxyType[str, Setting] = MappingProxyType(
    {
        "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "inference mode": (torch.is_inference_mode_enabled, lambda value: None),
        "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "seed": (torch.initial_seed, lambda value: None),
        "number of threads": (torch.get_num_threads, torch.set_num_threads),
        "deterministic algorithms": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "precision of float32 products": (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        "working folder": (os.getcwd, os.chdir),
    }
)
"""Settings by name, each with the functions that return and set its value.

The seed is not restored, because the number of earlier random draws is unknown.
"""
PLACES: MappingProxyType[str, Any] = MappingProxyType(
    {
        "torch": torch,
        "torch.nn.functional": torch.nn.functional,
        "torch.Tensor": torch.Tensor,
        "torch.autograd": torch.autograd,
        "numpy": np,
        "os.environ": os.environ,
    }
)
"""Objects whose attributes a call of a kernel must not change; a call may add attributes, such as modules."""


@contextmanager
def restore_settings(changes: list[str]) -> Iterator[None]:
    """Restore the settings that change inside the context, and append their names to ``changes``."""
    settings = {name: get() for name, (get, _) in SETTINGS.items()}
    attributes = {place: dict(_attributes(holder)) for place, holder in PLACES.items()}
    try:
        yield
    finally:
        for name, (get, put) in SETTINGS.items():
            if get() != settings[name]:
                changes.append(name)
                put(settings[name])
        for place, holder in PLACES.items():
            now = _attributes(holder)
            if _is_unchanged(now, attributes[place]):
                continue
            for name, value in attributes[place].items():
                if name not in now or not _is_same(now[name], value):
                    changes.append(f"{place}.{os.fsdecode(name)}")
                    _set_back(holder, name, value)


def _is_unchanged(now: Any, before: dict[Any, Any]) -> bool:
    """Return whether all attributes are the same objects as before, in the same order; a quick first comparison."""
    return len(now) == len(before) and all(map(is_, now.values(), before.values()))


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two values of an attribute are the same object, or equal strings."""
    return a is b or (isinstance(a, str | bytes) and type(a) is type(b) and a == b)


def _attributes(holder: Any) -> Any:
    """Return the attributes of an object by name; for ``os.environ``, the variables by name, as bytes."""
    return vars(holder)["_data"] if isinstance(holder, os._Environ) else vars(holder)


def _set_back(holder: Any, name: str | bytes, value: Any) -> None:
    if isinstance(holder, os._Environ):
        holder[os.fsdecode(name)] = os.fsdecode(value)
        return
    assert isinstance(name, str)
    with suppress(AttributeError, TypeError):  # some of torch's own attributes cannot be set
        setattr(holder, name, value)
