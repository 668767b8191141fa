"""Failing cases as files, which the command writes and ``theorems verify ID --data FILE`` reads."""

from __future__ import annotations

import re
from pathlib import Path

from reference_attention.files import write_in
from theorems.run.result import Failure


def save(id: str, failure: Failure, directory: Path) -> Path:
    """Write the failing case to a file named by its content, so that the same failure is written only once.

    Args:
        id: the id of the statement.
        failure: the failing case.
        directory: the directory to write to.

    Raises:
        InvalidInput: the directory cannot be written.
    """
    return write_in(directory, f"{file_stem(id)}-*.json", failure.case)


def file_stem(id: str) -> str:
    """Return the part of a file name that stands for a statement's id: ``mine-rate`` for ``dir/mine.py:rate``."""
    file, _, name = id.rpartition(":")
    stem = f"{Path(file).stem}-{name}" if file else name
    return re.sub(r"[^\w.-]+", "-", stem)
