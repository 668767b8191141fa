"""Units of work that raise, exit, hang or misbehave in other ways, for processes that import nothing large."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Sum:
    """Result of :class:`Adding`: the sum of the numbers of the steps, and the process in which they were added."""

    id: str
    value: int = 0
    steps: int = 0
    failed: str = ""
    process: int = field(default_factory=os.getpid, compare=False)

    @property
    def summary(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Adding:
    """A unit that adds the numbers from 1 to ``steps``, slowly; at step ``at`` it misbehaves as ``manner`` says, and a
    file in ``folder`` records each step.
    """

    id: str
    steps: int = 4
    manner: str = ""
    at: int = 3
    folder: str = ""
    so_far: Sum | None = None
    foreign: bool = False
    together: str = ""

    def where(self, done: int | None) -> str:
        return f"at step {(done or 0) + 1}"

    @property
    def total(self) -> int | None:
        return self.steps

    def run(self, progress: Any) -> Sum:
        total = Sum(self.id)
        for step in range(1, self.steps + 1):
            self._begin(step)
            if step == self.at:
                self._misbehave()
            total = Sum(self.id, total.value + step, step)
            progress(step, total)
        return total

    def unfinished_result(self, why: str) -> Sum:
        total = self.so_far or Sum(self.id)
        return Sum(self.id, total.value, total.steps, why or "interrupted")

    def _begin(self, step: int) -> None:
        if self.folder:
            with (Path(self.folder) / self.id).open("a") as file:
                file.write(f"{step}\n")
            time.sleep(0.3)

    def _misbehave(self) -> None:
        if self.manner == "raises":
            raise ZeroDivisionError("by nothing")
        if self.manner == "exits":
            os._exit(7)
        if self.manner == "is killed" or (self.manner == "is killed once" and self._count() == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.manner == "is killed within a message" and self._count() == 1:
            half_a_message()
        if self.manner == "hangs":
            time.sleep(60)
        if self.manner == "follows a null pointer":
            ctypes.string_at(0)
        if self.manner == "leaves a child":
            # This process ends, while its child keeps all open files open.
            if os.fork():
                os._exit(0)
            time.sleep(60)
        if self.manner == "closes everything":
            os.closerange(3, 256)
            time.sleep(60)
        if self.manner == "sends rubbish":
            for descriptor in range(3, 32):
                with suppress(OSError):
                    os.write(descriptor, b"\0rubbish\n")
            time.sleep(60)

    def _count(self) -> int:
        return (Path(self.folder) / self.id).read_text().split().count(str(self.at))


@dataclass(frozen=True)
class Text:
    """Result of :class:`Letters`: the letters in order."""

    id: str
    text: str = ""
    failed: str = ""

    @property
    def summary(self) -> str:
        return self.text


@dataclass(frozen=True)
class Letters:
    """A unit with a part for each letter of ``text``; it ends after the letter ``last_one``, and a file in ``folder``
    gets a line for each letter that is done.
    """

    id: str
    text: str
    last_one: str = ""
    folder: str = ""
    seconds: float = 0.0
    part: int = 0
    lost: str = ""

    @property
    def total(self) -> int | None:
        return len(self.text)

    def parts(self) -> Sequence[Letters]:
        if self.part or len(self.text) < 2:
            return [self]
        return [replace(self, text=letter, part=k) for k, letter in enumerate(self.text)]

    def run(self, progress: Any) -> Text:
        assert len(self.text) == 1
        time.sleep(self.seconds)
        if self.folder:
            with (Path(self.folder) / self.id).open("a") as file:
                file.write(f"{self.text}\n")
        return Text(self.id, self.text)

    def unfinished_result(self, why: str) -> Text:
        return Text(self.id, "", why or "interrupted")

    def join(self, first: Text, then: Text) -> Text:
        return Text(self.id, first.text + then.text, first.failed or then.failed)

    def last(self, result: Text) -> bool:
        return result.text == self.last_one

    def conclude(self, result: Text) -> Text:
        return replace(result, text=f"<{result.text}>")


def double(value: Any) -> int:
    """Return twice the value; refuse None, and end the process for "die"."""
    if value == "die":
        os._exit(0)
    if value is None:
        raise InvalidInput("give something.")
    return 2 * value


def doubling(done: int) -> str:
    return f"doubling, step {done}"


def half_a_message() -> None:
    """Write half a message to every open file, then kill this process."""
    for descriptor in range(3, 32):
        with suppress(OSError):
            os.write(descriptor, b'[1, "finished", {"value": ')
    os.kill(os.getpid(), signal.SIGKILL)
