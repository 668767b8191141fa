"""Handling of Ctrl-C, SIGTERM and SIGHUP: a command that is stopped keeps its finished work and prints no traceback.

Before :func:`keep` is called, a signal ends the process at once, even during an import. Afterwards there is finished
work to keep, so a signal is recorded, and the loop that distributes the work checks :func:`signal_received`; only
within :func:`interruptible` does a signal raise KeyboardInterrupt. Without :func:`listen`, as in tests and notebooks,
Python's own handling is unchanged.
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
"""Seconds for which a second signal is ignored, because systemd sends two; later a second signal ends the process."""

_keeping = False
_raising = False
_interruptible = False
_shields = 0
_asked = 0
_since = 0.0


def listen() -> None:
    """Handle the signals from now on, except signals that the caller ignores (as ``nohup`` and background jobs do).

    Only the main thread can call this function.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def keep() -> None:
    """Record that there is finished work to keep from now on."""
    global _keeping
    _keeping = True


def signal_received() -> bool:
    """Return whether a signal has been recorded."""
    return bool(_asked)


def exit_code() -> int:
    """Return the exit code for the recorded signal: 130 after Ctrl-C, 143 after another signal, 0 after none."""
    return _code(_asked) if _asked else 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt within the ``with`` block when a signal comes, or if one was recorded before."""
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
    """Delay the KeyboardInterrupt of :func:`interruptible` to the end of the ``with`` block.

    A KeyboardInterrupt that was already raised is raised again at the end, because Python drops exceptions within
    finalizers and callbacks of the garbage collector.
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
    """Block the signals within the ``with`` block, also for processes started there; they arrive at the block's end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Unblock the signals, in a process that was started within :func:`hold_signals_back`."""
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
