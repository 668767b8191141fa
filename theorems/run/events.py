"""Events of a run, as values: whoever prints, writes or decides something handles them."""

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
    """One step of a unit of work is done; a step of a statement is a case.

    Attributes:
        id: the id of the unit.
        done: how many steps are done by now; zero once all that the unit needs is loaded.
    """

    id: str
    done: int


@dataclass(frozen=True)
class UnitDone:
    """One unit of work is done or given up; the units of a session are statements.

    Attributes:
        result: the result, which has the ``id`` of the unit and a ``summary``.
    """

    result: Any


@dataclass(frozen=True)
class Notice:
    """Message for the user: a process died, and its unit begins again in another."""

    sentence: str


@dataclass(frozen=True)
class Finished:
    """End of a run.

    Attributes:
        results: one per statement, in the order asked for.
        hints: what may be wrong with a kernel that is falsified.
    """

    results: tuple[Result, ...]
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stopped:
    """End of a run by a signal: statements that are not finished are marked as interrupted."""

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
    """Handle no event: a handler for callers that need none."""
