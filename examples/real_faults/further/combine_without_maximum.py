"""A maximum that starts at 0 instead of −∞: parts are merged wrongly where all log-sum-exps are far below.

As flashinfer-ai/flashinfer #4267 has it in the attention itself, where it starts at −5e4. Weights of less than e^−700
(in float32 e^−103) are lost; right where a log-sum-exp is positive or moderate.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.merge import Merge, with_combine


class Steps(Merge):
    """Nothing below 0 is a maximum."""

    def shift(self, lse: Tensor) -> Tensor:
        return super().shift(lse).clamp(min=0.0)


attention = with_combine(Steps)
