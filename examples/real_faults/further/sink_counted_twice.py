"""ROCm/rocm-libraries #12227: the sink enters the sum twice.

There it does where the first split of the keys is empty; here where there are two blocks of 16 keys or more. Right for
up to 16 keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, with_flash


class Steps(Rows):
    """Once for each of the first two splits."""

    def total(self, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
        top, total = super().total(logits, sinks)
        if sinks is None or logits.shape[-1] <= 16:
            return top, total
        return top, total + torch.exp(sinks[:, None] - top)


attention = with_flash(Steps)
