"""Units of work: the protocols that they satisfy."""

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
        """Return what came of the unit, in a few words."""


R = TypeVar("R", bound=UnitResult)
R_co = TypeVar("R_co", bound=UnitResult, covariant=True)


@runtime_checkable
class Work(Protocol[R_co]):
    """Unit of work: a pure function of its fields, which can be sent to another process.

    It may have ``foreign``, whether it runs untrusted code, with ``where(done)``, which says where that is; ``lost``,
    why it cannot be tried; ``prepare()``, which imports what it needs before its time runs; ``urgency``, the larger the
    sooner it is done; and ``together``, a group of units that share what one of them computes first, so that they are
    done in one process.
    """

    @property
    def id(self) -> str:
        """Return an id that is unique among the units of a run."""

    @property
    def total(self) -> int | None:
        """Return how many steps it takes; None if that is not known."""

    def run(self, progress: Progress) -> R_co:
        """Do the work and return the result; ``progress`` is called with the number of steps done."""

    def unfinished_result(self, why: str) -> R_co:
        """Return a result marked as interrupted or, if ``why`` is not empty, as that of a process that failed."""


@runtime_checkable
class Divisible(Protocol[R]):
    """Unit that may be cut into parts; its result is their results joined in order, whoever did them and when."""

    def parts(self) -> Sequence[Work[R]]:
        """Return units with ``part``, their number, counted from zero; the unit alone if it is not cut."""

    def join(self, first: R, then: R) -> R:
        """Join the result of some parts and the result of the next one."""

    def last(self, result: R) -> bool:
        """Return whether the parts after the part with this result are not needed."""

    def conclude(self, result: R) -> R:
        """Return the result of the unit, given the joined result of its parts."""


class StopRun(Exception):
    """The rest of the units need not be run, or cannot be; the message is the reason that unfinished ones give."""
