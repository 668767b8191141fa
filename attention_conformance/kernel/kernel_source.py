"""The name of a kernel, ``MODULE:CALLABLE``, and options: plain data from which any process can load the kernel."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar

from attention_conformance.kernel.callable_import import import_callable
from reference_attention.errors import InvalidInput
from theorems.core.implementation import Implementation
from theorems.core.under_test import UnderTest
from theorems.run.worker import is_worker


@dataclass(frozen=True)
class KernelSource(UnderTest):
    """A kernel's name and options.

    Attributes:
        source, dtype, interface, device, deep: as in :func:`attention_conformance.kernel.kernel_loader.probe`.
        fail_fast: whether to stop trying all other capabilities once a failing call falsifies one capability.
    """

    by_name: ClassVar[bool] = True

    source: str
    dtype: str | None = None
    interface: str | None = None
    device: str | None = None
    deep: bool = False
    fail_fast: bool = False

    def prepare(self) -> None:
        """Import torch and those modules of the suite that call kernels."""
        with suppress(InvalidInput):  # if torch is missing, loading the kernel reports it
            import_module("attention_conformance.kernel.kernel_loader")

    def find(self) -> None:
        """Import the kernel, or, in a worker process that has its kernel on the CPU, start the kernel's process.

        Raises:
            InvalidInput: the kernel cannot be imported, or torch is missing.
        """
        import_module("attention_conformance.kernel.kernel_loader")
        if is_worker() and self.device in (None, "cpu"):
            import_module("attention_conformance.kernel_process.remote_kernel").remote_kernel(self.source)
        else:
            import_callable(self.source)

    def load(self) -> Implementation:
        """Return the kernel, imported and probed; each process does this once.

        Raises:
            InvalidInput: the source cannot be imported, or is no kernel.
        """
        return _load(self)


@lru_cache(maxsize=4)
def _load(source: KernelSource) -> Implementation:
    from attention_conformance.kernel.kernel_loader import kernel_named, remote_kernel_named  # imports torch

    load = remote_kernel_named if is_worker() else kernel_named
    kernel = load(
        source.source,
        source.dtype,
        interface=source.interface,
        device=source.device,
        deep=source.deep,
        compiles_later=source.fail_fast,
    )
    return replace(kernel.as_implementation(), fail_fast=source.fail_fast)


def under_test_of(
    kernel: Any,
    dtype: str | None = None,
    interface: str | None = None,
    device: str | None = None,
    *,
    deep: bool = False,
    fail_fast: bool = False,
) -> UnderTest:
    """Return the object that a run verifies, for a kernel given as a name or an object.

    A kernel given by name is loaded in the process that runs it; an object is probed in this process. The other
    arguments are the attributes of :class:`KernelSource`; ``deep`` and ``fail_fast`` have no effect on an object.

    Raises:
        InvalidInput: the object is no kernel.
    """
    if isinstance(kernel, str):
        return KernelSource(kernel, dtype, interface, device, deep, fail_fast)
    from attention_conformance.kernel.kernel_loader import kernel_of  # imports torch

    return kernel_of(kernel, dtype, interface=interface, device=device).as_implementation()
