"""A task submitted to Dask, with a future that ends also if Dask loses the task."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from theorems.run.engines.task import Message, Task, work

Answer = Future[Message]

OVER = ("memory", "erred")
"""Names that the scheduler gives to the states of a finished task."""


@dataclass(eq=False)
class SubmittedTask:
    """A submitted task.

    Attributes:
        future: Dask's future.
        answer: our future; it keeps the first result or error that it is given.
        known: whether the scheduler has reported that it has the task.
        unconfirmed: whether the scheduler reported the task as finished at the last check, but not to the client.
    """

    future: Any
    answer: Answer = field(default_factory=Future[Message])
    known: bool = False
    unconfirmed: bool = False

    def is_lost(self, status: str | None) -> bool:
        """Return whether the task is lost, given its ``status`` at the scheduler (None if unknown to the scheduler).

        A task is lost if the scheduler no longer knows it, or if it was finished at two checks while the client still
        waits. A task is not lost if the scheduler never reported it, or reports it as finished for the first time: a
        message about it may be under way.
        """
        if status is None:
            return self.known and not self.answer.done()
        self.known = True
        before, self.unconfirmed = self.unconfirmed, status in OVER and self.future.status == "pending"
        return before and self.unconfirmed

    def abandon(self, why: str) -> None:
        """End the future with an error, since no result will come."""
        with suppress(InvalidStateError):
            self.answer.set_exception(ConnectionError(why))

    async def deliver(self) -> None:
        """Wait for the result, fetch it, and end the future with it.

        Dask's own executor does not report a result that it fails to fetch, so that its caller would wait forever.
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
        Exception: an error of Dask's, after the client has lost its scheduler.
    """
    # Not pure: Dask must not reuse an earlier task with equal arguments, such as a lost one.
    submission = SubmittedTask(client.submit(work, task, pure=False))
    submission.answer.add_done_callback(submission.release)
    client.loop.add_callback(submission.deliver)
    return submission
