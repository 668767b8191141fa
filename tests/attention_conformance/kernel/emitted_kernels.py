"""Wrong kernels, and right ones with the same signatures; emitted tests (``--emit-test``) must fail and
pass on them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, tiled, with_plain
from examples.real_faults.precision import Factors, with_factors


def window_of_no_effect(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    sliding_window: int | None = None,
) -> Tensor:
    """Accept ``sliding_window``, a parameter that the suite does not know with this signature, and ignore it."""
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale
    )


def window_of_an_effect(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    sliding_window: int | None = None,
) -> Tensor:
    """Return attention in which a row sees only keys at a distance of at most ``sliding_window``."""
    if sliding_window is None:
        return window_of_no_effect(query, key, value, attn_mask, is_causal, scale)
    ahead = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None]
    near = ahead.abs() <= sliding_window
    return window_of_no_effect(query, key, value, near, scale=scale)


class FactorsUpToTwo(Factors):
    """A kernel that clips the dequantisation factors of 8-bit tensors at 2. Only doubled factors exceed 2, so only a
    call with doubled factors shows the fault.
    """

    def factor(self, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
        return super().factor(name, None if descale is None else descale.clamp(max=2.0), heads)


def steady(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, deterministic: bool = True) -> Any:
    """Return right attention; the parameter ``deterministic`` promises equal bits in equal calls."""
    return tiled(q, k, v, softmax_scale)


def module_weights(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return output and weights, as a function of transformers does, but the weights ignore the mask."""
    key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
    logits = query @ key.mT * scaling
    before = torch.softmax(logits, dim=-1)
    if attention_mask is not None:
        logits = logits + attention_mask
    return (torch.softmax(logits, dim=-1) @ value).transpose(1, 2), before


def module_of_right_weights(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return output and the weights used for it, as a function of transformers does."""
    mask = torch.zeros(()) if attention_mask is None else attention_mask
    key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
    weights = torch.softmax(query @ key.mT * scaling + mask.to(query.dtype), dim=-1)
    return (weights @ value).transpose(1, 2), weights


def heads_one_by_one(
    q: Tensor, k: Tensor, v: Tensor, sm_scale: float | None = None, window_left: int = -1, causal: bool = False
) -> Tensor:
    """Return attention on tensors (L, H, E), with flashinfer's signature and a window of one key too many."""
    return _one_entry(q, k, v, sm_scale, window_left + 1 if window_left >= 0 else -1, causal)


def heads_one_by_one_right(
    q: Tensor, k: Tensor, v: Tensor, sm_scale: float | None = None, window_left: int = -1, causal: bool = False
) -> Tensor:
    """Return attention on tensors (L, H, E), with flashinfer's signature and the requested window."""
    return _one_entry(q, k, v, sm_scale, window_left, causal)


def _one_entry(q: Tensor, k: Tensor, v: Tensor, scale: float | None, left: int, causal: bool) -> Tensor:
    output: Tensor = tiled(
        *(x[None] for x in (q, k, v)),
        softmax_scale=1 / math.sqrt(q.shape[-1]) if scale is None else scale,
        causal=causal,
        window_size=(left, -1),
    )
    return output[0]


factors_up_to_two = with_factors(FactorsUpToTwo)
plain = with_plain(Tiled)
