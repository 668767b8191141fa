"""Place tensors in memory as a call requires, with NaN around and between the tensor's entries.

A kernel that reads beside a tensor's entries returns NaN, and a kernel that writes to or beside them changes bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64

from attention_conformance.calls.attention_call import AttentionCall, Memory
from attention_conformance.kernel.torch_import import torch

GUARD = 64
"""The number of NaN before and after a tensor; a multiple of the memory alignment that kernels need."""

FURTHER_LEAVES: Mapping[str, str] = MappingProxyType({"sinks": "sink-gradient", "bias": "bias-gradient"})
"""Tensors besides q, k and v that may have a gradient, each with the capability that declares the gradient."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A tensor in memory.

    Attributes:
        tensor: the tensor that the kernel gets.
        own: a view of the tensor in which each number in memory occurs once, even if ``tensor`` is expanded.
        storage: the memory, as a tensor of one axis, of the entries and of the NaN around and between them.
    """

    tensor: torch.Tensor
    own: torch.Tensor
    storage: torch.Tensor

    def fill(self, x: torch.Tensor) -> None:
        """Write the numbers of ``x``, which has the shape of ``tensor``, to the memory of the tensor."""
        x = x[(0,) * (x.dim() - self.own.dim())]  # drop the first axes of a mask if expansion added them
        cut = tuple(slice(0, own) for own in self.own.shape)
        self.own.copy_(x[cut])

    def bits(self) -> torch.Tensor:
        """Return a copy of the current bytes of the tensor and of the numbers around it."""
        return self.storage.view(torch.uint8).clone()


@dataclass(frozen=True)
class _Place:
    """A larger tensor in memory, from which the tensor of a call is cut.

    Attributes:
        whole: a function from the shape of the call's tensor to the shape of the larger tensor.
        cut: a function from the larger tensor to the view that is the call's tensor.
    """

    whole: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda shape: shape
    cut: Callable[[torch.Tensor], torch.Tensor] = lambda x: x


def _swap(i: int, j: int) -> _Place:
    def whole(shape: tuple[int, ...]) -> tuple[int, ...]:
        sizes = list(shape)
        sizes[i], sizes[j] = sizes[j], sizes[i]
        return tuple(sizes)

    return _Place(whole, lambda x: x.transpose(i, j))


PLACES: Mapping[Memory, _Place] = MappingProxyType(
    {
        Memory.TRANSPOSED: _swap(1, 2),
        Memory.SLICED: _Place(lambda shape: (*shape[:-2], 2 * shape[-2], shape[-1]), lambda x: x[..., ::2, :]),
        Memory.LAST_STRIDE: _Place(lambda shape: (*shape[:-1], 2 * shape[-1]), lambda x: x[..., ::2]),
        Memory.BROADCAST: _Place(lambda shape: (1, *shape[1:])),
        Memory.HEADS: _Place(lambda shape: (shape[0], 1, *shape[2:])),
        Memory.FUSED: _Place(
            lambda shape: (shape[0], shape[2], 3 * shape[1], shape[3]),
            lambda x: x[:, :, x.shape[2] // 3 : 2 * (x.shape[2] // 3)].transpose(1, 2),
        ),
        Memory.SINGLE: _Place(lambda shape: (1,) * len(shape)),
    }
)
"""For each memory layout that is not contiguous, the larger tensor and the cut from it."""


def place_tensor(x: torch.Tensor, memory: Memory, device: str = "") -> Placed:
    """Return a copy of a tensor in the given memory layout.

    Args:
        x: the tensor, with axes (batch entry, head, query or key, column).
        memory: the memory layout.
        device: the device on which the kernel gets the tensor, perhaps in its own process; by default the device of
            ``x``.
    """
    # A GPU kernel may load 16 bytes at a time; an unaligned address would end the GPU's context, not only the call.
    offset = 1 if torch.device(device or x.device).type == "cpu" else 16 // x.element_size()
    return _place(x, PLACES.get(memory, _Place()), offset if memory is Memory.OFFSET else 0)


def place_mask(x: torch.Tensor, memory: Memory, shape: tuple[int, ...]) -> Placed:
    """Return a copy of a mask in the given memory layout.

    Args:
        x: the mask, with at most as many axes as ``shape``.
        memory: the memory layout; a broadcast mask is expanded to ``shape``, a transposed mask is stored by columns.
        shape: the numbers of batch entries, heads, queries and columns of a full mask.
    """
    if memory is Memory.BROADCAST:
        placed = _place(x, _Place(), 0)
        return Placed(placed.tensor.expand(shape), placed.own, placed.storage)
    return _place(x, _swap(-1, -2) if memory is Memory.TRANSPOSED else PLACES.get(memory, _Place()), 0)


def _place(x: torch.Tensor, place: _Place, offset: int) -> Placed:
    whole = place.whole(tuple(x.shape))
    size = torch.Size(whole).numel()
    filler = False if x.dtype == torch.bool else torch.nan
    storage = torch.full((size + 2 * GUARD + offset,), filler, dtype=x.dtype, device=x.device)
    view = place.cut(storage[GUARD + offset : GUARD + offset + size].view(whole))
    view.copy_(x[tuple(slice(0, n) for n in view.shape)])
    return Placed(view.expand(x.shape), view, storage)


def with_other_options(call: AttentionCall) -> AttentionCall:
    """Return a different call that the kernel also takes: ``call`` with twice the scale and fewer options."""
    scale = None if call.scale is None else 2 * call.scale
    return call.replace(scale=scale, causal=False, window=None, softcap=0.0)


def with_a_mask(call: AttentionCall, declares: Collection[str]) -> AttentionCall:
    """Return the call, with a boolean mask added if it has no mask and the kernel declares boolean masks.

    The added mask shows each row i the keys up to index i.
    """
    if call.visible is not None or call.bias is not None or "boolean-mask" not in declares:
        return call
    return call.replace(visible=np.tri(call.sizes["L"], call.sizes["T"], dtype=bool), causal=False, window=None)


def memory_of(name: str, call: AttentionCall) -> Memory:
    """Return the memory layout of a call's tensor ``name``: query, key or value."""
    return call.memory if name[0] in call.placed else Memory.CONTIGUOUS


def float64_of(x: torch.Tensor) -> Float64[np.ndarray, "..."]:
    """Return the tensor as a float64 array."""
    return np.asarray(x.detach().to("cpu", torch.float64).numpy())
