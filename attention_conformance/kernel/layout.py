"""The shapes of the tensors that a kernel is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """The shapes that a kernel requires.

    Attributes:
        rank: 4 for (B, n, 1, d), one point of the batch and one input per pair of leading axes; 3 for (B·n, 1, d).
        square: whether values have exactly d columns; others are padded with zeros and cut into pieces.
    """

    rank: int = 4
    square: bool = False

    def __str__(self) -> str:
        """Return the required shape, and what is done to values, in words."""
        shape = "(B, n, T, d)" if self.rank == 4 else "(B·n, T, d)"
        return f"{shape}, values {'padded to d columns' if self.square else 'of any width'}"


LAYOUTS = (Layout(4, False), Layout(4, True), Layout(3, False), Layout(3, True))
"""Layouts in the order in which they are tried."""
