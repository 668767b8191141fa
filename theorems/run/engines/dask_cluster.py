"""Dask as an engine: it runs units of work on a running cluster, given the address of the cluster's scheduler."""

from __future__ import annotations

import logging
import re
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.run.engines.dask_task import Answer, SubmittedTask, submit
from theorems.run.engines.task import Task

CONNECTING = 10.0
"""Seconds within which the scheduler must answer when the client connects."""
AWAY = 60.0
"""Seconds that the scheduler may be unreachable during a run, for instance while it is restarted."""
LONELY = 5.0
"""Seconds without workers after which a message tells the user that there are none."""
OFTEN = 1.0
"""Smallest number of seconds between two checks of whether the scheduler still has our tasks."""
ASKING = 2.0
"""Seconds to wait for an answer of the scheduler, which counts as unreachable only after :data:`AWAY`."""


class OnDask:
    """Workers of a Dask cluster; each submitted task gives a future for the worker's answer.

    Dask does not report every lost task. Therefore the scheduler is asked regularly for its id and for the states of
    the tasks. If the scheduler was restarted (its id has changed) or does not answer, the client is closed, and its
    tasks count as lost.
    """

    def __init__(self, scheduler: str, away: float = AWAY) -> None:
        """Connect to the scheduler.

        Args:
            scheduler: the scheduler's address, HOST:PORT.
            away: seconds that the scheduler may be unreachable.

        Raises:
            InvalidInput: Dask is not installed, or no scheduler answers at the address.
        """
        if not re.fullmatch(r"[^\s/]+:\d{1,5}", scheduler):
            raise InvalidInput(f"--engine dask://{scheduler}: give the scheduler's address, dask://HOST:PORT.")
        try:
            import distributed
        except ImportError:
            raise InvalidInput('--engine dask://: needs Dask: pip install "max-margin-theorems[dask]"') from None
        # Silence Dask's log messages about lost connections; we print one sentence instead.
        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._distributed: Any = distributed
        self._scheduler = scheduler
        self._away = away
        self._out: list[SubmittedTask] = []
        self._alone_since: float | None = time.monotonic()
        self._looked = self._heard = 0.0
        self._id = ""
        try:
            self._connect(CONNECTING)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidInput(
                f"--engine dask://{scheduler}: no scheduler answers there ({reason}); start one, or give its address."
            ) from None

    def submit(self, task: Task) -> Answer:
        """Submit a task and return a future for the worker's answer; tasks run in the order of submission."""
        try:
            submission = submit(self._client, task)
        except Exception as error:
            refused: Answer = Future()
            refused.set_exception(error)
            return refused
        self._out.append(submission)
        return submission.answer

    def look(self) -> str:
        """End the futures of lost tasks; return a message after :data:`LONELY` seconds without workers, else "".

        The caller should call this method often; the scheduler is asked at most every :data:`OFTEN` seconds.
        """
        now = time.monotonic()
        if now - self._looked < OFTEN:
            return ""
        identity = self._identity()
        if why := self._why_unusable(identity):
            self._let_go(why)
        self._looked = time.monotonic()
        if self._alone_since is None or identity is None:
            return ""
        if identity["workers"]:
            self._alone_since = None
        elif now - self._alone_since > LONELY:
            self._alone_since = None
            return f"the scheduler at {self._scheduler} has no workers yet; waiting for them."
        return ""

    def back(self) -> str:
        """Reconnect if the scheduler was unreachable or restarted; return why this failed, else an empty string.

        Call this method after a task was lost.
        """
        identity = self._identity()
        if identity is not None and identity["id"] == self._id and self._client.status == "running":
            return ""
        until = time.monotonic() + self._away
        self._let_go("the scheduler was away")
        while time.monotonic() < until:
            try:
                self._connect(min(2.0, self._away))
            except (OSError, ValueError):
                time.sleep(0.2)
            else:
                return ""
        return f"the scheduler at {self._scheduler} was away for {self._away:g} s"

    def close(self) -> None:
        """Cancel the unfinished tasks and disconnect from the cluster, which goes on running."""
        self._let_go("the run is over")

    def _why_unusable(self, identity: dict[str, Any] | None) -> str:
        """Return why this client cannot be used any more; return an empty string if it can."""
        if identity is not None and identity["id"] != self._id:
            return "the scheduler was restarted"
        self._out = [submission for submission in self._out if not submission.answer.done()]
        states = identity and self._ask_scheduler(
            "get_task_status", keys=[submission.future.key for submission in self._out]
        )
        comm = self._client.scheduler_comm
        if self._client.status == "running" and (comm is None or comm.closed()):
            return "the connection to the scheduler was lost"
        if states is None or self._client.status != "running":
            silent = self._client.status == "closed" or time.monotonic() - self._heard > self._away
            return "the scheduler does not answer" if silent else ""
        self._heard = time.monotonic()
        forgotten = [submission for submission in self._out if submission.is_lost(states.get(submission.future.key))]
        return "the scheduler lost the task" if forgotten else ""

    def _connect(self, timeout: float) -> None:
        self._client = self._distributed.Client(
            self._scheduler, timeout=timeout, set_as_default=False, name="theorems", heartbeat_interval=1000
        )
        identity = self._identity()
        if identity is None:
            self._let_go("the scheduler does not answer")
            raise OSError("it does not send its id")
        self._id = identity["id"]
        self._heard = time.monotonic()

    def _identity(self) -> dict[str, Any] | None:
        """Return the scheduler's description of itself, which contains its id; None if no scheduler answers."""
        return self._ask_scheduler("identity", n_workers=1)

    def _ask_scheduler(self, question: str, **about: Any) -> Any:
        with suppress(Exception):
            return self._client.sync(getattr(self._client.scheduler, question), callback_timeout=ASKING, **about)
        return None

    def _let_go(self, why: str) -> None:
        for submission in self._out:
            submission.abandon(why)
        self._out = []
        with suppress(Exception):
            self._client.close(timeout=2)
