"""A thread that works for the page: only the latest request is computed, and earlier ones are dropped.

Results are delivered in order. Once a newer request is made, no result of an older request is delivered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

Cancelled = Callable[[], bool]
Steps = Callable[[Cancelled], Iterator[Any]]
"""Function that yields results one by one; its argument is a function that returns whether the request was dropped."""
Deliver = Callable[[Callable[[], None]], None]
"""Function that schedules a call in the thread of the page, after earlier scheduled calls."""


class Latest:
    """Thread that works on the latest request.

    Args:
        deliver: schedules a call in the thread of the page.
        pause: seconds without a newer request before work begins.
    """

    def __init__(self, deliver: Deliver, pause: float = 0.0) -> None:
        """Start the thread, which waits for the first request."""
        self._deliver, self._pause = deliver, pause
        self._asked = threading.Condition()
        self._steps: Steps | None = None
        self._take: Callable[[Any], None] = lambda result: None
        self._failed: Callable[[Exception], None] = lambda error: None
        self._ticket = 0
        self._ended = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def ask(
        self, steps: Steps, take: Callable[[Any], None], failed: Callable[[Exception], None], *, done: Any = None
    ) -> None:
        """Drop the previous request, and begin this one.

        Args:
            steps: yields the results.
            take: called in the thread of the page with each result, and finally with ``done``.
            failed: called with the exception if ``steps`` raises one; then ``take`` is called no more.
            done: the value that marks the end of the results.
        """
        with self._asked:
            self._ticket += 1
            self._steps, self._take, self._failed, self._done = steps, take, failed, done
            self._asked.notify_all()

    def drop(self) -> None:
        """Drop the request without a new one; the thread waits."""
        with self._asked:
            self._ticket += 1
            self._steps = None

    def close(self) -> None:
        """Drop the request, and let the thread end."""
        with self._asked:
            self._ended, self._ticket = True, self._ticket + 1
            self._asked.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, after :meth:`close`."""
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._asked:
                self._asked.wait_for(lambda: self._ended or self._steps is not None)
                ticket = self._ticket
                while self._pause and self._asked.wait_for(lambda t=ticket: self._ticket != t, self._pause):  # type: ignore[misc]
                    ticket = self._ticket
                    if self._ended:
                        break
                if self._ended:
                    return
                if self._steps is None:
                    continue
                steps, take, failed, done = self._steps, self._take, self._failed, self._done
                self._steps = None
            assert steps is not None
            try:
                for result in steps(lambda t=ticket: self._ticket != t):  # type: ignore[misc]
                    if self._ticket != ticket:
                        break
                    self._hand_on(ticket, take, result)
                else:
                    self._hand_on(ticket, take, done)
            except Exception as error:
                if not self._ended:
                    self._hand_on(ticket, failed, error)

    def _hand_on(self, ticket: int, take: Callable[[Any], None], result: Any) -> None:
        def call() -> None:
            if self._ticket == ticket:
                take(result)

        self._deliver(call)
