"""flashinfer-ai/flashinfer #4051: two parts that see no key are merged to NaN, where (0, −∞) is due.

The maximum −∞ is subtracted from −∞. Right where one of the two sees a key.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.merge import Merge, with_merge_state


class Steps(Merge):
    """The maximum as it is."""

    def shift(self, lse: Tensor) -> Tensor:
        return lse.detach().amax(dim=0)


attention = with_merge_state(Steps)
