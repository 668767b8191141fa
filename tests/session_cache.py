"""Folders that take long to fill: the first process of a test session that needs one fills it, for all processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that ``make`` has filled; wait while another process fills it.

    Args:
        temporary: pytest's fixture ``tmp_path_factory``.
        name: the folder's name, the same in all processes.
        make: fills the empty folder; if it fails, the next process tries again.
    """
    base = temporary.getbasetemp()
    # pytest-xdist gives each worker process a folder inside that of the session.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    finished = folder.with_suffix(".finished")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            make(folder)
            finished.touch()
    return folder
