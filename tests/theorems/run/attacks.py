"""Attacks by untrusted code on the process that runs the code, and on the process that supervises the former."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pickle
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLEEPERS = "303.5"
"""Seconds that processes sleep, by which tests find them; all must have ended with the run."""


class Evil:
    """An object that writes its process id to a file when it is unpickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return exec, (f"import os; open({self.mark!r}, 'w').write(str(os.getpid()))",)


def on_every_pipe(content: bytes) -> None:
    for descriptor in range(3, 32):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and os.fstat(descriptor).st_ino != os.fstat(2).st_ino:
                os.write(descriptor, content)


def fork_and_return() -> None:
    os.fork()


def fork_away() -> None:
    if os.fork():
        os._exit(0)
    time.sleep(0.3)


def forge(number: int, word: str, value: Any) -> None:
    on_every_pipe(json.dumps([number, word, value]).encode() + b"\n")


def sleeper(**how: Any) -> None:
    subprocess.Popen(["sleep", SLEEPERS], **how)


def twice_removed() -> None:
    """Start a daemon, whose parent and session leader have both ended."""
    subprocess.run(["sh", "-c", f"setsid sh -c 'sleep {SLEEPERS} & exit' & exit"], check=True)


def flood_of_messages() -> None:
    """Send well-formed messages without end."""
    content = (json.dumps([sent_number(), "progressed", 3]).encode() + b"\n") * 1000
    while True:
        on_every_pipe(content)


def flood_without_an_end_of_line() -> None:
    while True:
        on_every_pipe(b"[" * (1 << 16))


def sent_number() -> int:
    """Return the number of the unit of work, which untrusted code can find out."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "serve":
            return int(frame.f_locals["number"])
        frame = frame.f_back
    return 1


def big_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
    gc.disable()
    blocks = []
    while True:
        blocks.append(bytearray(1 << 28))


def noisy_threads() -> None:
    def write() -> None:
        while True:
            on_every_pipe(b"x")
            time.sleep(0.001)

    for _ in range(4):
        threading.Thread(target=write, daemon=True).start()
    time.sleep(0.2)


def deaf_to_signals() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)


def out_of_its_group() -> None:
    """Start a process with its own group and session that gets no signal when its parent ends."""
    with suppress(PermissionError):
        os.setsid()
    ctypes.CDLL(None).prctl(1, 0)
    sleeper(start_new_session=True)
    time.sleep(60)


def no_folder() -> None:
    gone = Path.cwd() / "gone"
    gone.mkdir()
    os.chdir(gone)
    shutil.rmtree(gone)


def patched_numpy() -> None:
    import numpy as np

    np.asarray = np.array = np.isfinite = lambda *args, **named: 1 / 0  # type: ignore[assignment]


def patched_json() -> None:
    json.dumps = lambda *args, **named: "garbage"


DEEDS: dict[str, Callable[[str], Any]] = {
    "forks and returns twice": lambda mark: fork_and_return(),
    "forks and leaves": lambda mark: fork_away(),
    "pickles on every pipe": lambda mark: on_every_pipe(pickle.dumps(("finished", Evil(mark)))),
    "pickles as lines": lambda mark: on_every_pipe(pickle.dumps(Evil(mark), 0) + b"\n"),
    "results of other units": lambda mark: forge(99, "finished", {"id": "right", "value": 7}),
    "a result that is none": lambda mark: forge(sent_number(), "finished", {"id": [], "value": mark}),
    "an old message": lambda mark: forge(0, "finished", {"id": "right", "value": 7}),
    "words of its own": lambda mark: forge(sent_number(), "again", None),
    "deep": lambda mark: on_every_pipe(b"[" * 200_000 + b"\n"),
    "a flood of messages": lambda mark: flood_of_messages(),
    "a flood without an end of line": lambda mark: flood_without_an_end_of_line(),
    "leaves a session": lambda mark: sleeper(start_new_session=True),
    "leaves a daemon": lambda mark: twice_removed(),
    "leaves a session and crashes": lambda mark: [sleeper(start_new_session=True), ctypes.string_at(0)],
    "out of its group": lambda mark: out_of_its_group(),
    "exits": lambda mark: os._exit(0),
    "closed descriptors": lambda mark: os.closerange(0, 256),
    "big memory": lambda mark: big_memory(),
    "noisy threads": lambda mark: noisy_threads(),
    "deaf to signals": lambda mark: deaf_to_signals(),
    "no folder": lambda mark: no_folder(),
    "patched NumPy": lambda mark: patched_numpy(),
    "patched JSON": lambda mark: patched_json(),
    "kills its group": lambda mark: os.killpg(0, signal.SIGKILL),
}
"""The attacks by name: functions of the path of a file that exists only if something was unpickled."""


@dataclass(frozen=True)
class Done:
    """A result with the id of its unit and the sum of two and two."""

    id: str
    value: int = 0
    failed: str = ""

    @property
    def summary(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Doing:
    """A unit of work of untrusted code, which makes the attack named ``id`` and then adds two and two."""

    id: str
    mark: str
    total: int = 1
    foreign: bool = True

    def where(self, done: int | None) -> str:
        return f"at step {done}"

    def run(self, progress: Any) -> Done:
        progress(0)
        if self.id in DEEDS:
            DEEDS[self.id](self.mark)
        progress(1)
        return Done(self.id, 4)

    def unfinished_result(self, why: str) -> Done:
        return Done(self.id, 0, why or "interrupted")


def sleepers() -> list[int]:
    """Return the ids of sleeping processes that attacks have started."""
    alive = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if SLEEPERS.encode() in path.read_bytes().split(b"\0"):
                alive.append(int(path.parent.name))
    return alive


@contextmanager
def no_sleepers() -> Iterator[None]:
    """Assert that no sleeping process is left behind after the block, and end any that are left."""
    try:
        yield
        assert not sleepers()
    finally:
        for pid in sleepers():
            os.kill(pid, signal.SIGKILL)
