"""Files that take long to make are made once per session of tests, by the first process that needs them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of the given name, which ``make`` fills; other processes that need it wait.

    Args:
        temporary: the fixture ``tmp_path_factory``.
        name: of the folder, the same in all processes.
        make: called with the empty folder; if it fails, the next process tries it again.
    """
    base = temporary.getbasetemp()
    # A worker of xdist has its folder inside the folder of the session.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    finished = folder.with_suffix(".finished")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            make(folder)
            finished.touch()
    return folder
