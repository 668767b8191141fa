"""The journals of workers: each appends to its own, and the known results are the union of all of them.

A line is a result, its address and a digest of both. Lines of other runs do no harm, nobody asks for their address;
damaged lines are left out, and their units done again.
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
    """Return the folder in which the workers of a run with that journal have theirs."""
    return journal.with_name(f"{journal.name}.workers")


def append(folder: str, address: str, result: Any) -> None:
    """Append a line to the journal of this worker; it is on the disk when this returns.

    Nothing is written where the folder does not exist: a worker that does not see the coordinator's disk only sends its
    results.
    """
    path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}.jsonl"
    line, _ = seal(json.dumps({"address": address, "result": result}), BEGIN)
    with _LOCK, suppress(OSError):
        if not path.parent.is_dir():
            return
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # Its own end of line first: what an earlier writer left may have none.
            rest = f"\n{line}\n".encode()
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        finally:
            os.close(file)


def union(folder: Path | None) -> dict[str, Any]:
    """Return the results of all journals in a folder, by address; where several have one, the first file's is taken.

    Results of one address differ in seconds only.
    """
    results: dict[str, Any] = {}
    for path in sorted(folder.glob("*.jsonl")) if folder and folder.is_dir() else ():
        with suppress(OSError):
            for line in path.read_bytes().split(b"\n"):
                content, _ = unseal(line, BEGIN) or ({}, "")
                if isinstance(content.get("address"), str) and "result" in content:
                    results.setdefault(content["address"], content["result"])
    return results
