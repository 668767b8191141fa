"""Calls in another process: whatever untrusted code does there, this process goes on and says how it ended.

An object that the caller of a Python function hands over stays in his process: a child that is forked has neither CUDA
nor autograd's threads, one that is spawned would import something else under its name, and no debugger follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from theorems.core.on_kernel import KernelByName
from theorems.run.encoding import decode, plain
from theorems.run.pool import PATIENCE, NoResult, Pool
from theorems.run.registry.suite import statements
from theorems.run.verify import Progress

SETTLING = 10.0
"""Seconds for what is asked to end with what is finished, once a signal came."""
NOTHING = "; nothing is concluded."

T = TypeVar("T")


class ProcessDied(InvalidInput):
    """Untrusted code ended the process that it ran in, or had to be ended, before anything could be concluded.

    The command prints the sentence and exits with code 3.
    """

    @property
    def why(self) -> str:
        """The sentence without what follows from it."""
        return str(self).removesuffix(NOTHING)


@dataclass(frozen=True)
class _Answer:
    """The value that a call returned, as JSON; or the sentence of the InvalidInput that it raised."""

    value: Any = None
    refused: str = ""

    def of(self, function: Callable[..., Any]) -> Any:
        """The value of that function, which its annotation gives a type.

        Raises:
            ValueError: it has none.
        """
        return decode(self.value, get_type_hints(function)["return"])


@dataclass(frozen=True)
class _Call:
    """A call as a unit of work; ``long`` as of :meth:`Sandbox.call`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    long: bool
    foreign: bool = True

    def prepare(self) -> None:
        """What is ours is imported before the time of what is not runs."""
        statements()
        for one in self.arguments:
            if isinstance(one, KernelByName):
                one.prepare()

    def run(self, progress: Progress) -> _Answer:
        """The answer."""
        try:
            return _Answer(plain(self.function(*self.arguments, **({"progress": progress} if self.long else {}))))
        except InvalidInput as error:
            return _Answer(refused=str(error))


class Sandbox:
    """Processes for untrusted code; they are started when there is something to run.

    Attributes:
        pool: the processes.
        patience: seconds without a message after which a call is given up.
        isolates: whether calls are made there; otherwise in this process.
    """

    def __init__(self, pool: Pool, patience: float, isolates: bool = True) -> None:
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
        """The value of a function of ours, which can be pickled as its arguments can; its value comes back as JSON, and
        its annotation says what it is.

        Args:
            where: what a sentence calls it; or its next step, when so many are done.
            long: whether it is handed ``progress``, listens to signals, and is waited for after one.

        Raises:
            InvalidInput: it raised one.
            ProcessDied: there is no value; it says where it ended.
        """
        if not self.isolates:
            return function(*arguments)
        steps, word, refused = 0, "", False
        value: Any = None

        def tell(_: int, said: str, of: Any) -> None:
            nonlocal steps, word, value, refused
            if said == "progressed":
                steps = of
            elif said == "finished":
                try:
                    answer = decode(of, _Answer)
                    word, value = said, answer.refused or answer.of(function)
                    refused = bool(answer.refused)
                except ValueError:
                    raise NoResult from None
            else:
                word, value = said, of

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
            found: T = value
            return found
        said = where if isinstance(where, str) else where(steps)
        if word == "out of patience":
            raise ProcessDied(f"{said}: out of time after {self.patience:g} s{NOTHING}")
        how = f"failed: {value}" if word == "failed" else value
        raise ProcessDied(f"{said}: the process that worked on it {how}{NOTHING}")


@contextmanager
def open_sandbox(jobs: int, patience: float = PATIENCE, isolates: bool = True) -> Iterator[Sandbox]:
    """Up to ``jobs`` processes, which end with the block."""
    with closing(Pool(jobs)) as pool:
        yield Sandbox(pool, patience, isolates)
