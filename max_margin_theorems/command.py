"""The command ``theorems``, also as ``python -m theorems``."""

from __future__ import annotations

import sys

from max_margin_theorems import signals

BAD_INPUT = 2
"""theorems.core.exit_code has it too, but cannot be imported yet."""


def main() -> int:
    """Run the command; returns its exit code. A file that hides one of our packages is one sentence on standard
    error; so is a signal.
    """
    signals.listen()
    # Before anything else is imported: a signal may come at any moment.
    from max_margin_theorems.hidden import shadowing_warning

    said = shadowing_warning()
    if said:
        print(f"theorems: {said}", file=sys.stderr)
        return BAD_INPUT
    from theorems.command.app import main as command

    code = command()
    return signals.exit_code() or code
