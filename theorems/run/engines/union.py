"""Journals of workers: each worker appends results to its own; the known results are those in any of them.

A line has a result, the address of the result (a digest of the unit of work), and a digest of both. Lines of other runs
are ignored, since their addresses differ. Damaged lines are skipped, and the units of these lines run again.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from theorems.run.digest_chain import BEGIN, seal, unseal

_LOCK = threading.Lock()


def folder_of(journal: Path) -> Path:
    """Return the folder for the workers' journals, which lies beside the journal of the run."""
    return journal.with_name(f"{journal.name}.workers")


def append(folder: str, address: str, result: Any) -> None:
    """Append a line with a result and its address to this worker's journal, and wait until the line is on the disk.

    If the folder does not exist, because the worker does not share the coordinator's file system, write nothing.
    """
    path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}.jsonl"
    line, _ = seal(json.dumps({"address": address, "result": result}), BEGIN)
    with _LOCK, suppress(OSError):
        if not path.parent.is_dir():
            return
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # Begin with an end of line: the last line of an interrupted writer may have none.
            unwritten = f"\n{line}\n".encode()
            while unwritten:
                unwritten = unwritten[os.write(file, unwritten) :]
            os.fsync(file)
        finally:
            os.close(file)


def union(folder: Path | None) -> dict[str, Any]:
    """Return the results in all journals of a folder, by address; without a folder, none.

    If several journals have a result for an address, return the result read first; the results differ only in the
    measured seconds.
    """
    results: dict[str, Any] = {}
    for path in sorted(folder.glob("*.jsonl")) if folder and folder.is_dir() else ():
        with suppress(OSError):
            for line in path.read_bytes().split(b"\n"):
                content, _ = unseal(line, BEGIN) or ({}, "")
                if isinstance(content.get("address"), str) and "result" in content:
                    results.setdefault(content["address"], content["result"])
    return results
