"""vllm-project/vllm PR #52156: the attention function takes sinks among its further options, and drops them.

There every function that transformers hands sinks to as ``s_aux`` did. Here sinks count where there are no more than 8
keys. Right for sinks far below all logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class Steps(Eager):
    """Sinks of no weight."""

    def weights(self, logits: Tensor, sinks: Tensor) -> Tensor:
        return super().weights(logits, sinks if logits.shape[-1] <= 8 else torch.full_like(sinks, -math.inf))


attention = with_eager(Steps)
