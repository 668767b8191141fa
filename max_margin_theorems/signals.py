"""Ctrl-C, SIGTERM and SIGHUP: a command that is asked to stop keeps what is finished, and prints no traceback.

Before there is anything to keep it ends at once, within an import too. Afterwards the request is noted, for the loop
that hands out the work to find; only within :func:`interruptible` is it raised, as KeyboardInterrupt. Where nobody
listens (a test, a notebook) Ctrl-C is Python's own KeyboardInterrupt, and everything else is as before.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
IMPATIENT = 2.0
"""Seconds after which a second signal ends what is still being written; systemd sends two at a time."""

_keeping = False
_raising = False
_interruptible = False
_shields = 0
_asked = 0
_since = 0.0


def listen() -> None:
    """Handle the signals from now on, except those that the caller ignores (``nohup``, a job in the background).

    This works in the main thread only.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def keep() -> None:
    """Note that there is something to keep from now on."""
    global _keeping
    _keeping = True


def signal_received() -> bool:
    """Return whether a signal has been noted."""
    return bool(_asked)


def exit_code() -> int:
    """Return 130 after Ctrl-C, 143 after another signal, 0 after none."""
    return _code(_asked) if _asked else 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt within the block at a signal, also at one noted before: for work in this process."""
    global _raising, _interruptible
    keep()
    _raising = _interruptible = True
    try:
        _raise_noted()
        yield
    finally:
        _raising = _interruptible = False


@contextmanager
def shield_from_signals() -> Iterator[None]:
    """Finish the block as a whole within :func:`interruptible`; a signal is raised at its end.

    It is raised there again if it has been raised before: Python drops an exception within a callback of its garbage
    collector, or a finalizer.
    """
    global _raising, _shields
    before, _raising, _shields = _raising, False, _shields + 1
    try:
        yield
    finally:
        _raising, _shields = before, _shields - 1
    if _interruptible and not _shields:
        _raise_noted()


@contextmanager
def hold_signals_back() -> Iterator[None]:
    """Hold the signals back; processes that are started within the block never hear them. None is lost."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Undo :func:`hold_signals_back` in a process that was started within it."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _code(number: int) -> int:
    return 130 if number == signal.SIGINT else 143


def _raise_noted() -> None:
    if _asked:
        raise KeyboardInterrupt


def _on_signal(number: int, frame: Any) -> None:
    global _asked, _since, _raising
    if not _keeping:
        with suppress(OSError):
            os.write(2, b"theorems: interrupted.\n")
        os._exit(_code(number))
    if not _asked:
        _asked, _since = number, time.monotonic()
    elif time.monotonic() - _since > IMPATIENT:
        os._exit(_code(number))
    if _raising:
        _raising = False
        raise KeyboardInterrupt
