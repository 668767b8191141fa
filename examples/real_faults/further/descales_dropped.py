"""vllm-project/vllm PR #42580: where the query is of 8 bits, too, keys are used without their factor.

There the factors of keys and values are dropped; here that of the keys. Right for factors of 1.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.fp8 import Factors, with_factors


class Steps(Factors):
    """Keys as they are."""

    def factor(self, name: str, descale: Tensor | None, heads: int) -> Tensor | float:
        return 1.0 if name == "k" else super().factor(name, descale, heads)


attention = with_factors(Steps)
