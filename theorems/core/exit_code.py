"""Exit codes of the command ``theorems``."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit code of the command."""

    UPHELD = 0
    """All statements are upheld or not applicable, and at least one is upheld."""
    FALSIFIED = 1
    BAD_INPUT = 2
    """The options, arguments or data of the command are wrong."""
    INCONCLUSIVE = 3
    """A statement could not be decided, or no statement could be checked."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
