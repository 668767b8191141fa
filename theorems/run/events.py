"""Events of a run, as values; handlers of these events compute the output, the files and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from theorems.run.description import Description
from theorems.run.result import Result


@dataclass(frozen=True)
class Started:
    """Start of a run: everything that the run needs is loaded, and no case has been checked.

    Attributes:
        about: the description of the run: statements, kernel, which assumptions hold on the data.
    """

    about: Description


@dataclass(frozen=True)
class CaseDone:
    """Completion of one more step of a unit of work; in a session a unit is a statement, and its steps are its cases.

    Attributes:
        id: the id of the unit.
        done: the number of finished steps; zero when everything that the unit needs has been loaded.
    """

    id: str
    done: int


@dataclass(frozen=True)
class UnitDone:
    """End of a unit of work, which is finished or given up; in a session a unit is a statement.

    Attributes:
        result: the result of the unit; it has attributes ``id`` (of the unit) and ``summary``.
    """

    result: Any


@dataclass(frozen=True)
class Notice:
    """Message for the user, such as that a process died and its unit of work starts again in another process."""

    sentence: str


@dataclass(frozen=True)
class Finished:
    """End of a run.

    Attributes:
        results: one per statement, in the order of the request.
        hints: possible reasons why the kernel under test is falsified; else empty.
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
        sentence: a sentence that says what was being loaded, and how the process ended.
    """

    sentence: str


Event = Started | CaseDone | UnitDone | Notice | Finished | Stopped | Died
Handler = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Do nothing with an event; the handler for callers that need no events."""
