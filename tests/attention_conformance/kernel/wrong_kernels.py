"""Attention kernels that are wrong in one way each, in the form that ``--attention`` accepts.

Those in :data:`CAUGHT` are wrong by more than rounding; those in :data:`REFUSED` are refused before they are tested.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attention_conformance import attention_kernel
from examples.kernels import handwritten

Call = Callable[[Tensor, Tensor, Tensor], Any]


def _attention(query: Tensor, keys: Tensor, values: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return softmax attention whose logits are changed by ``change``."""
    return torch.softmax(change(query @ keys.transpose(-2, -1)), dim=-1) @ values


def scaled_by_root_d(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Divide logits by √d, as most kernels do by default."""
    return handwritten(query / math.sqrt(query.shape[-1]), keys, values)


def warm(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Multiply logits by 1.01."""
    return handwritten(1.01 * query, keys, values)


def detached_normaliser(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return a right output whose backward pass takes the denominator of the softmax for a constant."""
    logits = query @ keys.transpose(-2, -1)
    unnormalised = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    return unnormalised / unnormalised.sum(dim=-1, keepdim=True).detach() @ values


class _WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = torch.softmax(query @ keys.transpose(-2, -1), dim=-1)
        ctx.save_for_backward(keys, values, weights)
        return weights @ values

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        keys, values, weights = ctx.saved_tensors
        per_weight = upstream[0] @ values.transpose(-2, -1)
        # Only the diagonal of the Jacobian of the softmax is used.
        return (per_weight * weights * (1 - weights)) @ keys, None, None


def diagonal_jacobian(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return a right output whose own backward pass is wrong for more than two tokens."""
    return _WrongBackward.apply(query, keys, values)  # type: ignore[no-untyped-call, no-any-return]


class _IgnoresUpstream(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = query.detach().requires_grad_()
            output = handwritten(leaf, keys, values)
            (gradient,) = torch.autograd.grad(output.sum(), leaf)
        ctx.save_for_backward(gradient)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return ctx.saved_tensors[0], None, None


def ignores_upstream(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return a right output whose backward pass takes the upstream gradient to be 1 everywhere."""
    return _IgnoresUpstream.apply(query, keys, values)  # type: ignore[no-untyped-call, no-any-return]


def sigmoid_normalised(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Use sigmoids of the logits, divided by their sum, as weights."""
    weights = torch.sigmoid(query @ keys.transpose(-2, -1))
    return weights / weights.sum(dim=-1, keepdim=True) @ values


def last_token_masked(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Hide the last token, as a causal mask that is off by one does."""
    return handwritten(query, keys[..., :-1, :], values[..., :-1, :])


def causal(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Apply a causal mask as if the only query were the first of the sequence."""
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=1.0)


def epsilon_in_denominator(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Add 1e-5, which is more than float32's rounding, to the denominator of the softmax."""
    logits = query @ keys.transpose(-2, -1)
    unnormalised = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    return unnormalised / (unnormalised.sum(dim=-1, keepdim=True) + 1e-5) @ values


def top_two(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Use only the tokens with the two largest logits."""

    def change(logits: Tensor) -> Tensor:
        second = logits.topk(min(2, logits.shape[-1]), dim=-1).values[..., -1:]
        return logits.masked_fill(logits < second, -math.inf)

    return _attention(query, keys, values, change)


def clipped_logits(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Clip logits to at most 5 and at least −5."""
    return _attention(query, keys, values, lambda logits: logits.clamp(-5.0, 5.0))


def bfloat16_inside(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute in bfloat16, and return the dtype of the query."""
    return handwritten(query.bfloat16(), keys.bfloat16(), values.bfloat16()).to(query.dtype)


def without_maximum(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute the softmax without subtracting the maximum, so that the exponential of a large logit overflows."""
    unnormalised = torch.exp(query @ keys.transpose(-2, -1))
    return unnormalised / unnormalised.sum(dim=-1, keepdim=True) @ values


def float32_inside(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute in float32, and return the dtype of the query: wrong in float64, right in float32."""
    return handwritten(query.float(), keys.float(), values.float()).to(query.dtype)


def tail_forgotten(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Ignore the tokens after the last full block of eight, if there are more than eight."""
    tokens = keys.shape[-2]
    kept = tokens if tokens <= 8 else tokens - tokens % 8
    return handwritten(query, keys[..., :kept, :], values[..., :kept, :])


def first_64_dimensions(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Ignore all dimensions of the keys after the first 64."""
    return handwritten(query[..., :64], keys[..., :64], values)


CAUGHT: tuple[Call, ...] = (
    scaled_by_root_d,
    warm,
    detached_normaliser,
    diagonal_jacobian,
    ignores_upstream,
    sigmoid_normalised,
    last_token_masked,
    causal,
    epsilon_in_denominator,
    top_two,
    clipped_logits,
    bfloat16_inside,
    without_maximum,
    tail_forgotten,
    first_64_dimensions,
)
"""Kernels that must be falsified in float64 and in float32."""


def other_dtype(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return half precision, whatever the dtype of the query, as a kernel for float16 does."""
    return handwritten(query, keys, values).half()


def other_shape(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return an output without the axis of the query."""
    return handwritten(query, keys, values)[..., 0, :]


def nan_everywhere(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return NaN, as under a mask that hides all tokens."""
    return _attention(query, keys, values, lambda logits: logits.masked_fill(logits == logits, -math.inf))


def detached(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return an output that is detached from autograd."""
    return handwritten(query, keys, values).detach()


def blind(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return an output that autograd can differentiate, but not with respect to the query."""
    return values.requires_grad_().mean(dim=-2, keepdim=True)


def raising(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Raise an exception, as a kernel for another device does."""
    raise RuntimeError("expected a CUDA tensor")


def writes_to_its_keys(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return a right output, but set the caller's keys to zero."""
    output = handwritten(query, keys.clone(), values)
    keys.data.zero_()
    return output


def with_dropout(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Apply dropout, like a model left in training mode."""
    weights = torch.softmax(query @ keys.transpose(-2, -1), dim=-1)
    return torch.nn.functional.dropout(weights, 0.5) @ values


def noisy(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return an output that varies at random: by less than float32's rounding, but by more than float64's."""
    output = handwritten(query, keys, values)
    return output * (1 + 1e-11 * torch.randn_like(output))


def leaves(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """End the process by ``sys.exit``, as a script does."""
    sys.exit(0)


REFUSED: dict[Call, str] = {
    writes_to_its_keys: "changes its keys in place",
    with_dropout: "returned different numbers for the same tensors",
    noisy: "returned different numbers for the same tensors",
    leaves: "raised SystemExit",
    other_shape: "returned shape",
    nan_everywhere: "NaN",
    raising: "expected a CUDA tensor",
}
"""Kernels that are refused before they are tested, each with words of the refusal."""

for _kernel in (*CAUGHT, scaled_by_root_d, float32_inside):
    # Otherwise their wrong results in simple calls would be a reason to ask how they are called.
    attention_kernel(layout="bhld", causal="never", scale=1.0)(_kernel)
