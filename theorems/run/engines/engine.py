"""What an engine is: it takes tasks and answers with futures. Any ``concurrent.futures.Executor`` is one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Protocol, runtime_checkable

from theorems.run.engines.task import Said, Task, work

Answer = Future[list[Said]]

WINDOW = 1000
"""Tasks that are handed out at a time: more than the cores of most clusters, and few enough to be taken back."""


@runtime_checkable
class Engine(Protocol):
    """Takes tasks; ``window`` at a time at most."""

    window: int

    def per_task(self, waiting: int) -> int:
        """How many of the units that wait go into one task."""

    def submit(self, tasks: Sequence[Task]) -> list[Answer]:
        """Their answers, in their order."""

    def look(self) -> str:
        """Called often; a sentence for the user, if there is one. An answer that will not come is ended here."""

    def back(self) -> str:
        """Called when an answer was lost. It returns once more can be submitted; or a sentence that says why not."""

    def close(self) -> None:
        """Take back what is not done, and let go."""


class OnExecutor:
    """An engine of any executor whose workers can import ``theorems``."""

    window = WINDOW

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def per_task(self, waiting: int) -> int:
        """One: what is done is known at once."""
        return 1

    def submit(self, tasks: Sequence[Task]) -> list[Answer]:
        """One by one."""
        return [self.executor.submit(work, task) for task in tasks]

    def look(self) -> str:
        """Nothing to say."""
        return ""

    def back(self) -> str:
        """An executor that has broken stays broken."""
        try:
            self.executor.submit(int).result()
        except Exception as error:
            return f"the executor is gone ({type(error).__name__}: {error})"
        return ""

    def close(self) -> None:
        """It is the caller's."""
