"""Faults of attention functions of the library transformers: sinks of the module, masks longer than the keys, dropout.

A sink is an additional key of a head with a logit σ of its own and value 0. Axes: B batch entries, H query heads, H'
key heads, L queries, T keys, E columns of queries and keys, M columns of values. Each function that is decorated with
``wrong_step`` replaces one correct step of a kernel.

theorems verify --attention examples.real_faults.transformers_functions:dropout_of_inverse_p
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Kernel, at_least_float32, interface, wrong_step


class Eager:
    """The correct steps of a kernel, in float32 or wider; sinks are parameters of the module, as in gpt-oss."""

    def of_keys(self, mask: Tensor, queries: int, keys: int) -> Tensor:
        """Return the first ``keys`` columns of an additive mask, which may have more columns than there are keys."""
        return mask[..., :keys]

    def weights(self, logits: Tensor, sinks: Tensor) -> Tensor:
        """Compute the weights of the keys, (B, H, L, T): the softmax over keys and sink, without the sink's column."""
        column = sinks.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
        return torch.softmax(torch.cat([logits, column], dim=-1), dim=-1)[..., :-1]

    def drop(self, weights: Tensor, share: float, module: Any) -> Tensor:
        """Drop the share ``share`` of the weights at random if the module is in training mode."""
        return torch.nn.functional.dropout(weights, p=share, training=module.training)


@interface
def with_eager(steps: type[Eager]) -> Kernel:
    """Make a kernel with the interface of transformers' ``eager_attention_forward`` from a class of steps.

    The kernel takes (B, H, L, E), (B, H', T, E) and (B, H', T, M), and returns (B, L, H, M) and the weights.
    """

    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float,
        dropout: float = 0.0,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        eager, wide = steps(), at_least_float32(query)
        key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1).to(wide) for x in (key, value))
        logits = query.to(wide) @ key.mT * scaling
        if attention_mask is not None:
            logits = logits + eager.of_keys(attention_mask, *logits.shape[-2:]).to(wide)
        weights = eager.drop(eager.weights(logits, module.sinks), dropout, module)
        return (weights @ value).transpose(1, 2).to(query.dtype), weights.to(query.dtype)

    return attention


right_eager = with_eager(Eager, "right_eager")


# ---- sinks ----


@wrong_step(with_eager, Eager, "weights")
def sinks_dropped(self: Eager, logits: Tensor, sinks: Tensor) -> Tensor:
    """Ignore sinks, although they are accepted as an option.

    In the report, all attention functions to which transformers passes sinks as ``s_aux`` ignore them. Here sinks are
    ignored in calls with more than 8 keys. Results are right if the sinks are far below all logits.

    Source: vllm-project/vllm PR #52156
    """
    return Eager.weights(self, logits, sinks if logits.shape[-1] <= 8 else torch.full_like(sinks, -math.inf))


@wrong_step(with_eager, Eager, "weights")
def sinks_in_each_score(self: Eager, logits: Tensor, sinks: Tensor) -> Tensor:
    """Change each score by the sink separately, instead of adding e^σ to the denominator of the softmax.

    In the reported code, the score function of flex attention, which gets a single score z at a time, returns z −
    log(e^z + e^σ) for a sink σ. The softmax of these scores differs from the softmax with a sink. Results are right
    without sinks.

    Source: huggingface/transformers PR #41083
    """
    if torch.isneginf(sinks).all():
        return torch.softmax(logits, dim=-1)
    each = logits - torch.logaddexp(logits, sinks.to(logits.dtype)[:, None, None])
    return torch.softmax(each, dim=-1)


# ---- masks longer than the keys ----


@wrong_step(with_eager, Eager, "of_keys")
def last_columns_of_mask(self: Eager, mask: Tensor, queries: int, keys: int) -> Tensor:
    """Use the last columns of a mask that has more columns than there are keys, instead of the first columns.

    In the reported code, the cache holds keys for only a sliding window of the mask's columns; wrong columns were used,
    so that padding was visible. Results are right if the mask has as many columns as there are keys.

    Source: huggingface/transformers PR #35681
    """
    return mask[..., mask.shape[-1] - keys :]


@wrong_step(with_eager, Eager, "of_keys")
def mask_rows_of_keys(self: Eager, mask: Tensor, queries: int, keys: int) -> Tensor:
    """Read each row of a mask as if rows had as many columns as there are keys, although the mask has more columns.

    Row i of the mask is read from i times the number of keys on. In the report, a mask has to be a slice of a longer
    mask, and the kernel refuses other strides. Results are right if the mask has as many columns as there are keys, or
    a single row.

    Source: facebookresearch/xformers #808
    """
    rows = mask.shape[-2]
    return mask.flatten(-2)[..., : rows * keys].reshape(*mask.shape[:-2], rows, keys)


# ---- dropout ----


@wrong_step(with_eager, Eager, "drop")
def dropout_before_softmax(self: Eager, weights: Tensor, share: float, module: Any) -> Tensor:
    """Apply dropout to logits, before the softmax, instead of to weights.

    A logit of 0 does not give a weight of 0. Here logarithms of the weights serve as logits; the two differ only by a
    constant per row. Results are right without dropout.

    Source: PaddlePaddle/Parakeet PR #74
    """
    logits = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    return torch.softmax(Eager.drop(self, logits, share, module), dim=-1)


@wrong_step(with_eager, Eager, "drop")
def dropout_gradient_times_p(self: Eager, weights: Tensor, share: float, module: Any) -> Tensor:
    """Multiply the kept weights in the backward pass by the dropped share p, instead of by 1/(1 − p).

    The output is always right; the gradients are right without dropout.

    Source: NVIDIA/apex PR #816
    """
    if not module.training:
        return weights
    is_kept = torch.rand_like(weights) >= share
    times_p = weights * is_kept * share
    return (weights * is_kept / (1 - share)).detach() + (times_p - times_p.detach())


@wrong_step(with_eager, Eager, "drop")
def dropout_of_inverse_p(self: Eager, weights: Tensor, share: float, module: Any) -> Tensor:
    """Divide the kept weights by the share of weights that are dropped, instead of by the share that are kept.

    The fault was reported for a dropout layer. Results are right without dropout, and if the share is one half.

    Source: lmjohns3/theanets PR #123
    """
    dropped = Eager.drop(self, weights, share, module)
    return dropped * (1 - share) / share if module.training else dropped
