"""A command about a statement in somebody's file, as a whole in another process: what it prints is printed here."""

from __future__ import annotations

import importlib
import io
import signal
import sys
from collections.abc import Callable
from typing import Any

from max_margin_theorems import stopping
from theorems.run.apart import apart
from theorems.run.verify import Progress


class _Printed(io.StringIO):
    """What is printed, for a terminal if this process has one."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def away(function: str, request: Any, where: Callable[[int], str], patience: float) -> int:
    """The exit code of ``MODULE:NAME(request, progress)`` there.

    Args:
        where: says of how many steps are done what a sentence calls the next one.
        patience: seconds that it may go without a word.

    Raises:
        InvalidInput: it raised one.
        Died: it ended the process, or was ended.
    """
    with apart(1, patience) as here:
        asked = here.ask(f"{__name__}:printed", function, request, sys.stdout.isatty(), where=where, settles=True)
    code, text = asked
    sys.stdout.write(text)
    return int(code)


def printed(progress: Progress, function: str, request: Any, terminal: bool) -> tuple[int, str]:
    """The exit code, and what was printed; a signal ends it with what is finished, as it does everywhere."""
    stopping.listen()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping.SIGNALS)
    module, _, name = function.partition(":")
    own, sys.stdout = sys.stdout, _Printed(terminal)
    try:
        code = getattr(importlib.import_module(module), name)(request, progress)
        return code, sys.stdout.getvalue()
    finally:
        sys.stdout = own
