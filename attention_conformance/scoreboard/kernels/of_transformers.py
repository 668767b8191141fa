"""An attention function of Hugging Face's transformers that reads unusual attributes of the module that it is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def gpt_oss(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **options: Any,
) -> Any:
    """Call the attention function of gpt-oss without sinks: the module's sinks get the logit −∞, and so no weight."""
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    module.sinks = torch.full((query.shape[1],), -torch.inf, dtype=query.dtype)
    return eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout, **options)
