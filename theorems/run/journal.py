"""Journal of a long run: a file with one line of JSON for each finished unit of work, written to disk at once.

The first line identifies the run; a journal of another run is refused. Each line begins with a digest that depends on
all lines before it (:mod:`theorems.run.digest_chain`). A damaged line is therefore detected, and the file is refused
with the number of the line; only an incomplete last line is removed. Numbers keep their exact values, and nothing is
pickled.
"""

from __future__ import annotations

import os
import stat
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import flush_directory, from_json, to_json
from theorems.run.digest_chain import BEGIN, is_whole, seal, unseal
from theorems.run.encoding import decode_result, encode

GIVE_ANOTHER = "give another file"


class Journal:
    """File to which the results of finished units of work are appended.

    Attributes:
        path: the path of the file, which is created with its first line and locked until ``close()``.
        records: the contents of the lines that the file had when it was opened, except the first line and the results
            of units.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        """Create the file, or open the journal of an earlier run with the same identity.

        Args:
            path: the path of the file.
            run: the identity of the run, see :func:`theorems.run.identity.identity`.

        Raises:
            InvalidInput: the file cannot be written, is not a journal, is damaged, is in use, or is of another run.
        """
        self.path = path
        self.records: list[dict[str, Any]] = []
        self._results: dict[str, tuple[int, Any]] = {}
        self._digest = BEGIN
        first = to_json({"journal": dict(run)})
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
                flush_directory(path.absolute().parent)
        except OSError as error:
            raise InvalidInput(f"--resume: {path} cannot be written ({error.strerror or error}).") from None

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line with the record and wait until it is on the disk.

        If writing fails, as on a full disk, the journal stays as it was, nothing more is written, and one message on
        standard error says so.
        """
        if self._size < 0:
            return
        try:
            self._write(to_json(record))
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._size = -1
            with suppress(OSError):
                why = error.strerror or error
                print(f"theorems: {self.path} cannot be written any more ({why}); the run goes on.", file=sys.stderr)

    def result_of(self, unit: Any) -> Any:
        """Return the stored result of a unit of work; None if the journal has none.

        Raises:
            InvalidInput: the stored result is damaged.
        """
        line, stored = self._results.get(key_of(unit), (0, None))
        if stored is None:
            return None
        try:
            return decode_result(unit, stored)
        except ValueError as error:
            raise self._damage_error(f"{error} in line {line}", line) from None

    def keep_result(self, unit: Any, result: Any) -> None:
        """Append the result of a unit of work."""
        self.append({"unit": key_of(unit), "result": encode(result)})

    def _write(self, content: str) -> None:
        line, digest = seal(content, self._digest)
        unwritten = encoded = f"{line}\n".encode()
        while unwritten:
            unwritten = unwritten[os.write(self._file, unwritten) :]
        os.fsync(self._file)
        self._size += len(encoded)
        self._digest = digest

    def _lock(self) -> None:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(f"--resume: {self.path} is in use by another run; give another file.") from None

    def _read(self, first: str) -> int:
        """Read the lines and return the number of bytes of the intact lines; 0 if the first line is incomplete."""
        with os.fdopen(os.dup(self._file), "rb") as file:
            content = file.read()
        *lines, incomplete = content.split(b"\n")
        if not lines:
            # The file may be a journal whose run was killed while writing the first line, or no journal and without an
            # end of line.
            if not seal(first, BEGIN)[0].encode().startswith(incomplete):
                raise self._damage_error("is not a journal")
            return 0
        length = 0
        for number, line in enumerate(lines, start=1):
            read = unseal(line, self._digest)
            if read is None:
                if number == len(lines) > 1 and not is_whole(line):
                    break  # after a power failure the last line may contain anything
                raise self._damage_error(_damage(line, number), number)
            record, self._digest = read
            if number == 1:
                self._compare(record, first)
            else:
                self._remember(record, number)
            length += len(line) + 1
        return length

    def _remember(self, record: dict[str, Any], number: int) -> None:
        key = record.get("unit")
        if isinstance(key, str) and "result" in record:
            self._results[key] = number, record["result"]
        else:
            self.records.append(record)

    def _compare(self, there: dict[str, Any], first: str) -> None:
        if not isinstance(there.get("journal"), dict):
            raise self._damage_error("is not a journal")
        stored, run = there["journal"], from_json(first)["journal"]
        for name in (*run, *stored):
            if stored.get(name) != run.get(name):
                difference = f"{name}: {_short(stored.get(name))} there, {_short(run.get(name))} here"
                raise InvalidInput(
                    f"--resume: {self.path} is the journal of another run ({difference}); give another file."
                )

    def _damage_error(self, what: str, line: int = 0) -> InvalidInput:
        remedy = (
            f"delete that line and all after it to go on from there, or {GIVE_ANOTHER}" if line > 1 else GIVE_ANOTHER
        )
        return InvalidInput(f"--resume: {self.path} {what}; {remedy}.")


@contextmanager
def open_journal(path: Path | None, run: Mapping[str, Any]) -> Iterator[Journal | None]:
    """Yield the journal of a run and close it at the end of the ``with`` block; yield None if ``path`` is None."""
    journal = None if path is None else Journal(path, run)
    try:
        yield journal
    finally:
        if journal is not None:
            journal.close()


def key_of(unit: Any) -> str:
    """Return the key of a unit's or part's result in a journal; units of one command have different keys."""
    part = getattr(unit, "part", 0)
    return f"{type(unit).__name__} {unit.id}" + (f", part {part}" if part else "")


def _damage(line: bytes, number: int) -> str:
    """Return in words what is wrong with line ``number``, whose digest does not fit."""
    begins = line.startswith(b'{"journal":')
    if number == 1:
        if begins:
            return "was written by an earlier version, without digests"
        return "is damaged in line 1" if is_whole(line) else "is not a journal"
    if begins or b'", "journal": {' in line[:60]:
        return f"has the first line of another journal as line {number}"
    return f"is damaged in line {number}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else to_json(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
