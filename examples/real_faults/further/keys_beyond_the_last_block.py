"""pytorch/pytorch #159247: with a length of keys that is no multiple of a block, those behind it count.

There with 64 keys and blocks of 128. Here blocks are of 32 keys, those behind the last one are zero, and a function
that hides keys says of them what it does of the last key. Right for whole blocks, and where that is hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.real_faults.further.flex import Flex, Mod, with_flex


class Steps(Flex):
    """Keys and values of zero up to a whole block."""

    def padded(self, keys: Tensor, values: Tensor, mod: Mod | None) -> tuple[Tensor, Tensor]:
        rest = 0 if mod is None else -keys.shape[2] % 32
        return torch.nn.functional.pad(keys, (0, 0, 0, rest)), torch.nn.functional.pad(values, (0, 0, 0, rest))


attention = with_flex(Steps)
