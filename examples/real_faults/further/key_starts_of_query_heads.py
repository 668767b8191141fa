"""jax-ml/jax PR #39521: where the keys of a packed sequence start is counted in heads of queries.

With fewer heads of keys that points behind their start, to keys of another sequence. Right where there are as many, and
for the first sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from examples.real_faults.further.varlen import Packed, with_varlen


class Steps(Packed):
    """The start of the keys times the heads of a group, as far as there are keys."""

    def sequences(self, starts_q: Tensor, starts_k: Tensor, group: int = 1) -> Iterator[tuple[slice, slice]]:
        last = int(starts_k[-1])
        for rows, keys in super().sequences(starts_q, starts_k):
            length = keys.stop - keys.start
            start = min(keys.start * group, last - length)
            yield rows, slice(start, start + length)


attention = with_varlen(Steps)
