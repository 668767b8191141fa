"""Attention kernels that are wrong in one way each, in the form that ``--attention`` accepts.

``CAUGHT`` are wrong by more than their numbers' rounding; ``REFUSED`` are no kernels at all, with a word of the
sentence that says so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.kernels import handwritten

Call = Callable[[Tensor, Tensor, Tensor], Any]


def _attention(query: Tensor, keys: Tensor, values: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return softmax attention with the logits changed by a function."""
    return torch.softmax(change(query @ keys.transpose(-2, -1)), dim=-1) @ values


def scaled_by_root_d(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Logits are divided by √d, the default of most kernels."""
    return handwritten(query / math.sqrt(query.shape[-1]), keys, values)


def warm(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The temperature is off by 1 %."""
    return handwritten(1.01 * query, keys, values)


def detached_normaliser(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output is right, but the backward pass takes the normaliser for a constant."""
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
        # The Jacobian of the softmax is replaced by its diagonal.
        return (per_weight * weights * (1 - weights)) @ keys, None, None


def diagonal_jacobian(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The kernel's own backward pass is wrong for more than two tokens."""
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
    """The backward pass takes the upstream gradient for one."""
    return _IgnoresUpstream.apply(query, keys, values)  # type: ignore[no-untyped-call, no-any-return]


def sigmoid_normalised(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Weights are sigmoids divided by their sum."""
    weights = torch.sigmoid(query @ keys.transpose(-2, -1))
    return weights / weights.sum(dim=-1, keepdim=True) @ values


def last_token_masked(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last token is hidden by an off-by-one error in a causal mask."""
    return handwritten(query, keys[..., :-1, :], values[..., :-1, :])


def causal(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The only query takes itself for the first of the sequence."""
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=1.0)


def epsilon_in_denominator(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The denominator is increased by 1e-5, which float32 resolves."""
    logits = query @ keys.transpose(-2, -1)
    unnormalised = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    return unnormalised / (unnormalised.sum(dim=-1, keepdim=True) + 1e-5) @ values


def top_two(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Only the two largest logits count."""

    def change(logits: Tensor) -> Tensor:
        second = logits.topk(min(2, logits.shape[-1]), dim=-1).values[..., -1:]
        return logits.masked_fill(logits < second, -math.inf)

    return _attention(query, keys, values, change)


def clipped_logits(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Logits beyond ±5 are clipped."""
    return _attention(query, keys, values, lambda logits: logits.clamp(-5.0, 5.0))


def bfloat16_inside(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The kernel accepts and returns the right dtype, but computes in bfloat16."""
    return handwritten(query.bfloat16(), keys.bfloat16(), values.bfloat16()).to(query.dtype)


def without_maximum(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The exponential of large logits overflows."""
    unnormalised = torch.exp(query @ keys.transpose(-2, -1))
    return unnormalised / unnormalised.sum(dim=-1, keepdim=True) @ values


def float32_inside(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The kernel accepts and returns float64, but computes in float32: wrong in float64, right in float32."""
    return handwritten(query.float(), keys.float(), values.float()).to(query.dtype)


def tail_forgotten(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Up to eight tokens the kernel is right; of more, those after the last full block of eight are ignored."""
    tokens = keys.shape[-2]
    kept = tokens if tokens <= 8 else tokens - tokens % 8
    return handwritten(query, keys[..., :kept, :], values[..., :kept, :])


def first_64_dimensions(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Coordinates beyond the first 64 are ignored."""
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
"""Kernels that are falsified in float64 and in float32."""


def other_dtype(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output is always in half precision, as from a kernel for float16."""
    return handwritten(query, keys, values).half()


def other_shape(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output lacks the axis of the query."""
    return handwritten(query, keys, values)[..., 0, :]


def nan_everywhere(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output is NaN, as under a mask of all tokens."""
    return _attention(query, keys, values, lambda logits: logits.masked_fill(logits == logits, -math.inf))


def detached(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output is detached: there is nothing to differentiate."""
    return handwritten(query, keys, values).detach()


def blind(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output is differentiable, but not with respect to the query."""
    return values.requires_grad_().mean(dim=-2, keepdim=True)


def raising(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The kernel raises, as one for another device does."""
    raise RuntimeError("expected a CUDA tensor")


def writes_to_its_keys(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The numbers are right, but the caller's keys are changed."""
    output = handwritten(query, keys.clone(), values)
    keys.data.zero_()
    return output


def with_dropout(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The kernel applies dropout, like a model left in training mode."""
    weights = torch.softmax(query @ keys.transpose(-2, -1), dim=-1)
    return torch.nn.functional.dropout(weights, 0.5) @ values


def noisy(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output varies at random by less than float32's rounding, but is in float64."""
    output = handwritten(query, keys, values)
    return output * (1 + 1e-11 * torch.randn_like(output))


def leaves(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The kernel ends its process, as a script does."""
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
"""Objects that are refused as kernels, with a word of the refusal."""

"""Nothing to call."""
