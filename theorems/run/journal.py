"""The journal of a long run: JSON lines, one for every unit of work as it finishes, on the disk before the next.

The first line says which run it is of, and a journal of another run is refused. A line that was cut off is cut away.
Numbers are exact; nothing is pickled.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems.run.encoding import decode, encode, result_kind, so_far_kind

EVERY = 1.0
"""Seconds between two lines about a unit that is under way."""


class Journal:
    """A file to which what is finished is appended.

    Attributes:
        path: of the file; it is made with its first line, and stays locked until ``close()``.
        records: what it held when it was opened, without the first line and the lines about units.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        """Begin a journal, or go on with one.

        Args:
            run: what the results depend on, by name.

        Raises:
            InvalidInput: the file cannot be written, is no journal, is damaged, in use, or of another run.
        """
        self.path = path
        self.records: list[dict[str, Any]] = []
        self._results: dict[str, Any] = {}
        self._so_far: dict[str, Any] = {}
        self._said: dict[str, float] = {}
        first = to_json({"journal": dict(run)}) + "\n"
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            self.close = weakref.finalize(self, os.close, self._file)
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise InvalidInput(f"--resume: {path} is not a regular file; give another file.")
            self._lock()
            self._size = self._read(first)
            os.ftruncate(self._file, self._size)
            if not self._size:
                self._write(first)
        except OSError as error:
            raise InvalidInput(f"--resume: {path} cannot be written ({error.strerror or error}).") from None

    def append(self, record: Mapping[str, Any]) -> None:
        """A line more, on the disk when this returns. Where the disk is full the journal stays as it is, and says so
        once.
        """
        if self._size < 0:
            return
        try:
            self._write(to_json(record) + "\n")
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._size = -1
            with suppress(OSError):
                why = error.strerror or error
                print(f"theorems: {self.path} cannot be written any more ({why}); the run goes on.", file=sys.stderr)

    def result_of(self, unit: Any) -> Any:
        """The result of a unit that is finished; None if it is not."""
        held = self._results.get(key_of(unit))
        return None if held is None else self._structure(held, result_kind(unit))

    def resume(self, unit: Any) -> Any:
        """The unit with what need not be done again."""
        held = self._so_far.get(key_of(unit))
        if held is None:
            return unit
        return replace(unit, so_far=self._structure(held, so_far_kind(unit)))

    def keep_result(self, unit: Any, result: Any) -> None:
        """Keep the result of a unit."""
        self.append({"unit": key_of(unit), "result": encode(result)})

    def so_far(self, unit: Any, *, at_once: bool = False) -> None:
        """Keep what there is of a unit, if there was no line about it for a while, or at once."""
        held, key = getattr(unit, "so_far", None), key_of(unit)
        now = time.monotonic()
        if held is None or (not at_once and now - self._said.setdefault(key, now) < EVERY):
            return
        self._said[key] = now
        self.append({"unit": key, "so_far": encode(held)})

    def _write(self, line: str) -> None:
        left = content = line.encode()
        while left:
            left = left[os.write(self._file, left) :]
        os.fsync(self._file)
        self._size += len(content)

    def _structure(self, held: Any, kind: Any) -> Any:
        try:
            return decode(held, kind)
        except ValueError as error:
            raise self._damage_error(str(error)) from None

    def _lock(self) -> None:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(f"--resume: {self.path} is in use by another run; give another file.") from None

    def _read(self, first: str) -> int:
        """Read the lines; the length of what is whole, 0 where not even the first line is."""
        with os.fdopen(os.dup(self._file), "rb") as file:
            content = file.read()
        *lines, rest = content.split(b"\n")
        if not lines:
            # Killed within its first line, or somebody's file without an end of line.
            if not first.encode().startswith(rest):
                raise self._damage_error("is no journal")
            return 0
        self._compare(_object(lines[0]), json.loads(first))
        length = len(lines[0]) + 1
        for number, line in enumerate(lines[1:], start=2):
            record = _object(line)
            if record is None:
                if number == len(lines):
                    break  # a machine that lost its power may leave anything at the end
                raise self._damage_error(f"is damaged in line {number}")
            self._remember(record)
            length += len(line) + 1
        return length

    def _remember(self, record: dict[str, Any]) -> None:
        key = record.get("unit")
        if isinstance(key, str) and "result" in record:
            self._results[key] = record["result"]
        elif isinstance(key, str) and "so_far" in record:
            self._so_far[key] = record["so_far"]
        else:
            self.records.append(record)

    def _compare(self, there: dict[str, Any] | None, here: dict[str, Any]) -> None:
        if there is None or not isinstance(there.get("journal"), dict):
            raise self._damage_error("is no journal")
        held, run = there["journal"], here["journal"]
        for name in (*run, *held):
            if held.get(name) != run.get(name):
                said = f"{name}: {_short(held.get(name))} there, {_short(run.get(name))} here"
                raise InvalidInput(f"--resume: {self.path} is the journal of another run ({said}); give another file.")

    def _damage_error(self, what: str) -> InvalidInput:
        return InvalidInput(f"--resume: {self.path} {what}; give another file.")


@contextmanager
def open_journal(path: Path | None, run: Mapping[str, Any]) -> Iterator[Journal | None]:
    """The journal of a run, which ends with the block; None where none is kept."""
    journal = None if path is None else Journal(path, run)
    try:
        yield journal
    finally:
        if journal is not None:
            journal.close()


def key_of(unit: Any) -> str:
    """Names a unit, or a part of one, among all of a command."""
    part = getattr(unit, "part", 0)
    return f"{type(unit).__name__} {unit.id}" + (f", part {part}" if part else "")


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        held = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) else None


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else to_json(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
