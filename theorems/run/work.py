"""Units of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from theorems.run.verify import Progress


@runtime_checkable
class UnitResult(Protocol):
    """What a unit of work results in."""

    @property
    def id(self) -> str:
        """Of the unit."""

    @property
    def summary(self) -> str:
        """What came of it, in a few words."""


R = TypeVar("R", bound=UnitResult)
R_co = TypeVar("R_co", bound=UnitResult, covariant=True)


@runtime_checkable
class Work(Protocol[R_co]):
    """A unit of work: a pure function of its fields, which can be sent to another process.

    It may have ``foreign``, whether it runs untrusted code, with ``where(done)``, which says where that is; ``lost``,
    why it cannot be tried; ``prepare()``, which imports what it needs before its time runs; ``urgency``, the larger the
    sooner it is done; and ``together``, a group of units that share what one of them computes first, so that they are
    done in one process.
    """

    @property
    def id(self) -> str:
        """Unique among the units of a run."""

    @property
    def total(self) -> int | None:
        """How many steps it takes; None if that is not known."""

    def run(self, progress: Progress) -> R_co:
        """The result; ``progress`` is called with the number of steps done."""

    def unfinished_result(self, why: str) -> R_co:
        """A result that says that it was interrupted or, if ``why`` is not empty, that its process failed."""


@runtime_checkable
class Divisible(Protocol[R]):
    """A unit that may be cut into parts. Its result is that of the parts in their order, whoever did them and when."""

    def parts(self) -> Sequence[Work[R]]:
        """Units with ``part``, their number, counted from zero; the unit alone if it is not cut."""

    def join(self, first: R, then: R) -> R:
        """The result of some parts and that of the next one as one."""

    def last(self, result: R) -> bool:
        """Whether the parts after one with this result are not needed."""

    def conclude(self, result: R) -> R:
        """The result of the unit, of that of its parts."""


class StopRun(Exception):
    """The rest of the units need not be run, or cannot be; why is what unfinished ones say."""
