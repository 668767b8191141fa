"""Kernels that are right when called directly and wrong through ``torch.compile``, and one that cannot be compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_LENGTH = [0]


def _softmax(query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    # A row without visible keys is zero.
    return torch.softmax(logits, dim=-1).masked_fill((logits == -torch.inf).all(-1, keepdim=True), 0.0)


def mask_dropped(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, is_causal: bool = False, scale: Any = None
) -> Tensor:
    """Ignore the mask in compiled code."""
    if torch.compiler.is_compiling():
        attn_mask = None
    return _softmax(query, key, attn_mask, is_causal, scale) @ value


@torch.compiler.assume_constant_result
def _length() -> int:
    return _LENGTH[0]


def first_length(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, is_causal: bool = False, scale: Any = None
) -> Tensor:
    """Use a number of keys that the compiler takes for constant: compiled code keeps that of its first call."""
    _LENGTH[0] = key.shape[-2]
    keys = min(_length(), key.shape[-2])
    weights = _softmax(
        query, key[..., :keys, :], None if attn_mask is None else attn_mask[..., :keys], is_causal, scale
    )
    return weights @ value[..., :keys, :]


@torch.library.custom_op("real_faults::normalise", mutates_args=())
def _normalise(weights: Tensor) -> Tensor:
    """Normalise the weights in place; the operator wrongly declares that it changes no argument."""
    weights.div_(weights.sum(dim=-1, keepdim=True))
    return weights.new_zeros(1)


@_normalise.register_fake
def _(weights: Tensor) -> Tensor:
    return weights.new_zeros(1)


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        weights = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
        _normalise(weights)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        return weights * (upstream - (weights * upstream).sum(dim=-1, keepdim=True))


def written_unsaid(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Return attention that compiled code does not normalise, as the operator declares that it changes no argument."""
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    return _Normalised.apply(logits) @ value


@torch.library.custom_op("real_faults::attend", mutates_args=())
def _attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    out = torch.softmax(query @ key.mT * scale, dim=-1) @ value
    return out.transpose(1, 2).contiguous().transpose(1, 2)


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def strides_of_another(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Return attention by an operator that returns transposed memory but declares it contiguous, so that views of the
    output are wrong in compiled code.
    """
    output = _attend(query, key, value, query.shape[-1] ** -0.5 if scale is None else scale)
    return output.flatten(0, 2).unflatten(0, query.shape[:-1])


class _Cached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        weights = torch.softmax(query @ key.mT * scale, dim=-1)
        ctx.save_for_backward(query, key, value, weights)
        ctx.scale = scale if not torch.compiler.is_compiling() else 1.0
        return weights @ value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        query, key, value, weights = ctx.saved_tensors
        dz = weights * (upstream @ value.mT - (upstream * (weights @ value)).sum(dim=-1, keepdim=True))
        return ctx.scale * dz @ key, ctx.scale * dz.mT @ query, weights.mT @ upstream, None


def scale_of_backward(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Ignore the scale in the backward pass of compiled code."""
    return _Cached.apply(query, key, value, query.shape[-1] ** -0.5 if scale is None else scale)


@torch.library.custom_op("real_faults::no_fake", mutates_args=())
def _without_fake(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    return torch.softmax(query @ key.mT * scale, dim=-1) @ value


def not_traced(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Return right attention by an operator that declares no result shape, so PyTorch cannot compile the kernel."""
    return _without_fake(query, key, value, query.shape[-1] ** -0.5 if scale is None else scale)
