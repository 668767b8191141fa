"""huggingface/transformers PR #41083: the sink is applied to each score by itself, before there is a softmax.

There within the function of scores of flex attention, which sees one score at a time: z − log(e^z + e^σ). The softmax
of that is another one. Right without sinks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class Steps(Eager):
    """z − log(e^z + e^σ), and the softmax of it; without sinks that of z."""

    def weights(self, logits: Tensor, sinks: Tensor) -> Tensor:
        if torch.isneginf(sinks).all():
            return torch.softmax(logits, dim=-1)
        each = logits - torch.logaddexp(logits, sinks.to(logits.dtype)[:, None, None])
        return torch.softmax(each, dim=-1)


attention = with_eager(Steps)
