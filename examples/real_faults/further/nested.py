"""A right kernel of nested tensors in jagged layout, in PyTorch's interface: each sequence is attended to by itself.

No parameter tells that it takes them, so the interface has to be named.

theorems verify --attention examples.real_faults.further.nested:attention --interface nested
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from examples.real_faults.further.rows import Rows, attend, of_module


class Jagged:
    """The steps around the attention of one sequence."""

    def keys(self, every: Tensor, own: slice) -> Tensor:
        """The keys or values of a sequence, of all (ΣT, H, E)."""
        return every[own]

    def one(self, rows: Rows, q: Tensor, k: Tensor, v: Tensor, longest: int) -> Tensor:
        """Output of a sequence, (L, H, E) in and out, among sequences of so many queries at most."""
        return attend(rows, *(x.transpose(0, 1) for x in (q, k, v)))[0].transpose(0, 1)


def with_nested(steps: type[Jagged]) -> Callable[..., Tensor]:
    """Nested (B, H, L, E), (B, H', T, E), (B, H', T, M) → (B, H, L, M)."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if is_causal:
            raise ValueError("no causality of nested tensors, as in PyTorch")
        jagged, rows = steps(), Rows(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        at_q, at_k = (x.offsets().tolist() for x in (q, k))
        longest = max(end - start for start, end in pairwise(at_q))
        found = []
        for queries, own in zip(pairwise(at_q), pairwise(at_k), strict=True):
            keys, values = (jagged.keys(x.values(), slice(*own)) for x in (k, v))
            found.append(jagged.one(rows, q.values()[slice(*queries)], keys, values, longest))
        made: Tensor = torch.nested.nested_tensor_from_jagged(torch.cat(found), q.offsets())
        return made.transpose(1, 2)

    return of_module(steps, attention)


attention = with_nested(Jagged)
