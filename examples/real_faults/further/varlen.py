"""A right kernel of sequences one behind another, in flash-attn's interface: each is attended to by itself.

theorems verify --attention examples.real_faults.further.varlen:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, attend, of_module


class Packed:
    """The steps around the attention of one sequence."""

    rows: type[Rows] = Rows

    def sequences(self, starts_q: Tensor, starts_k: Tensor, group: int = 1) -> Iterator[tuple[slice, slice]]:
        """Where the queries and the keys of each sequence lie; with so many heads to a group."""
        (q, k) = (x.tolist() for x in (starts_q, starts_k))
        for b in range(len(q) - 1):
            yield slice(q[b], q[b + 1]), slice(k[b], k[b + 1])

    def of_sequence(self, rows: Rows, longest: tuple[int, int]) -> Rows:
        """The attention of a sequence, among sequences of so many queries and keys at most."""
        return rows

    def one(self, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp of a sequence, (L, H, E) in and out."""
        out, lse = attend(rows, *(x.transpose(0, 1) for x in (q, k, v)))
        return out.transpose(0, 1), lse


def with_varlen(steps: type[Packed]) -> Callable[..., Any]:
    """flash-attn's ``flash_attn_varlen_func``: (ΣL, H, E), log-sum-exps (H, ΣL)."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        softmax_scale: float | None = None,
        causal: bool = False,
        return_lse: bool = False,
    ) -> Any:
        packed = steps()
        scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
        rows = packed.of_sequence(packed.rows(scale, causal), (max_seqlen_q, max_seqlen_k))
        places = packed.sequences(cu_seqlens_q, cu_seqlens_k, q.shape[1] // k.shape[1])
        found = [packed.one(rows, q[queries], k[keys], v[keys]) for queries, keys in places]
        out, lse = torch.cat([one for one, _ in found]), torch.cat([one for _, one in found], dim=-1)
        return (out, lse) if return_lse else out

    return of_module(steps, attention)


attention = with_varlen(Packed)
