"""Functions that call a kernel for a request and refuse results of the wrong type or shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attention_conformance.interfaces.interface import Request, Returned
from attention_conformance.kernel.global_state import restore_settings
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import type_name
from attention_conformance.kernel_process.remote_kernel import Other, RemoteKernel
from reference_attention.errors import InvalidInput


class KernelError(InvalidInput):
    """Exception for a kernel that raised an error when it was called."""


class BackwardError(KernelError):
    """Exception for a kernel that raised an error in its backward pass."""


def run_request(kernel: Any, request: Request) -> Returned:
    """Call the kernel and return its results for a request.

    The results are the output (B, H, L, M), the log-sum-exp (B, H, L) if the request asks for it, and the weights (B,
    H, L, T) if the kernel returns them, for B batch entries, H heads, L queries, T keys and values of M columns.

    Raises:
        InvalidInput: the kernel raises an error, or returns results of another type, shape or dtype.
    """
    B, H, L, _ = request.query.shape
    M = request.value.shape[-1]
    if kernel.layout.rank == 3:
        flat = {name: getattr(request, name).flatten(0, 1) for name in ("query", "key", "value")}
        request = replace(request, **flat)
    shapes = ", ".join(str(tuple(x.shape)) for x in (request.query, request.key, request.value))
    try:
        output, lse, weights = call_kernel(kernel, request)
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())[:200].rstrip(".")
        raise KernelError(
            f"--attention: {kernel.name} raised {type_name(error)} on {kernel.dtype} tensors of shapes {shapes}:"
            f" {message}."
        ) from None
    expected = (B, H, L, M) if kernel.layout.rank == 4 else (B * H, L, M)
    if not isinstance(output, torch.Tensor):
        raise InvalidInput(f"--attention: {kernel.name} returned {_kind(output)}; return one tensor {expected}.")
    if tuple(output.shape) != expected:
        raise InvalidInput(
            f"--attention: {kernel.name} returned shape {tuple(output.shape)} for {shapes}; return {expected}."
        )
    if torch.is_autocast_enabled(request.query.device.type) and output.is_floating_point():
        output = output.to(request.query.dtype)  # some operations return float32 under autocast
    if output.dtype != request.query.dtype:
        raise InvalidInput(
            f"--attention: {kernel.name} returned {str(output.dtype).removeprefix('torch.')} for {kernel.dtype}"
            " tensors; keep the dtype, or choose another with --dtype."
        )
    if isinstance(lse, torch.Tensor) and lse.dim() == 3 and _is_padded(lse.shape[-1], L):
        lse = lse[..., :L]
    if request.log_sum_exp and (not isinstance(lse, torch.Tensor) or tuple(lse.shape) != (B, H, L)):
        shape = tuple(lse.shape) if isinstance(lse, torch.Tensor) else _kind(lse)
        raise InvalidInput(f"--attention: {kernel.name} returned {shape} as log-sum-exp; return {(B, H, L)}.")
    if weights is not None and tuple(weights.shape) != (B, H, L, request.key.shape[2]):
        weights = None  # the third result has another shape, so it is something else than the weights
    return Returned(output.to(request.query.device).reshape(B, H, L, M), lse, weights)


def call_kernel(kernel: Any, request: Request) -> Returned:
    """Call the kernel, in this process or the kernel's own; restore settings that it changes; return its results."""
    changes, contiguous = kernel.changed_settings, kernel.taken.contiguous
    if isinstance(kernel.call, RemoteKernel):
        return kernel.call.run(kernel.interface, kernel.reading, request, contiguous=contiguous, changes=changes)
    call = _with_contiguous_tensors(kernel.call) if contiguous else kernel.call
    with restore_settings(changes):
        returned: Returned = kernel.interface.call(call, request, kernel.parameters)
    return returned


def _with_contiguous_tensors(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable with its tensor arguments made contiguous, for a kernel that takes no other tensors."""

    def contiguous(x: Any) -> Any:
        return x.contiguous() if isinstance(x, torch.Tensor) else x

    def kernel(*arguments: Any, **options: Any) -> Any:
        return call(*map(contiguous, arguments), **{name: contiguous(x) for name, x in options.items()})

    return kernel


def _is_padded(length: int, rows: int) -> bool:
    """Return whether ``length`` is ``rows`` rounded up to a multiple of a power of two from 8 to 128."""
    return any(length == -(-rows // multiple) * multiple for multiple in (8, 16, 32, 64, 128))


def _kind(value: object) -> str:
    if isinstance(value, Other):
        return value.kind
    return f"a {type(value).__name__}" if value is not None else "nothing"
