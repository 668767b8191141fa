"""A Dask cluster on this machine, whose scheduler and workers are processes that tests can kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.places import ROOT

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port() -> int:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return int(port.getsockname()[1])


class Cluster:
    """A scheduler, and workers of one thread each without a nanny: a worker that is killed does not come back."""

    def __init__(self, folder: Path, workers: int, **settings: str) -> None:
        self._settings = settings
        self.address = f"127.0.0.1:{free_port()}"
        self._folder = folder
        self._scheduler = self._started()
        self.workers = [self.worker() for _ in range(workers)]

    def worker(self) -> subprocess.Popen[bytes]:
        """Start another worker; it is registered some seconds later."""
        return self._start("dask_worker", f"tcp://{self.address}", "--nthreads", "1", "--no-nanny")

    def wait(self) -> None:
        """Wait until all workers are registered."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=60)

    def kill_worker(self) -> None:
        """Kill the first worker with signal 9, and start another in its place."""
        self._kill(self.workers.pop(0))
        self.workers.append(self.worker())

    def stop_worker(self) -> None:
        """Suspend the first worker, without ending it."""
        os.kill(self.workers[0].pid, signal.SIGSTOP)

    def restart(self) -> None:
        """Kill the scheduler, and start it at the same address with as many workers."""
        self._kill(self._scheduler)
        self._scheduler = self._started()
        for worker in self.workers:
            self._kill(worker)
        self.workers = [self.worker() for _ in self.workers]

    def stop(self) -> None:
        for process in [*self.workers, self._scheduler]:
            self._kill(process)

    def _started(self) -> subprocess.Popen[bytes]:
        host, _, port = self.address.partition(":")
        scheduler = self._start("dask_scheduler", "--host", host, "--port", port)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection((host, int(port)), 1):
                return scheduler
            time.sleep(0.05)
        raise TimeoutError("the scheduler does not start")

    def _start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *options, "--no-dashboard"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **self._settings}
        return subprocess.Popen(command, cwd=self._folder, env=environment, start_new_session=True, **QUIET)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
