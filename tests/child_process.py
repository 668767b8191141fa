"""Python code in a fork of this process, which need not import torch and other packages again."""

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
"""Seconds after which a fork is ended."""


def in_a_fork(
    work: Callable[[], int], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call a function in a fork of this process; return the exit status and what was printed to standard output and
    error.

    Args:
        work: the function, which returns the exit status.
        folder: the working directory of the fork.
        environment: environment variables to set in the fork.
    """
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                # End the fork in any case: a lock that another thread of the parent holds is never released here.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(LONGEST)
                gc.freeze()  # a search for garbage among the parent's objects would copy their memory
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
                # End without the parent's fixtures and exit handlers, which would run at a normal exit.
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        file.seek(0)
        printed = file.read().decode("utf-8")
    return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(ended), printed, "")
