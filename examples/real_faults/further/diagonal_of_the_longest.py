"""ROCm/rocm-libraries PR #10999: the diagonal of each sequence is where that of the longest ones is.

T − L is taken of the longest sequences, not of each. Right without ``causal``, and where all have one length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from examples.real_faults.further.rows import Rows
from examples.real_faults.further.varlen import Packed, with_varlen


@dataclass(frozen=True)
class Diagonal(Rows):
    """Rows whose diagonal is given.

    Attributes:
        apart: the key at which the first row stands.
    """

    apart: int = 0

    def ahead(self, rows: int, keys: int) -> Tensor:
        return super().ahead(rows, keys) + (keys - rows) - self.apart


class Steps(Packed):
    """One diagonal for all."""

    def of_sequence(self, rows: Rows, longest: tuple[int, int]) -> Rows:
        return replace(Diagonal(rows.scale, rows.causal), apart=longest[1] - longest[0])


attention = with_varlen(Steps)
