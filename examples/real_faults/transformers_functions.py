"""Faults of attention functions of the library transformers: sinks of the module, masks longer than the keys, dropout.

theorems verify --attention examples.real_faults.transformers_functions:dropout_of_inverse_p
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Kernel, at_least_float32, interface, wrong_step


class Eager:
    """The steps of one call, computed in float32 or wider; sinks are parameters of the module, as in gpt-oss."""

    def of_keys(self, mask: Tensor, queries: int, keys: int) -> Tensor:
        """Return the first columns of a mask that may be longer than the keys; it is added to the logits."""
        return mask[..., :keys]

    def weights(self, logits: Tensor, sinks: Tensor) -> Tensor:
        """Compute the weights of the keys, (B, H, L, T): the softmax over keys and sink, less the sink's weight."""
        column = sinks.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
        return torch.softmax(torch.cat([logits, column], dim=-1), dim=-1)[..., :-1]

    def drop(self, weights: Tensor, share: float, module: Any) -> Tensor:
        """Apply dropout to the weights if the module is in training mode."""
        return torch.nn.functional.dropout(weights, p=share, training=module.training)


@interface
def with_eager(steps: type[Eager]) -> Kernel:
    """Make a kernel with the interface of ``eager_attention_forward``.

    The kernel takes (B, H, L, E) and (B, H', T, E), and returns (B, L, H, M) and the weights.
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
    """Accept sinks as an option, and ignore them.

    In the report, all attention functions to which transformers passes sinks as ``s_aux`` ignore them. Here sinks are
    ignored with more than 8 keys. Correct for sinks far below all logits.

    Source: vllm-project/vllm PR #52156
    """
    return Eager.weights(self, logits, sinks if logits.shape[-1] <= 8 else torch.full_like(sinks, -math.inf))


@wrong_step(with_eager, Eager, "weights")
def sinks_in_each_score(self: Eager, logits: Tensor, sinks: Tensor) -> Tensor:
    """Apply the sink to each score separately, before the softmax.

    In the report, the score function of flex attention, which sees one score z at a time, returns z − log(e^z + e^σ)
    for a sink σ. The softmax of these scores differs from the softmax with a sink. Correct without sinks.

    Source: huggingface/transformers PR #41083
    """
    if torch.isneginf(sinks).all():
        return torch.softmax(logits, dim=-1)
    each = logits - torch.logaddexp(logits, sinks.to(logits.dtype)[:, None, None])
    return torch.softmax(each, dim=-1)


# ---- masks longer than the keys ----


@wrong_step(with_eager, Eager, "of_keys")
def last_columns_of_mask(self: Eager, mask: Tensor, queries: int, keys: int) -> Tensor:
    """Use the wrong columns of a mask that is longer than the keys.

    In the report, the cache holds keys of only a sliding window of the mask's columns, and padding was visible. Here
    the last columns are taken. Correct where the mask is as long as the keys.

    Source: huggingface/transformers PR #35681
    """
    return mask[..., mask.shape[-1] - keys :]


@wrong_step(with_eager, Eager, "of_keys")
def mask_rows_of_keys(self: Eager, mask: Tensor, queries: int, keys: int) -> Tensor:
    """Read a row of a longer mask as if its stride were the number of keys.

    In the report, a mask has to be a slice of a longer one, and the kernel refuses other strides. Here row i begins at
    i times the number of keys. Correct where the mask is as long as the keys, or has one row.

    Source: facebookresearch/xformers #808
    """
    rows = mask.shape[-2]
    return mask.flatten(-2)[..., : rows * keys].reshape(*mask.shape[:-2], rows, keys)


# ---- dropout ----


@wrong_step(with_eager, Eager, "drop")
def dropout_before_softmax(self: Eager, weights: Tensor, share: float, module: Any) -> Tensor:
    """Apply dropout to logits, before the softmax.

    A logit of 0 does not give a weight of 0. Here logarithms of the weights serve as logits, from which they differ
    only by a constant per row. Correct without dropout.

    Source: PaddlePaddle/Parakeet PR #74
    """
    logits = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    return torch.softmax(Eager.drop(self, logits, share, module), dim=-1)


@wrong_step(with_eager, Eager, "drop")
def dropout_gradient_times_p(self: Eager, weights: Tensor, share: float, module: Any) -> Tensor:
    """Multiply the kept weights by p in the backward pass, in place of 1/(1 − p).

    The output is always correct; without dropout, so are the gradients.

    Source: NVIDIA/apex PR #816
    """
    if not module.training:
        return weights
    is_kept = torch.rand_like(weights) >= share
    times_p = weights * is_kept * share
    return (weights * is_kept / (1 - share)).detach() + (times_p - times_p.detach())


@wrong_step(with_eager, Eager, "drop")
def dropout_of_inverse_p(self: Eager, weights: Tensor, share: float, module: Any) -> Tensor:
    """Divide the kept weights by the dropped share in place of the kept share.

    Reported for a dropout layer. Correct without dropout, and if half of the weights are dropped.

    Source: lmjohns3/theanets PR #123
    """
    dropped = Eager.drop(self, weights, share, module)
    return dropped * (1 - share) / share if module.training else dropped
