"""Kernels with one fault each, in capabilities that no kernel in the gallery (``examples/real_faults``) breaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash, with_sdpa


class ScaleOfKeysForgotten(Tiled):
    """A kernel whose dK lacks the factor ``scale``."""

    def backward(self, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = super().backward(*arguments)
        return dq, dk / self.scale, dv


class CapNotDifferentiated(Tiled):
    """A kernel whose backward pass uses 1 as the derivative of the soft cap."""

    def backward(self, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Any:
        gradients = super().backward(upstream, q, k, v, *rest)
        if not self.softcap:
            return gradients
        capped = self.capped(q, k)
        weights = torch.softmax(self.masked(capped, slice(0, k.shape[-2])), dim=-1)
        scores = upstream @ v.mT
        dz = weights * (scores - (weights * scores).sum(dim=-1, keepdim=True)) * self.scale
        return dz @ k, dz.mT @ q, gradients[2]


class OneUnitOff(Tiled):
    """A kernel that multiplies its output by 1 − 2⁻⁷, which half precision allows unless results must be exact."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = super().forward(q, k, v)
        return out * (1 - 2**-7), lse


class Warm(Tiled):
    """A kernel that multiplies logits by 1.001 if there is more than one query."""

    def capped(self, q: Tensor, k: Tensor) -> Tensor:
        return super().capped(q, k) * (1.001 if q.shape[-2] > 1 else 1.0)


class ScaledByTheLargestValue(Tiled):
    """A kernel that divides values by the largest one, hidden or not, and multiplies the output by it: right up to
    rounding.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        largest = v.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=1e-30)
        out, lse = super().forward(q, k, v / largest)
        return out * self.for_each_query_head(q, largest), lse


class LeftOver(Tiled):
    """A kernel that adds to dQ the dQ that it returned in its last call with equal tensors."""

    buffers: ClassVar[dict[bytes, Tensor]] = {}

    def backward(self, *arguments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = super().backward(*arguments)
        such = b"".join(x.detach().contiguous().numpy().tobytes() for x in arguments)
        self.buffers[such] = dq = dq + self.buffers.get(such, torch.zeros_like(dq))
        return dq, dk, dv


def root_of_keys(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, is_causal: bool = False) -> Any:
    """Return attention whose default scale is 1/√T, for T keys, instead of 1/√E, for E columns."""
    chosen = 1 / math.sqrt(key.shape[-2]) if scale is None else scale
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=chosen, is_causal=is_causal)


def nan_forward_alone(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Any:
    """Return NaN in rows without visible keys, but 0.25 in place of NaN in dQ."""
    query = query * 1
    if query.requires_grad:
        query.register_hook(lambda upstream: torch.nan_to_num(upstream, nan=0.25))
    return formula(query, key, value, attn_mask, scale, added=True)


def nan_of_other_entries(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Any:
    """Return NaN in rows without visible keys, and then NaN in dV of all heads and batch entries."""
    value = value * 1
    if value.requires_grad:
        value.register_hook(lambda upstream: upstream + 0 * upstream.sum())
    return formula(query, key, value, attn_mask, scale)


def nan_of_other_rows(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Any:
    """Return NaN in rows without visible keys, and NaN in dQ of all other rows of the same head."""
    query = query * 1
    if query.requires_grad and attn_mask is not None and attn_mask.dtype == torch.bool:
        empty = ~attn_mask.expand(*query.shape[:3], key.shape[2]).any(dim=-1, keepdim=True)
        spoilt = empty.any(dim=-2, keepdim=True) & ~empty
        query.register_hook(lambda upstream: upstream.masked_fill(spoilt, math.nan))
    return formula(query, key, value, attn_mask, scale)


def zeros_forward_alone(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Any:
    """Return zeros in rows without visible keys, but NaN in dV."""
    output = formula(query, key, value, attn_mask, scale)
    return torch.where(output.detach().isnan(), 0.0, output)


def formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
    *,
    added: bool = False,
) -> Tensor:
    """Return right attention, NaN without visible keys; −∞ replaces hidden logits or, if ``added``, is added."""
    logits = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = torch.zeros(attn_mask.shape, dtype=query.dtype).masked_fill(~attn_mask, -math.inf)
        logits = logits + hidden if added else logits.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        logits = logits + attn_mask
    return torch.softmax(logits, dim=-1) @ value


@dataclass
class Unsteady:
    """A kernel with the parameter ``deterministic`` that nevertheless changes the last bit in every second call."""

    right: Callable[..., Any] = field(default_factory=lambda: with_flash(Tiled))
    calls: int = 0

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, deterministic: bool = True
    ) -> Any:
        self.calls += 1
        out = self.right(q, k, v, softmax_scale)
        return out * (1 + 2**-52) if self.calls % 2 else out


def writes_to_its_keys(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Double the caller's keys in place if there are more than five."""
    output = torch.nn.functional.scaled_dot_product_attention(query, key.clone(), value, is_causal=is_causal, scale=1.0)
    if key.shape[-2] > 5:
        key.data.mul_(2.0)
    return output


def flat(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention on (batch, length, width), with logits times 1.001 if there are 3, 4 or more than 5 keys."""
    if query.dim() != 3 or keys.shape != values.shape:
        raise ValueError("tensors of shape (batch, length, width)")
    warm = 1.001 if keys.shape[-2] > 2 and keys.shape[-2] != 5 else 1.0
    return torch.softmax(query @ keys.mT * warm, dim=-1) @ values


warm = with_sdpa(Warm)
scale_of_keys_forgotten = with_sdpa(ScaleOfKeysForgotten)
cap_not_differentiated = with_flash(CapNotDifferentiated)
left_over = with_sdpa(LeftOver)
unsteady = Unsteady()
scaled_by_the_largest_value = with_sdpa(ScaledByTheLargestValue)
one_unit_off = with_sdpa(OneUnitOff)


def _wrong_in(dtype: torch.dtype, query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
    """Return attention that is too large by 2 % on tensors of one dtype, and right on all others."""
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=1.0)
    return output * 1.02 if query.dtype == dtype else output


def wrong_in_float32(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Return attention that is wrong only on float32 tensors."""
    return _wrong_in(torch.float32, query, key, value, is_causal)


def wrong_in_bfloat16(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Return attention that is wrong only on bfloat16 tensors."""
    return _wrong_in(torch.bfloat16, query, key, value, is_causal)


def wrong_in_float16(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Return attention that is wrong only on float16 tensors."""
    return _wrong_in(torch.float16, query, key, value, is_causal)


def right_in_every_format(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Return right attention, with the signature of the kernels that are wrong in one format."""
    return _wrong_in(torch.int8, query, key, value, is_causal)
