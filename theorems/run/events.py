"""Events of a run, as values. Output, files and the exit code are computed by handlers of these events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from theorems.run.description import Description
from theorems.run.result import Result


@dataclass(frozen=True)
class Started:
    """Start of a run: everything that it needs is loaded, and no case has been checked.

    Attributes:
        about: the description of the run: statements, kernel, which assumptions hold on the data.
    """

    about: Description


@dataclass(frozen=True)
class CaseDone:
    """Completion of one more step of a unit of work; the steps of a statement are its cases.

    Attributes:
        id: the id of the unit.
        done: the number of steps done; zero once all that the unit needs is loaded.
    """

    id: str
    done: int


@dataclass(frozen=True)
class UnitDone:
    """End of a unit of work, finished or given up; the units of a session are statements.

    Attributes:
        result: the result, which has the ``id`` of the unit and a ``summary``.
    """

    result: Any


@dataclass(frozen=True)
class Notice:
    """Message for the user, such as that a process died and its unit is restarted in another one."""

    sentence: str


@dataclass(frozen=True)
class Finished:
    """End of a run.

    Attributes:
        results: one per statement, in the order of the request.
        hints: possible causes, if a kernel is falsified.
    """

    results: tuple[Result, ...]
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stopped:
    """End of a run by a signal; the results of unfinished statements are marked as interrupted."""

    results: tuple[Result, ...]


@dataclass(frozen=True)
class Died:
    """End of a run before its start: untrusted code ended the process that loaded it.

    Attributes:
        sentence: what was being loaded, and how the process ended.
    """

    sentence: str


Event = Started | CaseDone | UnitDone | Notice | Finished | Stopped | Died
Handler = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Do nothing with an event: the handler for callers that need none."""
