"""Replace masks that a signature cannot express by masks that it can."""

from __future__ import annotations

from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall


def with_one_mask(call: AttentionCall) -> AttentionCall:
    """Return the call with the mask of the first head for all heads."""

    def of_first(mask: Any) -> Any:
        return mask if mask is None or np.ndim(mask) < 4 else mask[:, :1]

    return call.replace(visible=of_first(call.visible), bias=of_first(call.bias))


def with_mask_or_causal(call: AttentionCall) -> AttentionCall:
    """Return the call without causality if it has a mask: one parameter expresses either."""
    return call if call.visible is None and call.bias is None else call.replace(causal=False)
