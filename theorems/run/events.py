"""What happens in a run, as values: whoever prints, writes or decides something handles them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from theorems.run.description import Description
from theorems.run.result import Result


@dataclass(frozen=True)
class Started:
    """All that the run needs is loaded; nothing has been tried.

    Attributes:
        about: the statements, the kernel, and which assumptions hold on the data.
    """

    about: Description


@dataclass(frozen=True)
class CaseDone:
    """A step of a unit of work is done: of a statement a case.

    Attributes:
        id: of the unit.
        done: how many are done by now; none, once what it needs is loaded.
    """

    id: str
    done: int


@dataclass(frozen=True)
class UnitDone:
    """A unit of work is done, or given up: of a session a statement.

    Attributes:
        result: with the ``id`` of the unit and a ``summary``.
    """

    result: Any


@dataclass(frozen=True)
class Notice:
    """Something that the user should know: a process died, and its unit goes on in another."""

    sentence: str


@dataclass(frozen=True)
class Finished:
    """The end.

    Attributes:
        results: one per statement, in the order asked for.
        hints: what may be wrong with a kernel that is falsified.
    """

    results: tuple[Result, ...]
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stopped:
    """The end, by a signal: what is not finished is marked as interrupted."""

    results: tuple[Result, ...]


@dataclass(frozen=True)
class Died:
    """The end before the start: untrusted code ended the process that loaded it.

    Attributes:
        sentence: what was being loaded, and how it ended.
    """

    sentence: str


Event = Started | CaseDone | UnitDone | Notice | Finished | Stopped | Died
Handler = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Handles nothing."""
