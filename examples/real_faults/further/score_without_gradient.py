"""pytorch/pytorch PR #185991: of a score that does not matter autograd finds no gradient, and none is not zero.

There the backward pass of compiled flex attention failed where a function returns something that has nothing to do
with the score. Here it takes the gradient to be that of the score as it is. Right where a function uses its score.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.flex import Flex, Mod, with_flex


class Steps(Flex):
    """The derivative 1 where it is 0."""

    def modified(self, mod: Mod, score: Tensor, *places: Tensor) -> Tensor:
        found = super().modified(mod, score, *places)
        unused = super().modified(mod, score + 1, *places) == found
        return found + (score - score.detach()) * unused


attention = with_flex(Steps)
