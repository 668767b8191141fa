"""Exit codes of the command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the command says to the program that called it."""

    UPHELD = 0
    """All upheld or not applicable, at least one upheld."""
    FALSIFIED = 1
    BAD_INPUT = 2
    """Usage or data."""
    INCONCLUSIVE = 3
    """Something could not be decided, or nothing could be tried."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
