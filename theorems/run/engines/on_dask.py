"""Dask: workers of a cluster that is there already, found by the address of its scheduler."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.run.engines.engine import WINDOW, Answer
from theorems.run.engines.task import Task, work

CONNECTING = 10.0
"""Seconds for the scheduler to answer at the beginning."""
AWAY = 60.0
"""Seconds that a scheduler may be away in a run, until it is started again."""
LONELY = 5.0
"""Seconds without workers after which it is said."""


class OnDask:
    """An engine of the workers of a Dask cluster; see :class:`theorems.run.engines.engine.Engine`."""

    window = WINDOW

    def __init__(self, scheduler: str, away: float = AWAY) -> None:
        """Connect.

        Args:
            scheduler: HOST:PORT.
            away: seconds that it may be away.

        Raises:
            InvalidInput: no Dask here, or no scheduler there.
        """
        if not re.fullmatch(r"[^\s/]+:\d{1,5}", scheduler):
            raise InvalidInput(f"--engine dask://{scheduler}: give the scheduler's address, dask://HOST:PORT.")
        try:
            import distributed
        except ImportError:
            raise InvalidInput('--engine dask://: needs Dask: pip install "max-margin-theorems[dask]"') from None
        # What it says of lost connections is said by us, in a sentence.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._distributed: Any = distributed
        self._scheduler = scheduler
        self._away = away
        self._alone_since: float | None = time.monotonic()
        self._looked = 0.0
        try:
            self._connect(CONNECTING)
        except (OSError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidInput(f"--engine dask://{scheduler}: no scheduler answers there ({said}).") from None

    def per_task(self, waiting: int) -> int:
        """One: Dask hands out tasks in a millisecond."""
        return 1

    def submit(self, tasks: Sequence[Task]) -> list[Answer]:
        """One by one, in this order of priority."""
        return [self._executor.submit(work, task) for task in tasks]

    def look(self) -> str:
        """That there are no workers, if there are none for a while."""
        now = time.monotonic()
        if self._alone_since is None or now - self._looked < 1.0:
            return ""
        self._looked = now
        if self._client.scheduler_info(n_workers=1).get("workers"):
            self._alone_since = None
        elif now - self._alone_since > LONELY:
            self._alone_since = None
            return f"the scheduler at {self._scheduler} has no workers yet; waiting for them."
        return ""

    def back(self) -> str:
        """Connect again if the scheduler was away; the tasks that it had are lost."""
        if self._answers():
            return ""
        until = time.monotonic() + self._away
        self._let_go()
        while time.monotonic() < until:
            try:
                self._connect(min(2.0, self._away))
            except (OSError, ValueError):
                time.sleep(0.2)
            else:
                return ""
        return f"the scheduler at {self._scheduler} was away for {self._away:g} s"

    def close(self) -> None:
        """The cluster stays."""
        self._let_go()

    def _connect(self, timeout: float) -> None:
        self._client = self._distributed.Client(
            self._scheduler, timeout=timeout, set_as_default=False, name="theorems", heartbeat_interval=1000
        )
        # The same task on another worker is the same work: nothing of it is to be looked up.
        self._executor = self._client.get_executor(pure=False)

    def _answers(self) -> bool:
        with suppress(Exception):
            self._client.run_on_scheduler(int)
            return self._client.status == "running"
        return False

    def _let_go(self) -> None:
        with suppress(Exception):
            self._client.close(timeout=2)
