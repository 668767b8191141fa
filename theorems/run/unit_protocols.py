"""Protocols of units of work (such as a statement on its cases) and of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from theorems.run.verify import Progress


@runtime_checkable
class UnitResult(Protocol):
    """Protocol of the result of a unit of work."""

    @property
    def id(self) -> str:
        """Return the id of the unit whose result this is."""

    @property
    def summary(self) -> str:
        """Return the result in a few words, for a line of progress."""


R = TypeVar("R", bound=UnitResult)
R_co = TypeVar("R_co", bound=UnitResult, covariant=True)


@runtime_checkable
class Work(Protocol[R_co]):
    """Protocol of a unit of work: a pure function of its fields, which can be sent to another process.

    A unit may also have these attributes: ``foreign``, whether it runs untrusted code; ``where(done)``, in words, what
    the unit is doing when ``done`` steps are finished; ``lost``, the reason why it cannot be run; ``prepare()``, which
    imports its modules before its time limit begins; ``urgency``, its priority (larger numbers run sooner);
    ``together``, the name of a group of units that run in one process because they share intermediate results.
    """

    @property
    def id(self) -> str:
        """Return an id that is unique among the units of a run."""

    @property
    def total(self) -> int | None:
        """Return the number of steps; None if it is unknown."""

    def run(self, progress: Progress) -> R_co:
        """Run the unit and return its result; call ``progress`` with the number of finished steps."""

    def unfinished_result(self, why: str) -> R_co:
        """Return the result of the finished steps, stopped for the reason ``why`` (empty: interrupted by a signal)."""


@runtime_checkable
class Divisible(Protocol[R]):
    """Protocol of a unit that may be cut into parts; the results are joined in order, whichever part ran first."""

    def parts(self) -> Sequence[Work[R]]:
        """Return the parts: units with an attribute ``part``, counted from zero; or only the unit itself."""

    def join(self, first: R, then: R) -> R:
        """Join the result of the first parts with the result of the part after them."""

    def last(self, result: R) -> bool:
        """Return whether all parts after the part with this result may be skipped; by default return False."""
        return False

    def conclude(self, result: R) -> R:
        """Return the unit's result from the joined result of its parts; by default return the joined result."""
        return result


class StopRun(Exception):
    """Exception: the unfinished units of a run need not or cannot be run; their results give its message as reason."""
