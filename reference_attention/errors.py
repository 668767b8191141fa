"""The one error that bad input raises."""

from __future__ import annotations


class InvalidInput(ValueError):
    """Data, arguments or files that no statement can be checked on.

    The message is one sentence that names the array (or argument) and the fix; the command prints it
    without a traceback and exits with code 2.
    """
