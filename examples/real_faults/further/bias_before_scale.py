"""AI-Hypercomputer/accelerator-agents PR #101: the bias is added before the logits are scaled.

Bias and its gradient have the factor of the scale. Right with a scale of 1, and for masks of 0 and −∞.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.rows import Rows, with_bias


class Steps(Rows):
    """(q·k + b) · scale."""

    def logits(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        return super().logits(q, k, None if bias is None else bias * self.scale)

    def bias_gradient(self, dlogits: Tensor, bias: Tensor) -> Tensor:
        return super().bias_gradient(dlogits, bias) * self.scale


attention = with_bias(Steps)
