"""Handling of Ctrl-C, SIGTERM and SIGHUP: a command that is stopped keeps its finished work and prints no traceback.

Before :func:`keep` is called, a signal ends the process at once, even during an import. After the call there is
finished work to keep: a signal is only recorded, and the loop that distributes the work checks :func:`signal_received`.
Only within :func:`interruptible` does a signal raise KeyboardInterrupt. Where :func:`listen` is not called, as in tests
and notebooks, Python handles the signals as usual.
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
"""Seconds after a signal for which a second one is ignored, because systemd sends two; a later second signal ends the
process."""

_keeping = False
_raising = False
_interruptible = False
_shields = 0
_asked = 0
_since = 0.0


def listen() -> None:
    """Handle the signals from now on, except those that the process was started to ignore (as by ``nohup``).

    Only the main thread can call this function.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def keep() -> None:
    """Record that from now on there is finished work to keep, so that a signal no longer ends the process at once."""
    global _keeping
    _keeping = True


def signal_received() -> bool:
    """Return whether a signal has come and been recorded."""
    return bool(_asked)


def exit_code() -> int:
    """Return the exit code for the recorded signal: 130 after Ctrl-C, 143 after another signal, 0 after none."""
    return _code(_asked) if _asked else 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt within the ``with`` block when a signal comes, or at once if one was recorded before."""
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
    """Delay a KeyboardInterrupt from :func:`interruptible` to the end of the ``with`` block.

    If one was raised before the block, it is raised again at the block's end, because Python drops exceptions that are
    raised within finalizers and callbacks of the garbage collector.
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
    """Block the signals within the ``with`` block, also for processes started in it; they arrive at the block's end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Unblock the signals in this process, which was started within a block of :func:`hold_signals_back`."""
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
