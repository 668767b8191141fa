"""Task submitted to Dask, with a future that ends even if Dask loses the task."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from theorems.run.engines.task import Message, Task, work

Answer = Future[Message]

OVER = ("memory", "erred")
"""The scheduler's names for the two states of a finished task: its result is kept, or it raised an error."""


@dataclass(eq=False)
class SubmittedTask:
    """Task submitted to Dask.

    Attributes:
        future: Dask's future for the task; it may never end.
        answer: our future for the task; it keeps the first result or error that it is given.
        known: whether the scheduler has reported that it has the task.
        unconfirmed: whether at the last check the scheduler reported the task as finished while Dask's future was still
            waiting.
    """

    future: Any
    answer: Answer = field(default_factory=Future[Message])
    known: bool = False
    unconfirmed: bool = False

    def is_lost(self, status: str | None) -> bool:
        """Return whether Dask lost the task, given its ``status`` at the scheduler (None if it has no such task).

        A task is lost if the scheduler no longer knows it, or if it was finished at two successive checks while Dask's
        future still waits. A task is not lost if the scheduler never reported it, or reports it as finished for the
        first time: a message about the task may be under way.
        """
        if status is None:
            return self.known and not self.answer.done()
        self.known = True
        before, self.unconfirmed = self.unconfirmed, status in OVER and self.future.status == "pending"
        return before and self.unconfirmed

    def abandon(self, why: str) -> None:
        """End our future with an error that says ``why``, since no result will come."""
        with suppress(InvalidStateError):
            self.answer.set_exception(ConnectionError(why))

    async def deliver(self) -> None:
        """Wait for the task's result, fetch it, and end our future with it.

        Dask's own executor does not report that fetching a result failed, so that its caller would wait forever.
        """
        try:
            result = await self.future.client.gather(self.future, asynchronous=True)
        except (asyncio.CancelledError, CancelledError) as error:
            self.abandon(getattr(error, "reason", None) or "cancelled")
        except OSError:
            self.abandon("its result could not be fetched")
        except Exception as error:
            with suppress(InvalidStateError):
                self.answer.set_exception(error)
        else:
            with suppress(InvalidStateError):
                self.answer.set_result(result)

    def release(self, _: Answer) -> None:
        """Release the task: the scheduler forgets it, and cancels it if it is unfinished."""
        with suppress(RuntimeError):  # the client is closed already
            self.future.release()


def submit(client: Any, task: Task) -> SubmittedTask:
    """Submit a task to a Dask client.

    Raises:
        Exception: an error raised by Dask after the client has lost its scheduler.
    """
    # ``pure=False``: Dask must not reuse an earlier task with equal arguments, such as a lost one.
    submission = SubmittedTask(client.submit(work, task, pure=False))
    submission.answer.add_done_callback(submission.release)
    client.loop.add_callback(submission.deliver)
    return submission
