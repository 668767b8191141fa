"""A JAX function as a kernel on torch tensors, with its own vjp as the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.kernel.with_torch import torch

try:
    import jax
except ModuleNotFoundError as _error:
    if _error.name != "jax":
        raise
    raise InvalidInput(
        '--attention: jax:MODULE:CALLABLE needs JAX, which is not installed; pip install "max-margin-theorems[adapters]".'
    ) from None


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with JAX arrays in place of the tensors that it is given, and its vjp for autograd.

    Its parameters are those of the function, by which its interface is recognised. float64 is switched on for the
    calls that have a tensor of it (``jax.enable_x64``), and for no others: there a stray float64 constant would show.
    """

    @functools.wraps(function)
    def called(*given: Any, **options: Any) -> Any:
        held = [*given, *options.values()]
        at = [place for place, one in enumerate(held) if isinstance(one, torch.Tensor)]

        def of_tensors(*arrays: Any) -> Any:
            filled = held.copy()
            for place, array in zip(at, arrays, strict=True):
                filled[place] = array
            return function(*filled[: len(given)], **dict(zip(options, filled[len(given) :], strict=True)))

        found = _Called.apply(of_tensors, *(held[place] for place in at))
        return found[0] if len(found) == 1 else found

    return called


class _Called(torch.autograd.Function):
    """One call on tensors; always returns a tuple."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Any, ...]:
        with _numbers_of(tensors):
            arrays = [_array(x) for x in tensors]
            if not any(ctx.needs_input_grad):
                return tuple(map(_tensor, _several(function(*arrays))))
            # What gets no gradient, a boolean mask say, is no argument of the derivative.
            ctx.moved = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]

            def of_moved(*moved: Any) -> Any:
                for place, array in zip(ctx.moved, moved, strict=True):
                    arrays[place] = array
                return _several(function(*arrays))

            found, ctx.vjp = jax.vjp(of_moved, *(arrays[place] for place in ctx.moved))
        return tuple(map(_tensor, found))

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        with _numbers_of(upstream):
            found = map(_tensor, ctx.vjp(tuple(map(_array, upstream))))
            by_place = dict(zip(ctx.moved, found, strict=True))
        return tuple(by_place.get(place) for place in range(-1, len(ctx.needs_input_grad) - 1))


def _numbers_of(tensors: tuple[torch.Tensor, ...]) -> Any:
    return jax.enable_x64(True) if any(x.dtype == torch.float64 for x in tensors) else nullcontext()


def _several(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _array(x: torch.Tensor) -> Any:
    return jax.dlpack.from_dlpack(x.detach().contiguous())


def _tensor(x: Any) -> Any:
    # A copy: PyTorch would write to memory that JAX holds to be constant.
    return torch.from_dlpack(x).clone() if isinstance(x, jax.Array) else x
