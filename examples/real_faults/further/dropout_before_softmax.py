"""PaddlePaddle/Parakeet PR #74: dropout is applied to logits, before the softmax.

A logit of 0 is no weight of 0. Right without dropout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class Steps(Eager):
    """The logarithms of the weights are logits, but for what is the same in a row."""

    def drop(self, weights: Tensor, share: float, module: Any) -> Tensor:
        logits = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        return torch.softmax(super().drop(logits, share, module), dim=-1)


attention = with_eager(Steps)
