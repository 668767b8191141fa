"""intel/intel-xpu-backend-for-triton #3632: with grouped heads functions of scores are not given the head of the query.

There scores of some functions were wrong with grouped heads alone. Here they are given the first head of the group.
Right without groups, and for functions that are the same for all heads of one.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.flex import Flex, with_flex


class Steps(Flex):
    """The first head of each group."""

    def heads(self, heads: Tensor, group: int) -> Tensor:
        return heads // group * group


attention = with_flex(Steps)
