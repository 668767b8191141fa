"""Faults of precision: factors of 8-bit tensors, and outputs whose last bits depend on the rest of the batch.

Axes: B batch entries, H query heads, H' key heads, L queries, T keys, E columns. Each function that is decorated with
``wrong_step`` replaces one correct step of a kernel.

theorems verify --attention examples.real_faults.precision:descales_dropped
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Kernel, at_least_float32, interface, or_one, or_root, wrong_step
from examples.real_faults.log_sum_exp import Merge
from examples.real_faults.rows import hide_later_keys, softmax, top_and_total

FP8 = torch.float8_e4m3fn
SPLIT = 16
"""The number of keys in each part into which a correct kernel splits the keys, whatever the batch is."""


class Factors:
    """The correct steps of a kernel on 8-bit tensors.

    For each batch entry and key head, a factor multiplies the 8-bit numbers of a tensor.
    """

    def factor(self, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
        """Return the factor of a tensor for each query head, (B, H, 1, 1); 1 if there is none.

        Args:
            name: which tensor the factor multiplies: q, k or v.
            descale: the factor for each key head, (B, H'); None if there is none.
            heads: the number H of query heads.
        """
        if descale is None:
            return 1.0
        return descale.repeat_interleave(heads // descale.shape[1], dim=1)[..., None, None]


@interface
def with_factors(steps: type[Factors]) -> Kernel:
    """Make a kernel with the interface of flash-attn 3 from a class of steps; tensors may have 8 bits or more."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        return_softmax_lse: bool = False,
    ) -> Any:
        factors, coarse, H = steps(), q.dtype == FP8, q.shape[2]
        wide = torch.float32 if coarse else at_least_float32(q)
        query = q.transpose(1, 2).to(wide)
        key, value = (x.transpose(1, 2).to(wide).repeat_interleave(H // x.shape[2], dim=1) for x in (k, v))
        factor = factors.factor("q", q_descale, H) * factors.factor("k", k_descale, H) * or_root(softmax_scale, q)
        logits = query @ key.mT * factor
        if causal:
            logits = hide_later_keys(logits)
        top, total = (x[..., None] for x in top_and_total(logits))
        weights = torch.exp(logits - top)
        rounded = weights.to(FP8).to(wide) if coarse else weights
        out = rounded @ value / or_one(total) * factors.factor("v", v_descale, H)
        out = out.transpose(1, 2).to(torch.bfloat16 if coarse else q.dtype)
        return (out, softmax(logits)[1]) if return_softmax_lse else out

    return attention


right_factors = with_factors(Factors, "right_factors")


@wrong_step(with_factors, Factors, "factor")
def descales_dropped(self: Factors, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
    """Ignore the factor by which the 8-bit keys have to be multiplied.

    In the reported kernel, the factors of keys and values are ignored if the query has 8 bits, too; here only the
    factor of the keys is. Results are right for factors of 1.

    Source: vllm-project/vllm PR #42580
    """
    return 1.0 if name == "k" else Factors.factor(self, name, descale, heads)


@wrong_step(with_factors, Factors, "factor")
def descales_of_the_first_entry(self: Factors, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
    """Use the factors of the first batch entry for all batch entries.

    In the reported kernel, this happens in batches of sequences of different lengths. Results are right for a single
    batch entry, and if all entries have the same factors.

    Source: ROCm/rocm-libraries PR #10474
    """
    return Factors.factor(self, name, None if descale is None else descale[:1].expand_as(descale), heads)


# ---- bits that do not depend on the batch ----


class Invariant:
    """The correct steps of a kernel whose results for a batch entry, bit for bit, do not depend on the other entries.

    The steps compute one batch entry, with queries (H, L, E), in float32 or wider; the batch has ``entries`` entries.
    """

    def split(self, entries: int, keys: int) -> int:
        """Return the number of keys in each part when a batch entry with ``keys`` keys is split into parts."""
        return SPLIT

    def logits(self, q: Tensor, k: Tensor, entries: int) -> Tensor:
        """Compute the inner product of each query and key."""
        return q @ k.mT

    def attend_entry(
        self, scale: float, causal: bool, q: Tensor, k: Tensor, v: Tensor, entries: int
    ) -> tuple[Tensor, Tensor]:
        """Compute output and log-sum-exp of a batch entry."""
        logits = self.logits(q, k, entries) * scale
        if causal:
            logits = hide_later_keys(logits)
        split, parts = self.split(entries, k.shape[-2]), []
        for start in range(0, k.shape[-2], split):
            weights, lse = softmax(logits[..., start : start + split])
            parts.append((weights @ v[:, start : start + split], lse))
        return Merge().whole(*(torch.stack(each) for each in zip(*parts, strict=True)))


@interface
def with_batch(steps: type[Invariant]) -> Kernel:
    """Make a kernel from a class of steps, with SGLang's interface of flash-attn and its flag ``batch_invariant``."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        return_softmax_lse: bool = False,
        batch_invariant: bool = False,
    ) -> Any:
        step, wide, group = steps(), at_least_float32(q), q.shape[2] // k.shape[2]
        query = q.transpose(1, 2).to(wide).contiguous()
        key, value = (x.transpose(1, 2).repeat_interleave(group, dim=1).to(wide).contiguous() for x in (k, v))
        results = [
            # A clone has the memory layout and alignment of a batch of one entry.
            step.attend_entry(
                or_root(softmax_scale, q), causal, query[b].clone(), key[b].clone(), value[b].clone(), len(q)
            )
            for b in range(len(q))
        ]
        out, lse = (torch.stack(each) for each in zip(*results, strict=True))
        out = out.transpose(1, 2).to(q.dtype)
        return (out, lse) if return_softmax_lse else out

    return attention


right_batch = with_batch(Invariant, "right_batch")


@wrong_step(with_batch, Invariant, "split")
def splits_by_batch(self: Invariant, entries: int, keys: int) -> int:
    """Cut the keys into fewer and larger splits in larger batches, so that the last bits of the output change.

    Sums over a sequence's keys are then added in an order that depends on the number of batch entries. Results are
    right up to rounding, and have the same bits in batches of the same size.

    Source: sgl-project/sgl-flash-attn PR #43
    """
    return 2 + 4 * entries


@wrong_step(with_batch, Invariant, "logits")
def tiles_by_batch(self: Invariant, q: Tensor, k: Tensor, entries: int) -> Tensor:
    """Sum logits in another order in batches of several entries, so that the last bits of the output change.

    In a batch of more than one entry, even and odd columns are summed separately. Results are right up to rounding, and
    have the same bits in batches of the same size. In the reported kernel, the last one or two bits of a row depend on
    the rest of the batch.

    Source: deepseek-ai/FlashMLA #212
    """
    if entries == 1:
        return Invariant.logits(self, q, k, entries)
    return q[..., 0::2] @ k[..., 0::2].mT + q[..., 1::2] @ k[..., 1::2].mT
