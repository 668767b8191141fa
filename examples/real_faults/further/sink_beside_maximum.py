"""Dao-AILab/flash-attention PR #2752: the sink is added to the sum after the maximum of the keys is taken.

e^{σ − maximum} overflows for a sink far above all logits. Right for sinks among them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, with_flash

LARGEST = 2.0
"""Of the exponent, before the stand-in's sum overflows: it is small so that moderate sinks show it."""


class Steps(Rows):
    """The sum of the keys, and then the sink."""

    def total(self, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
        top, total = self.total_of_keys(logits)
        if sinks is None:
            return top, total
        exponent = sinks[:, None] - top
        return top, total + torch.where(exponent > LARGEST, torch.inf, torch.exp(exponent))


attention = with_flash(Steps)
