"""meta-pytorch/attention-gym PR #86: the linear bias is slope · (i − j) in place of slope · (j − i).

Keys further away get more weight, not less. Right for a single key and for slopes of zero.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.rows import Rows, with_flash


class Steps(Rows):
    """The other sign."""

    def linear_bias(self, slopes: Tensor, ahead: Tensor) -> Tensor:
        return -super().linear_bias(slopes, ahead)


attention = with_flash(Steps)
