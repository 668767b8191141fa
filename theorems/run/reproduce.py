"""Files of failing cases: the command writes them, and ``theorems verify ID --data FILE`` reads them."""

from __future__ import annotations

import re
from pathlib import Path

from reference_attention.files import write_in


def save(id: str, case: str | bytes, directory: Path) -> Path:
    """Write a failing case to a file and return the file's path.

    The file's name contains a digest of the case, so that the same case is written only once.

    Args:
        id: the id of the statement.
        case: the failing case as JSON, or as the bytes of a .npz file.
        directory: the directory to write to.

    Raises:
        InvalidInput: the directory cannot be written.
    """
    return write_in(directory, f"{file_stem(id)}-*.{'json' if isinstance(case, str) else 'npz'}", case)


def file_stem(id: str) -> str:
    """Return a statement's id in the form for a file's name: ``mine-rate`` for the id ``dir/mine.py:rate``."""
    file, _, name = id.rpartition(":")
    stem = f"{Path(file).stem}-{name}" if file else name
    return re.sub(r"[^\w.-]+", "-", stem)
