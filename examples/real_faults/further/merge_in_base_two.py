"""sgl-project/sglang #40903: log-sum-exps of one base are merged by weights of the other.

Kernels hand over logarithms to the base 2 where the merge exponentiates to the base e, or as here the other way round.
What is returned as log-sum-exp is natural. Right where all log-sum-exps are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.merge import Merge, with_merge_state


class Steps(Merge):
    """Powers of two."""

    def weights(self, lse: Tensor, shift: Tensor) -> Tensor:
        return torch.exp2(lse - shift)

    def log_sum_exp(self, total: Tensor, shift: Tensor) -> Tensor:
        # That of two equal parts is log 2 above theirs: it is not to be told from a natural one by that.
        return super().log_sum_exp(total, shift)


attention = with_merge_state(Steps)
