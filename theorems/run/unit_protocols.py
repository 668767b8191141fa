"""Protocols of units of work and of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from theorems.run.verify import Progress


@runtime_checkable
class UnitResult(Protocol):
    """Result of a unit of work."""

    @property
    def id(self) -> str:
        """Return the id of the unit."""

    @property
    def summary(self) -> str:
        """Return the outcome of the unit in a few words."""


R = TypeVar("R", bound=UnitResult)
R_co = TypeVar("R_co", bound=UnitResult, covariant=True)


@runtime_checkable
class Work(Protocol[R_co]):
    """Unit of work: a pure function of its fields, which can be sent to another process.

    Optional attributes: ``foreign``, whether it runs untrusted code, and ``where(done)``, the step after ``done`` steps
    in words; ``lost``, the reason why it cannot be run; ``prepare()``, which imports its modules before its time limit
    begins; ``urgency``, the larger, the sooner it is run; ``together``, the name of a group of units that run in one
    process because they share intermediate results.
    """

    @property
    def id(self) -> str:
        """Return an id that is unique among the units of a run."""

    @property
    def total(self) -> int | None:
        """Return the number of steps; None if it is unknown."""

    def run(self, progress: Progress) -> R_co:
        """Run the unit and return the result; ``progress`` is called with the number of steps done."""

    def unfinished_result(self, why: str) -> R_co:
        """Return the result of the finished steps, marked as interrupted, or as stopped for the reason ``why``."""


@runtime_checkable
class Divisible(Protocol[R]):
    """Unit that may be cut into parts, whose results are joined in order, whatever the order in which they were run."""

    def parts(self) -> Sequence[Work[R]]:
        """Return the parts: units with an attribute ``part``, counted from zero; or only the unit itself."""

    def join(self, first: R, then: R) -> R:
        """Join the result of the first parts with the result of the next one."""

    def last(self, result: R) -> bool:
        """Return whether all parts after the part with this result may be skipped; False by default."""
        return False

    def conclude(self, result: R) -> R:
        """Return the result of the unit, given the joined result of its parts; by default return the joined result."""
        return result


class StopRun(Exception):
    """Exception: the unfinished units need not or cannot be run; its message becomes the reason in their results."""
