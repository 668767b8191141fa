"""Calls with masks that a signature cannot say, as calls with masks that it can."""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.attention_call import AttentionCall


def with_one_mask(call: AttentionCall) -> AttentionCall:
    """The mask of the first head for all of them."""

    def of_first(mask: Any) -> Any:
        return mask if mask is None or np.ndim(mask) < 4 else mask[:, :1]

    return call.replace(visible=of_first(call.visible), bias=of_first(call.bias))


def with_mask_or_causal(call: AttentionCall) -> AttentionCall:
    """No causality where there is a mask: one parameter says either."""
    return call if call.visible is None and call.bias is None else call.replace(causal=False)
