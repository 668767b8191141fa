"""Failing cases as files: written by the command, read back by ``theorems verify ID --data FILE``."""

from __future__ import annotations

import re
from pathlib import Path

from reference_attention.files import write_in
from theorems.run.result import Failure


def save(id: str, failure: Failure, directory: Path) -> Path:
    """Write the case; the name follows from its content, so that the same failure is the same file.

    Raises:
        InvalidInput: the directory cannot be written.
    """
    return write_in(directory, f"{file_stem(id)}-*.json", failure.case)


def file_stem(id: str) -> str:
    """A statement's id as part of a file name: ``dir/mine.py:rate`` becomes ``mine-rate``."""
    file, _, name = id.rpartition(":")
    stem = f"{Path(file).stem}-{name}" if file else name
    return re.sub(r"[^\w.-]+", "-", stem)
