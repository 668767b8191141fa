"""ROCm/rocm-libraries PR #10474: the factors of the heads are those of the first entry, for all of the batch.

There in batches of sequences of different lengths. Right for one entry, and where all have the same factors.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.fp8 import Factors, with_factors


class Steps(Factors):
    """No term of the entry in where factors are read."""

    def factor(self, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
        first = None if descale is None else descale[:1].expand_as(descale)
        return super().factor(name, first, heads)


attention = with_factors(Steps)
