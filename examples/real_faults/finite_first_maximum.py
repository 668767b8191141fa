"""flashinfer-ai/flashinfer #4267: the running maximum starts at −5e4, over inner products that are not scaled yet.

A row whose inner products all lie far below that comes out as zeros, its log-sum-exp as that start, which is also the
log-sum-exp of a row that sees no key. Every other row is right.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.attention import Tiled, with_flash


class Steps(Tiled):
    """A maximum that cannot fall below a finite start."""

    by_autograd = True

    def first_maximum(self) -> float:
        return -5e4 * self.scale

    def log_sum_exp(self, top: Tensor, total: Tensor) -> Tensor:
        return torch.where(total == 0, top, super().log_sum_exp(top, total))


attention = with_flash(Steps)
