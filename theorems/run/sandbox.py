"""Calls in another process: whatever untrusted code does there, this process goes on and says how it ended.

An object that the caller of a Python function hands over stays in his process: a child that is forked has neither CUDA
nor autograd's threads, one that is spawned would import something else under its name, and no debugger follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from theorems.run.pool import PATIENCE, Pool, open_pool
from theorems.run.registry.suite import statements
from theorems.run.verify import Progress

SETTLING = 10.0
"""Seconds for what is asked to end with what is finished, once a signal came."""
NOTHING = "; nothing is concluded."

T_co = TypeVar("T_co", covariant=True)


class ProcessDied(InvalidInput):
    """Untrusted code ended the process that it ran in, or had to be ended, before anything could be concluded.

    The command prints the sentence and exits with code 3.
    """

    @property
    def why(self) -> str:
        """The sentence without what follows from it."""
        return str(self).removesuffix(NOTHING)


@runtime_checkable
class Call(Protocol[T_co]):
    """Something to be computed in another process: a dataclass that can be pickled, of ours."""

    def run(self, progress: Progress) -> T_co:
        """The value; ``progress`` is called with the number of steps done."""

    def where(self, done: int) -> str:
        """What a sentence calls the next step when so many are done."""


@dataclass(frozen=True)
class _Answer:
    """What a call returned, or the sentence of the InvalidInput that it raised."""

    value: Any = None
    refused: str = ""


@dataclass(frozen=True)
class _Guarded:
    """A call as a unit of work."""

    call: Call[Any]
    foreign: bool = True

    def prepare(self) -> None:
        """What is ours is imported before the time of what is not runs."""
        statements()
        if hasattr(self.call, "prepare"):
            self.call.prepare()

    def run(self, progress: Progress) -> _Answer:
        """The answer."""
        try:
            return _Answer(self.call.run(progress))
        except InvalidInput as error:
            return _Answer(refused=str(error))


class Sandbox:
    """Processes for untrusted code; they are started when there is something to run.

    Attributes:
        pool: the processes.
        patience: seconds without a message after which a call is given up.
    """

    def __init__(self, pool: Pool, patience: float) -> None:
        self.pool = pool
        self.patience = patience

    def call(self, call: Call[T_co], *, settles: bool = False) -> T_co:
        """The value of a call in another process.

        Args:
            settles: whether it listens to signals, and is waited for after one.

        Raises:
            InvalidInput: it raised one.
            ProcessDied: there is no value; it says where it ended.
        """
        steps, word = 0, ""
        value: Any = None

        def tell(_: int, said: str, of: Any) -> None:
            nonlocal steps, word, value
            if said == "progressed":
                steps = of
            else:
                word, value = said, of

        if settles:
            signals.keep()
        try:
            for _ in self.pool.work([0], lambda _: _Guarded(call), tell, patience=self.patience):
                pass
        except KeyboardInterrupt:
            if not settles:
                raise
            self.pool.interrupt(tell, SETTLING)
            if not word:
                raise
        if word == "finished":
            if value.refused:
                raise InvalidInput(value.refused)
            found: T_co = value.value
            return found
        if word == "out of patience":
            raise ProcessDied(f"{call.where(steps)}: out of time after {self.patience:g} s{NOTHING}")
        how = f"failed: {value}" if word == "failed" else value
        raise ProcessDied(f"{call.where(steps)}: the process that worked on it {how}{NOTHING}")


@contextmanager
def open_sandbox(jobs: int, patience: float = PATIENCE) -> Iterator[Sandbox]:
    """Up to ``jobs`` processes, which end with the block."""
    with open_pool(jobs) as pool:
        yield Sandbox(pool, patience)
