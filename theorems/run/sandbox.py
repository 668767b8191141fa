"""Sandbox: calls of untrusted code in another process.

If that process ends, the calling process continues and reports how it ended. A Python object passed by a caller is not
sandboxed; it stays in the caller's process, because a forked child process has neither CUDA nor autograd's threads, a
spawned child process would have to import the object by name, and a debugger follows neither kind of child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from theorems.core.under_test import UnderTest
from theorems.run.encoding import decode, plain
from theorems.run.pool import PATIENCE, NoResult, Pool
from theorems.run.registry.suite import statements
from theorems.run.verify import Progress

SETTLING = 10.0
"""Seconds that a long call is given, after a signal, to return the result that it has so far."""
NOTHING = "; nothing is concluded."

T = TypeVar("T")


class ProcessDied(InvalidInput):
    """Exception: the process with the untrusted code ended, or had to be ended, before there was a verdict.

    The command prints the message and exits with code 3.
    """

    @property
    def why(self) -> str:
        """Return the exception's message without the text :data:`NOTHING` at its end."""
        return str(self).removesuffix(NOTHING)


@dataclass(frozen=True)
class _Answer:
    """Answer to a call in the sandbox: the return value as JSON, or the message of the InvalidInput that was raised."""

    value: Any = None
    refused: str = ""

    def of(self, function: Callable[..., Any]) -> Any:
        """Return the value, converted from JSON to the return type that the function's annotation names.

        Raises:
            ValueError: the value is not of that type.
        """
        return decode(self.value, get_type_hints(function)["return"])


@dataclass(frozen=True)
class _Call:
    """Call in the sandbox as a unit of work; ``long`` is explained at :meth:`Sandbox.call`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    long: bool
    foreign: bool = True

    def prepare(self) -> None:
        """Import our own modules before the time limit of the untrusted code begins."""
        statements()
        for argument in self.arguments:
            if isinstance(argument, UnderTest):
                argument.prepare()

    def run(self, progress: Progress) -> _Answer:
        """Call the function and return its answer: a value or the message of an InvalidInput."""
        try:
            return _Answer(plain(self.function(*self.arguments, **({"progress": progress} if self.long else {}))))
        except InvalidInput as error:
            return _Answer(refused=str(error))


class Sandbox:
    """Processes for untrusted code, started when there is something to run.

    Attributes:
        pool: the pool that starts and supervises the processes.
        patience: seconds without a message from a process after which its call is given up.
        isolates: whether calls are made in the pool's processes, rather than in the calling process.
    """

    def __init__(self, pool: Pool, patience: float, isolates: bool = True) -> None:
        """Take the pool, the longest time in seconds between a process's messages, and whether to use the pool."""
        self.pool = pool
        self.patience = patience
        self.isolates = isolates

    def call(
        self,
        where: str | Callable[[int], str],
        function: Callable[..., T],
        *arguments: Any,
        long: bool = False,
    ) -> T:
        """Call one of our own functions, which calls untrusted code, in a process of the sandbox and return its value.

        The function and its arguments must be picklable. The value comes back as JSON; the function's return annotation
        gives the type to which it is converted.

        Args:
            where: the name of the call for error messages; or a function that returns the name of the next step, given
                the number of finished steps.
            function: the function to call.
            *arguments: the arguments of the function.
            long: whether the function takes a keyword argument ``progress``, and after a signal gets :data:`SETTLING`
                seconds to return.

        Raises:
            InvalidInput: the function raised it.
            ProcessDied: the process ended without a value; the message says during which step and how.
        """
        if not self.isolates:
            return function(*arguments)
        steps, last_kind, refused = 0, "", False
        value: Any = None

        def on_message(_: int, kind: str, content: Any) -> None:
            nonlocal steps, last_kind, value, refused
            if kind == "progressed":
                steps = content
            elif kind == "finished":
                try:
                    answer = decode(content, _Answer)
                    last_kind, value = kind, answer.refused or answer.of(function)
                    refused = bool(answer.refused)
                except ValueError:
                    raise NoResult from None
            else:
                last_kind, value = kind, content

        if long:
            signals.keep()
        try:
            for _ in self.pool.work(
                [0], lambda _: _Call(function, arguments, long), on_message, patience=self.patience
            ):
                pass
        except KeyboardInterrupt:
            if not long:
                raise
            self.pool.interrupt(on_message, SETTLING)
            if not last_kind:
                raise
        if last_kind == "finished":
            if refused:
                raise InvalidInput(value)
            result: T = value
            return result
        place = where if isinstance(where, str) else where(steps)
        if last_kind == "out of patience":
            raise ProcessDied(f"{place}: out of time after {self.patience:g} s{NOTHING}")
        ending = f"failed: {value}" if last_kind == "failed" else value
        raise ProcessDied(f"{place}: the process that worked on it {ending}{NOTHING}")


@contextmanager
def open_sandbox(jobs: int, patience: float = PATIENCE, isolates: bool = True) -> Iterator[Sandbox]:
    """Yield a sandbox of up to ``jobs`` processes, which are ended when the ``with`` block ends."""
    with closing(Pool(jobs)) as pool:
        yield Sandbox(pool, patience, isolates)
