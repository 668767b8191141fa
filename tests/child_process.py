"""Run Python code in a forked process, which need not import again what this process has imported; torch
takes seconds.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

LONGEST = 300
"""Seconds after which a child is ended."""


def in_a_fork(
    work: Callable[[], int], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call a function in a child of this process; return its exit status and its output on both streams.

    Args:
        work: returns the exit status.
        folder: where the child is.
        environment: what is changed in it.
    """
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                # A lock that another thread of the parent holds would never be released here.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(LONGEST)
                gc.freeze()  # the parent's objects are not garbage, and a search among them would copy their memory
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until it ends
                os.chdir(folder)
                os.environ.update(environment or {})
                status = int(work())
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                # Skip everything of the parent's that runs at its end: fixtures and exit handlers.
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        file.seek(0)
        printed = file.read().decode("utf-8")
    return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(ended), printed, "")
