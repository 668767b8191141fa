"""Detection of PyTorch's attention operators that a kernel calls, so that a report can say which code was tested."""

from __future__ import annotations

from torch.autograd.profiler_legacy import profile

from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.kernel.callable_import import LIBRARIES
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_call import KernelError
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from reference_attention.errors import InvalidInput

ATTENTION = ("attention", "attn")
"""Strings that occur in the names of PyTorch's operators that compute attention."""
SIZES = (Sizes(B=2, H=2, G=2, L=1, T=5, E=8, M=8), Sizes(B=1, H=2, G=2, L=64, T=64, E=64, M=64))
"""The sizes of a small call and of a call of usual size, since PyTorch chooses its operator by the sizes."""


def attention_operators(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of PyTorch's attention functions and operators that a kernel calls in its dtype, sorted.

    The result is empty if the kernel calls no such operator, or if calls of operators cannot be observed, as in
    compiled code or other libraries.
    """
    names: set[str] = set()
    if kernel.source.partition(":")[0] in LIBRARIES:
        return ()
    for size in SIZES:
        call = kernel.in_own_numbers(tensors(size, Numbers.NORMAL, 0))
        by_name = {name: kernel.tensor(getattr(call, name)) for name in ("query", "key", "value")}
        called: set[str] = set()
        try:
            if isinstance(kernel.call, RemoteKernel):
                with torch.no_grad():
                    profiled = kernel.replace(call=kernel.call.profiled(called))
                    profiled.of_request(kernel.request(call, by_name, {}))
            else:
                with torch.no_grad(), profile() as recorded:  # type: ignore[no-untyped-call]
                    kernel.of_request(kernel.request(call, by_name, {}))
                called = {event.name for event in recorded.function_events}
        except (KernelError, InvalidInput, NotImplementedError, RuntimeError):
            continue
        called = {name.removeprefix("aten::") for name in called}
        names |= {name for name in called if any(part in name for part in ATTENTION)}
    return tuple(sorted(names))
