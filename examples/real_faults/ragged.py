"""Faults of batches of sequences with different lengths, packed one after another.

Axes: B sequences, H query heads, H' key heads, L queries and T keys of a sequence, ΣL and ΣT those of all sequences, E
columns of queries and keys, M columns of values. Each function that is decorated with ``wrong_step`` replaces one
correct step of a kernel.

theorems verify --attention examples.real_faults.ragged:diagonal_of_the_longest
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Kernel, interface, or_root, wrong_step
from examples.real_faults.rows import Rows, attend

Longest = tuple[int, int]
"""The largest number of queries, and the largest number of keys, that any sequence of a batch has."""


class Packed:
    """The correct steps of a kernel for a batch of sequences that are stored one after another."""

    def sequences(self, starts_q: Tensor, starts_k: Tensor, group: int) -> Iterator[tuple[slice, slice]]:
        """Yield the slices of each sequence's queries and keys; ``group`` query heads share a key head."""
        for (q, q_end), (k, k_end) in zip(pairwise(starts_q.tolist()), pairwise(starts_k.tolist()), strict=True):
            yield slice(q, q_end), slice(k, k_end)

    def of_sequence(self, rows: Rows, longest: Longest) -> Rows:
        """Return the steps of attention, with the call's options, that every sequence uses: here ``rows`` unchanged."""
        return rows

    def keys(self, every: Tensor, place: slice) -> Tensor:
        """Return the keys or values of the sequence at ``place``, out of those of all sequences, (ΣT, H', E)."""
        return every[place]

    def attend_sequence(self, rows: Rows, q: Tensor, k: Tensor, v: Tensor, longest: Longest) -> tuple[Tensor, Tensor]:
        """Compute the output (L, H, M) and the log-sum-exp (H, L) of a sequence."""
        out, lse = attend(rows, *(x.transpose(0, 1) for x in (q, k, v)))
        return out.transpose(0, 1), lse

    def every(self, rows: Rows, qkv: tuple[Tensor, ...], starts: tuple[Tensor, Tensor], longest: Longest) -> Any:
        """Compute the output (ΣL, H, M) and the log-sum-exp (H, ΣL) of all sequences."""
        q, k, v = qkv
        rows_of_sequence = self.of_sequence(rows, longest)
        results = [
            self.attend_sequence(rows_of_sequence, q[queries], self.keys(k, keys), self.keys(v, keys), longest)
            for queries, keys in self.sequences(*starts, q.shape[1] // k.shape[1])
        ]
        return torch.cat([out for out, _ in results]), torch.cat([lse for _, lse in results], dim=-1)


@interface
def with_varlen(steps: type[Packed]) -> Kernel:
    """Make a kernel with the interface of flash-attn's ``flash_attn_varlen_func`` from a class of steps.

    The kernel takes queries (ΣL, H, E), keys and values of all sequences, one sequence after another.
    """

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
        rows = Rows(or_root(softmax_scale, q), causal)
        out, lse = steps().every(rows, (q, k, v), (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k))
        return (out, lse) if return_lse else out

    return attention


right_varlen = with_varlen(Packed, "right_varlen")


@wrong_step(with_varlen, Packed, "attend_sequence")
def empty_sequence_gives_nan(
    self: Packed, rows: Rows, q: Tensor, k: Tensor, v: Tensor, longest: Longest
) -> tuple[Tensor, Tensor]:
    """Return NaN instead of zero as dK and dV of a sequence that has keys but no queries.

    In the reported kernel, no thread processes the keys of such a sequence, so that their gradients are uninitialised
    memory. Results are right if each sequence has a query.

    Source: Dao-AILab/flash-attention PR #2421
    """
    if len(q) > 0 or not k.requires_grad:
        return Packed.attend_sequence(self, rows, q, k, v, longest)
    k, v = (x * 1 for x in (k, v))
    for x in (k, v):
        x.register_hook(lambda gradient: torch.full_like(gradient, torch.nan))  # type: ignore[no-untyped-call]
    out = q.new_zeros((0, q.shape[1], v.shape[2])) + 0 * (k.sum() + v.sum())
    return out, q.new_zeros((q.shape[1], 0))


@wrong_step(with_varlen, Packed, "sequences")
def key_starts_of_query_heads(
    self: Packed, starts_q: Tensor, starts_k: Tensor, group: int
) -> Iterator[tuple[slice, slice]]:
    """Compute the start of a sequence's keys in memory from the number of query heads instead of key heads.

    If there are fewer key heads than query heads, the computed start is too large, at keys of a later sequence;
    here the start is limited so that all keys exist. Results are right with as many key heads as query heads, and for
    the first sequence.

    Source: jax-ml/jax PR #39521
    """
    last = int(starts_k[-1])
    for rows, keys in Packed.sequences(self, starts_q, starts_k, group):
        length = keys.stop - keys.start
        start = min(keys.start * group, last - length)
        yield rows, slice(start, start + length)


@wrong_step(with_varlen, Packed, "of_sequence")
def diagonal_of_the_longest(self: Packed, rows: Rows, longest: Longest) -> Rows:
    """Use the same causal diagonal for all sequences, although their lengths differ.

    The offset T − L of the diagonal is computed from the largest T and the largest L, not from those of each sequence.
    Results are right without ``causal``, and if all sequences have the same lengths.

    Source: ROCm/rocm-libraries PR #10999
    """
    return replace(rows, first_key=longest[1] - longest[0])
