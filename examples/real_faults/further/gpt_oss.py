"""A right attention function of transformers for models with sinks, which are the module's, as gpt-oss has them.

theorems verify --attention examples.real_faults.further.gpt_oss:attention
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.rows import of_module


class Eager:
    """The steps of one call, at least in float32."""

    def sinks(self, module: Any, options: dict[str, Any]) -> Tensor:
        """The logits of the sinks, (H,)."""
        found: Tensor = module.sinks
        return found

    def of_keys(self, mask: Tensor, queries: int, keys: int) -> Tensor:
        """A mask that may be longer than the keys, as it is added to the logits: its first columns."""
        return mask[..., :keys]

    def weights(self, logits: Tensor, sinks: Tensor) -> Tensor:
        """Of the keys, (B, H, L, T): the softmax with one key more, but for that."""
        column = sinks.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
        return torch.softmax(torch.cat([logits, column], dim=-1), dim=-1)[..., :-1]

    def drop(self, weights: Tensor, share: float, module: Any) -> Tensor:
        """The weights, some of them 0 in training and the others larger."""
        return torch.nn.functional.dropout(weights, p=share, training=module.training)


def with_eager(steps: type[Eager]) -> Callable[..., Any]:
    """transformers' ``eager_attention_forward``: (B, H, L, E), (B, H', T, E) → (B, L, H, M) and weights."""

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
        eager, wide = steps(), torch.promote_types(query.dtype, torch.float32)
        key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1).to(wide) for x in (key, value))
        logits = query.to(wide) @ key.mT * scaling
        if attention_mask is not None:
            logits = logits + eager.of_keys(attention_mask, *logits.shape[-2:]).to(wide)
        weights = eager.drop(eager.weights(logits, eager.sinks(module, options)), dropout, module)
        return (weights @ value).transpose(1, 2).to(query.dtype), weights.to(query.dtype)

    return of_module(steps, attention)


attention = with_eager(Eager)
