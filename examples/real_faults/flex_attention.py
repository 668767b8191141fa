"""Faults of kernels that take functions of scores and positions, as PyTorch's ``flex_attention`` does.

A function changes a score, or hides a key, given the score, the batch entry, the head, the query and the key. Axes: B
batch entries, H query heads, H' key heads, L queries, T keys, E columns of queries and keys, M columns of values. Each
function that is decorated with ``wrong_step`` replaces one correct step.

theorems verify --attention examples.real_faults.flex_attention:mods_of_key_heads
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from examples.real_faults.attention import Kernel, at_least_float32, interface, or_root, wrong_step
from examples.real_faults.rows import softmax

Mod = Callable[..., Tensor]


class Flex:
    """The correct steps of a kernel, computed in float32 or wider; autograd computes the backward pass."""

    def heads(self, heads: Tensor, group: int) -> Tensor:
        """Return the indices of heads that a function of scores gets; ``group`` query heads share a key head."""
        return heads

    def modified(self, mod: Mod, score: Tensor, *places: Tensor) -> Tensor:
        """Return the scores, (B, H, L, T), changed by the user's function ``mod``."""
        return mod(score, *places).expand(score.shape)

    def padded(self, keys: Tensor, values: Tensor, mod: Mod | None) -> tuple[Tensor, Tensor]:
        """Return keys and values, padded to the number of keys to which the kernel attends (here unchanged)."""
        return keys, values

    def rows(self, logits: Tensor, visible: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Compute output and log-sum-exp from the logits; they are 0 and −∞ in rows that see no key."""
        weights, lse = softmax(logits.masked_fill(~visible, -math.inf))
        return weights @ values, lse


@interface
def with_flex(steps: type[Flex]) -> Kernel:
    """Make a kernel with flex_attention's interface from a class of steps.

    The kernel takes (B, H, L, E), (B, H', T, E), (B, H', T, M) and returns (B, H, L, M) and log-sum-exps (B, H, L).
    """

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_mod: Mod | None = None,
        block_mask: Any = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
    ) -> Any:
        flex, wide = steps(), at_least_float32(query)
        (B, H, L, _), T, group = query.shape, key.shape[2], query.shape[1] // key.shape[1]
        mask = None if block_mask is None else block_mask.mask_mod
        key, value = (x.repeat_interleave(group, dim=1).to(wide) for x in (key, value))
        key, value = flex.padded(key, value, mask)
        # Padding gets the position of the last key, so that functions of positions never see a position beyond it.
        keys = torch.arange(key.shape[2]).clamp(max=T - 1)
        places = torch.meshgrid(torch.arange(B), torch.arange(H), torch.arange(L), keys, indexing="ij")
        logits = query.to(wide) @ key.mT * or_root(scale, query)
        if score_mod is not None:
            b, h, *others = places
            logits = flex.modified(score_mod, logits, b, flex.heads(h, group), *others)
        visible = torch.tensor(True) if mask is None else mask(*places)
        out, lse = flex.rows(logits, visible, value)
        return (out.to(query.dtype), lse) if return_lse else out.to(query.dtype)

    return attention


right_flex = with_flex(Flex, "right_flex")


@wrong_step(with_flex, Flex, "heads")
def mods_of_key_heads(self: Flex, heads: Tensor, group: int) -> Tensor:
    """Pass the index of a wrong head to functions of scores if several query heads share a key head.

    In the reported kernel, scores of some functions were wrong only with grouped heads. Here functions get the index of
    the first head of the group. Results are right without groups, and for functions that treat the heads of a group
    alike.

    Source: intel/intel-xpu-backend-for-triton #3632
    """
    return heads // group * group


@wrong_step(with_flex, Flex, "modified")
def score_without_gradient(self: Flex, mod: Mod, score: Tensor, *places: Tensor) -> Tensor:
    """Use the derivative 1 instead of 0 for a function of scores whose result does not depend on the score.

    For such a function autograd returns None as the gradient of the score. In the reported kernel, compiled flex
    attention did not treat None as zero, and the backward pass failed. Results are right if a function uses its score.

    Source: pytorch/pytorch PR #185991
    """
    modified = Flex.modified(self, mod, score, *places)
    unused = Flex.modified(self, mod, score + 1, *places) == modified
    return modified + (score - score.detach()) * unused


@wrong_step(with_flex, Flex, "padded")
def keys_beyond_the_last_block(self: Flex, keys: Tensor, values: Tensor, mod: Mod | None) -> tuple[Tensor, Tensor]:
    """Attend to padding after the last key if the number of keys is no multiple of the block size.

    In the reported call, there are 64 keys and blocks of 128. Here blocks have 32 keys, the padding is zero, and a
    function that hides keys treats padding like the last key. Results are right for whole blocks, without such a
    function, and if the last key is hidden.

    Source: pytorch/pytorch #159247
    """
    rest = 0 if mod is None else -keys.shape[2] % 32
    return pad(keys, (0, 0, 0, rest)), pad(values, (0, 0, 0, rest))


@wrong_step(with_flex, Flex, "rows")
def blocks_whole_in_backward(self: Flex, logits: Tensor, visible: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Treat partly hidden blocks of keys as fully visible in the backward pass.

    In the reported kernel, gradients of block-sparse attention were several times too large or small, and the output
    was exact. Here the backward pass treats all keys of a block of 16 as visible if a row sees any of them. Results are
    right if each row sees all or no keys of each block.

    Source: Dao-AILab/flash-attention #2623
    """
    out, lse = Flex.rows(self, logits, visible, values)
    T = logits.shape[-1]
    blocks = pad(visible.expand(logits.shape), (0, -T % 16)).reshape(*logits.shape[:-1], -1, 16)
    whole = blocks.any(dim=-1).repeat_interleave(16, dim=-1)[..., :T]
    other, _ = Flex.rows(self, logits, whole, values)
    return out.detach() + (other - other.detach()), lse
