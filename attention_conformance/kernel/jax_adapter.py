"""A JAX function as a kernel on torch tensors, whose backward pass is JAX's vjp (vector-Jacobian product)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from attention_conformance.kernel.torch_import import torch
from reference_attention.errors import InvalidInput

try:
    import jax
except ModuleNotFoundError as _error:
    if _error.name != "jax":
        raise
    raise InvalidInput(
        "--attention: jax:MODULE:CALLABLE needs JAX, which is not installed;"
        ' pip install "max-margin-theorems[adapters]".'
    ) from None


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch tensors that converts them to JAX arrays, calls ``function`` and converts back.

    The returned function has the parameters of ``function``, by which its interface is recognised; autograd
    differentiates it by the vjp of ``function``. ``jax.jit`` compiles ``function`` if possible, anew for every shape;
    arguments other than tensors are constants. float64 is switched on (``jax.enable_x64``) only for calls that have a
    float64 tensor: in other calls a stray float64 constant would change the format in which ``function`` computes.
    """

    @functools.wraps(function)
    def wrapper(*positional: Any, **options: Any) -> Any:
        arguments = (*positional, *options.values())
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        rest = tuple(_HERE if isinstance(argument, torch.Tensor) else argument for argument in arguments)
        program = _Program(function, rest, tuple(options))
        results: tuple[Any, ...] = _Called.apply(program, *tensors)  # type: ignore[no-untyped-call]
        return results[0] if len(results) == 1 else results

    # Results of jax.lax.stop_gradient look differentiable to PyTorch, with zero gradients, as this attribute declares.
    wrapper.zero_gradients_are_stopped = True  # type: ignore[attr-defined]
    return wrapper


_HERE = object()
"""Placeholder for each tensor in a function's arguments."""


@dataclass(frozen=True)
class _Program:
    """A JAX function together with its arguments other than arrays.

    Attributes:
        function: the function, which takes JAX arrays.
        arguments: the function's arguments in order, with _HERE in place of each array.
        names: the names of the last arguments, which are passed by name.
        differentiated: the indices, among the arrays, of those that need a gradient.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    names: tuple[str, ...]
    differentiated: tuple[int, ...] = ()

    def __call__(self, arrays: list[Any]) -> tuple[Any, ...]:
        remaining = iter(arrays)
        filled = [next(remaining) if argument is _HERE else argument for argument in self.arguments]
        by_place = len(filled) - len(self.names)
        results = self.function(*filled[:by_place], **dict(zip(self.names, filled[by_place:], strict=True)))
        return tuple(results) if isinstance(results, tuple | list) else (results,)


def _forward(program: _Program, arrays: list[Any]) -> Any:
    return program(arrays)


def _forward_and_vjp(program: _Program, arrays: list[Any]) -> Any:
    def of_differentiated(*differentiated: Any) -> Any:
        filled = list(arrays)
        for place, array in zip(program.differentiated, differentiated, strict=True):
            filled[place] = array
        return program(filled)

    return jax.vjp(of_differentiated, *(arrays[place] for place in program.differentiated))


def _backward(vjp: Any, upstream: tuple[Any, ...]) -> Any:
    return vjp(upstream)


_jitted: Mapping[Callable[..., Any], Any] = MappingProxyType(
    {
        _forward: jax.jit(_forward, static_argnums=0),
        _forward_and_vjp: jax.jit(_forward_and_vjp, static_argnums=0),
        _backward: jax.jit(_backward),
    }
)


def _run_compiled(step: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step under ``jax.jit``; if that fails, as for jax.nn's attention in float16 on a CPU, run it uncompiled."""
    try:
        return _jitted[step](*arguments)
    except (TypeError, ValueError, RuntimeError):
        return step(*arguments)


class _Called(torch.autograd.Function):
    """A call of a JAX function as a function of torch's autograd; it always returns a tuple of results."""

    @staticmethod
    def forward(ctx: Any, program: _Program, *tensors: torch.Tensor) -> tuple[Any, ...]:
        ctx.differentiated = tuple(place for place, is_needed in enumerate(ctx.needs_input_grad[1:]) if is_needed)
        with _numbers_of(tensors):
            arrays = [_array(x) for x in tensors]
            if not ctx.differentiated:
                return tuple(map(_tensor, _run_compiled(_forward, program, arrays)))
            program = replace(program, differentiated=ctx.differentiated)
            results, ctx.vjp = _run_compiled(_forward_and_vjp, program, arrays)
            return tuple(map(_tensor, results))

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        with _numbers_of(upstream):
            gradients = map(_tensor, _run_compiled(_backward, ctx.vjp, tuple(map(_array, upstream))))
        by_place = dict(zip(ctx.differentiated, gradients, strict=True))
        return None, *(by_place.get(place) for place in range(len(ctx.needs_input_grad) - 1))


def _numbers_of(tensors: tuple[torch.Tensor, ...]) -> Any:
    return jax.enable_x64(True) if any(x.dtype == torch.float64 for x in tensors) else nullcontext()


def _array(x: torch.Tensor) -> Any:
    return jax.dlpack.from_dlpack(x.detach().contiguous())


def _tensor(x: Any) -> Any:
    # Copy the array, since PyTorch may write to the tensor, but JAX relies on arrays that never change.
    return torch.utils.dlpack.from_dlpack(x).clone() if isinstance(x, jax.Array) else x
