"""``torch.compile`` in the process that calls the kernel: backends, compilation, callables of other libraries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from attention_conformance.calls.attention_call import State

BACKENDS: Mapping[State, str] = MappingProxyType({State.COMPILED: "aot_eager", State.MACHINE_CODE: "inductor"})
"""The backend of ``torch.compile`` for each state of a call that is to be compiled.

``aot_eager`` traces, removes mutation and differentiates ahead of time as ``inductor`` does, but generates no code.
Therefore ``aot_eager`` takes a tenth of a second, and ``inductor`` takes seconds.
"""
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {"suppress_errors": False, "automatic_dynamic_local_pgo": False, "automatic_dynamic_remote_pgo": False}
)
"""The compiler's settings: raise errors instead of running uncompiled code; ignore sizes seen in other processes."""
OTHERS = ("jax", "tinygrad", "tensorflow")
"""Libraries whose kernels ``torch.compile`` cannot compile; the interface, a prefix or imports show their use."""


@contextmanager
def compile_callable(call: Callable[..., Any], backend: str) -> Iterator[Callable[..., Any]]:
    """Yield the callable compiled by ``torch.compile``; clear all of PyTorch's compilations before and after."""
    import torch._dynamo  # takes a second, so it is imported only here

    torch._dynamo.reset()
    settings = torch._dynamo.config.patch(**SETTINGS)
    try:
        with settings, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that code it cannot trace runs uncompiled
            yield torch.compile(call, backend=backend)
    finally:
        torch._dynamo.reset()


def calls_other_library(call: Callable[..., Any]) -> bool:
    """Return whether the callable's module imports a library of :data:`OTHERS`, or the callable is compiled already."""
    names = getattr(call, "__globals__", {}).values()
    roots = {str(getattr(value, "__name__", "")).split(".")[0] for value in names if type(value).__name__ == "module"}
    return bool(roots & {*OTHERS}) or hasattr(call, "_torchdynamo_orig_callable")


def number_of_graphs() -> int:
    """Return the number of graphs that ``torch.compile`` has compiled in this process."""
    import torch._dynamo.utils

    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
