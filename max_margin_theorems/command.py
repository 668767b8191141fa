"""The command ``theorems``, which is also called as ``python -m theorems``."""

from __future__ import annotations

import sys

from max_margin_theorems import signals

BAD_INPUT = 2
"""Exit code of bad input; the module that defines it, theorems.core.exit_code, cannot be imported yet."""


def main() -> int:
    """Run the command ``theorems`` and return the exit code.

    If a user's file shadows one of our packages, print a message on standard error and return the exit code of bad
    input.
    """
    signals.listen()
    # Import nothing before listen(): a signal may come at any moment.
    from max_margin_theorems.hidden import shadowing_warning

    warning = shadowing_warning()
    if warning:
        print(f"theorems: {warning}", file=sys.stderr)
        return BAD_INPUT
    from theorems.command.app import main as command

    code = command()
    return signals.exit_code() or code
