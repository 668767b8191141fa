"""Kernels that are wrong about once in a thousand calls, and a right kernel that adds keys in random order."""

from __future__ import annotations

import random
from typing import Any

from torch import Tensor

from tests.attention_conformance.claims.compiled_kernels import _softmax

_CALLS = [0]
_DRAWS = random.Random(0)
_HELD: list[Tensor | None] = [None]


def thousandth(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, is_causal: bool = False, scale: Any = None
) -> Tensor:
    """Add 0.5 to the output of every thousandth call."""
    _CALLS[0] += 1
    output = _softmax(query, key, attn_mask, is_causal, scale) @ value
    return output if _CALLS[0] % 1000 else output + 0.5


def one_in_a_thousand(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Double the output of one call in a thousand, chosen at random."""
    output = _softmax(query, key, None, False, scale) @ value
    return output * 2.0 if _DRAWS.random() < 0.001 else output


def not_cleared(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Add the last call's output in every 700th call, if both outputs have the same shape."""
    _CALLS[0] += 1
    output = _softmax(query, key, None, False, scale) @ value
    before, _HELD[0] = _HELD[0], output.detach()
    if _CALLS[0] % 700 == 0 and before is not None and before.shape == output.shape:
        return output + before
    return output


def other_order(query: Tensor, key: Tensor, value: Tensor, scale: Any = None) -> Tensor:
    """Return right attention that adds the keys in another random order in every call."""
    order = list(range(key.shape[-2]))
    _DRAWS.shuffle(order)
    return _softmax(query, key[..., order, :], None, False, scale) @ value[..., order, :]
