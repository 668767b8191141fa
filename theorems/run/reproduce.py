"""Failing cases as files: written by the command, read back by ``theorems verify ID --data FILE``."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from reference_attention.errors import InvalidInput
from reference_attention.files import write_text
from theorems.run.result import Failure

DIRECTORY = Path("falsified")
"""Where failing cases go unless told otherwise."""


def check_directory(directory: Path) -> None:
    """Refuse a directory that is a file, before anything runs.

    Raises:
        InvalidInput: it exists and is no directory.
    """
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"{directory}: is not a directory; give another one for failing cases.")


def save(id: str, failure: Failure, directory: Path) -> Path:
    """Write the case; the name follows from its content, so that the same failure is the same file.

    Raises:
        InvalidInput: the directory cannot be written.
    """
    name = f"{file_stem(id)}-{hashlib.sha256(failure.case.encode()).hexdigest()[:10]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{directory}: cannot be made ({error.strerror or error}).") from None
    write_text(directory / name, failure.case)
    return directory / name


def file_stem(id: str) -> str:
    """A statement's id as part of a file name: ``dir/mine.py:rate`` becomes ``mine-rate``."""
    file, _, name = id.rpartition(":")
    stem = f"{Path(file).stem}-{name}" if file else name
    return re.sub(r"[^\w.-]+", "-", stem)
