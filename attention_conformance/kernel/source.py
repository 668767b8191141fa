"""A kernel by its name, ``MODULE:CALLABLE``: plain data, until it is loaded in the process that calls it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from attention_conformance.kernel.importing import import_callable
from reference_attention.errors import InvalidInput
from theorems.core.on_kernel import OnKernel


@dataclass(frozen=True)
class KernelSource:
    """The arguments of :func:`attention_conformance.kernel.loading.kernel_named`."""

    source: str
    dtype: str | None = None
    interface: str | None = None
    device: str | None = None
    deep: bool = False

    def prepare(self) -> None:
        """Import what is ours, and torch."""
        with suppress(InvalidInput):  # it is missing: said when the kernel is loaded
            import_module("attention_conformance.kernel.loading")

    def find(self) -> None:
        """Import the kernel.

        Raises:
            InvalidInput: it cannot be imported, or there is no torch for it to compute with.
        """
        import_module("attention_conformance.kernel.loading")
        import_callable(self.source)

    def load(self) -> OnKernel:
        """Import and try the kernel, once in a process.

        Raises:
            InvalidInput: it cannot be imported, or is no kernel.
        """
        return _load(self)


@lru_cache(maxsize=4)
def _load(source: KernelSource) -> OnKernel:
    from attention_conformance.kernel.loading import kernel_named  # imports torch

    return kernel_named(
        source.source, source.dtype, interface=source.interface, device=source.device, deep=source.deep
    ).as_implementation()


def under_test_of(
    kernel: Any, dtype: str | None = None, interface: str | None = None, device: str | None = None
) -> KernelSource | OnKernel:
    """What is verified of a kernel: one given by its name is loaded where it runs, an object is tried here.

    Raises:
        InvalidInput: the object is no kernel.
    """
    if isinstance(kernel, str):
        return KernelSource(kernel, dtype, interface, device)
    from attention_conformance.kernel.loading import kernel_of  # imports torch

    return kernel_of(kernel, dtype, interface=interface, device=device).as_implementation()
