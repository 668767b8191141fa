"""A task submitted to Dask, with an answer that ends whatever becomes of the task."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from theorems.run.engines.task import Message, Task, work

Answer = Future[Message]

OVER = ("memory", "erred")
"""States of a task that is done, as a scheduler names them."""


@dataclass(eq=False)
class SubmittedTask:
    """A task on its way.

    Attributes:
        future: Dask's future.
        answer: our future; the first result that it is given counts.
        known: whether the scheduler has said that it has the task.
        unconfirmed: whether it said at the last look that the task is done, and the client had not heard of that.
    """

    future: Any
    answer: Answer = field(default_factory=Future[Message])
    known: bool = False
    unconfirmed: bool = False

    def is_lost(self, status: str | None) -> bool:
        """Return whether no answer will come, by what the scheduler says of the task at this look.

        A task that it does not know yet may be on its way to it, and a task that is done since the last look may be on
        its way back. A task that it knew and knows no more is lost, and so is a task of which nothing is heard for two
        looks.
        """
        if status is None:
            return self.known and not self.answer.done()
        self.known = True
        before, self.unconfirmed = self.unconfirmed, status in OVER and self.future.status == "pending"
        return before and self.unconfirmed

    def abandon(self, why: str) -> None:
        """End the answer with an error, as no result will come."""
        with suppress(InvalidStateError):
            self.answer.set_exception(ConnectionError(why))

    async def deliver(self) -> None:
        """Wait for the result and fetch it.

        Dask's own executor says nothing of a result that it fails to fetch: whoever waits for it waits forever.
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
        """Release the task: the scheduler need not keep it, and takes back what is not done of it."""
        with suppress(RuntimeError):  # the client is closed
            self.future.release()


def submit(client: Any, task: Task) -> SubmittedTask:
    """Submit a task.

    Raises:
        Exception: an error of Dask, where the client has given up.
    """
    # The same task on another worker is the same work: nothing of it is to be looked up.
    submission = SubmittedTask(client.submit(work, task, pure=False))
    submission.answer.add_done_callback(submission.release)
    client.loop.add_callback(submission.deliver)
    return submission
