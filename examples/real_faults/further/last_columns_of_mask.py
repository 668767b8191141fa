"""huggingface/transformers PR #35681: of a mask that is longer than the keys the wrong columns are taken.

There those of a sliding window, of which the cache holds no more, and padding was seen. Here the last columns are
taken. Right where the mask is as long as the keys.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.gpt_oss import Eager, with_eager


class Steps(Eager):
    """The last columns."""

    def of_keys(self, mask: Tensor, queries: int, keys: int) -> Tensor:
        return mask[..., mask.shape[-1] - keys :]


attention = with_eager(Steps)
