"""Calls in another process: whatever untrusted code does there, this process goes on and says how it ended.

An object that the caller of a Python function passes stays in the caller's process: a child that is forked has neither
CUDA nor autograd's threads, one that is spawned would import something else under its name, and no debugger follows.
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
"""Seconds that a call has to end with what is finished, once a signal came."""
NOTHING = "; nothing is concluded."

T = TypeVar("T")


class ProcessDied(InvalidInput):
    """Untrusted code ended the process that it ran in, or had to be ended, before anything could be concluded.

    The command prints the sentence and exits with code 3.
    """

    @property
    def why(self) -> str:
        """Return the sentence without its ending that nothing is concluded."""
        return str(self).removesuffix(NOTHING)


@dataclass(frozen=True)
class _Answer:
    """Answer of a call: the value that it returned, as JSON, or the sentence of the InvalidInput that it raised."""

    value: Any = None
    refused: str = ""

    def of(self, function: Callable[..., Any]) -> Any:
        """Return the value as the type that the function's annotation gives.

        Raises:
            ValueError: the answer is no such value.
        """
        return decode(self.value, get_type_hints(function)["return"])


@dataclass(frozen=True)
class _Call:
    """Call as a unit of work; ``long`` as in :meth:`Sandbox.call`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    long: bool
    foreign: bool = True

    def prepare(self) -> None:
        """Import our own modules before the time of the untrusted code runs."""
        statements()
        for argument in self.arguments:
            if isinstance(argument, UnderTest):
                argument.prepare()

    def run(self, progress: Progress) -> _Answer:
        """Make the call and return its answer."""
        try:
            return _Answer(plain(self.function(*self.arguments, **({"progress": progress} if self.long else {}))))
        except InvalidInput as error:
            return _Answer(refused=str(error))


class Sandbox:
    """Processes for untrusted code; they are started when there is something to run.

    Attributes:
        pool: the processes.
        patience: seconds without a message after which a call is given up.
        isolates: whether calls are made in those processes; otherwise they are made in this process.
    """

    def __init__(self, pool: Pool, patience: float, isolates: bool = True) -> None:
        """Take the processes, the patience with them, and whether they are used at all."""
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
        """Call one of our own functions in a process of the sandbox and return its value.

        The function and its arguments must be picklable; the value comes back as JSON, and the function's annotation
        gives its type.

        Args:
            where: how a sentence names the call; or a function of the number of steps done that names the next step.
            function: the function to call.
            *arguments: its arguments.
            long: whether it is given ``progress``, listens to signals, and is waited for after one.

        Raises:
            InvalidInput: the function raised one.
            ProcessDied: there is no value; the message says where the process ended.
        """
        if not self.isolates:
            return function(*arguments)
        steps, word, refused = 0, "", False
        value: Any = None

        def tell(_: int, kind: str, content: Any) -> None:
            nonlocal steps, word, value, refused
            if kind == "progressed":
                steps = content
            elif kind == "finished":
                try:
                    answer = decode(content, _Answer)
                    word, value = kind, answer.refused or answer.of(function)
                    refused = bool(answer.refused)
                except ValueError:
                    raise NoResult from None
            else:
                word, value = kind, content

        if long:
            signals.keep()
        try:
            for _ in self.pool.work([0], lambda _: _Call(function, arguments, long), tell, patience=self.patience):
                pass
        except KeyboardInterrupt:
            if not long:
                raise
            self.pool.interrupt(tell, SETTLING)
            if not word:
                raise
        if word == "finished":
            if refused:
                raise InvalidInput(value)
            result: T = value
            return result
        place = where if isinstance(where, str) else where(steps)
        if word == "out of patience":
            raise ProcessDied(f"{place}: out of time after {self.patience:g} s{NOTHING}")
        ending = f"failed: {value}" if word == "failed" else value
        raise ProcessDied(f"{place}: the process that worked on it {ending}{NOTHING}")


@contextmanager
def open_sandbox(jobs: int, patience: float = PATIENCE, isolates: bool = True) -> Iterator[Sandbox]:
    """Yield a sandbox of up to ``jobs`` processes, which end with the block."""
    with closing(Pool(jobs)) as pool:
        yield Sandbox(pool, patience, isolates)
