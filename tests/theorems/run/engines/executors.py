"""An executor of threads or processes in place of a cluster."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from theorems.run.engines.dask_task import Answer
from theorems.run.engines.task import Task, work


class OnExecutor:
    """An engine on an executor, with the methods of :class:`theorems.run.engines.dask_cluster.OnDask`."""

    def __init__(self, executor: Executor) -> None:
        self.executor: Any = executor

    def submit(self, task: Task) -> Answer:
        return self.executor.submit(work, task)

    def look(self) -> str:
        return ""

    def back(self) -> str:
        return ""

    def close(self) -> None:
        """Do nothing: the executor belongs to the caller."""
