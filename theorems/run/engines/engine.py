"""What an engine is: it takes tasks and answers with futures. Any ``concurrent.futures.Executor`` is one."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Protocol, runtime_checkable

from theorems.run.engines.task import Message, Task, work

Answer = Future[Message]

WINDOW = 1000
"""Tasks that are handed out at a time: more than the cores of most clusters, and few enough to be taken back."""


@runtime_checkable
class Engine(Protocol):
    """Takes tasks; ``window`` at a time at most."""

    window: int

    def submit(self, task: Task) -> Answer:
        """Its answer."""

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

    def submit(self, task: Task) -> Answer:
        """The future of the executor."""
        return self.executor.submit(work, task)

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
