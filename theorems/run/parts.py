"""What is done of a run, and what is left to do: units, cut into parts where they can be."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic

from theorems.run.events import CaseDone, Handler, UnitDone
from theorems.run.journal import Journal
from theorems.run.work import Divisible, R, StopRun, Work


class Parts(Generic[R]):
    """Units that are worked on, and their parts by number.

    Attributes:
        handle: is given events of units, not of their parts.
        left: the parts, with what need not be done again.
    """

    def __init__(
        self,
        units: Sequence[Work[R]],
        handle: Handler,
        journal: Journal | None,
        enough: Callable[[R], str] | None,
    ) -> None:
        self.handle = handle
        self.journal = journal
        self.left: dict[int, Work[R]] = {}
        self._enough = enough
        self._why = ""
        self._joining: list[_Joining[R]] = []
        for unit in units:
            parts = list(unit.parts()) if isinstance(unit, Divisible) else [unit]
            self._joining.append(_Joining(unit, len(self.left), len(parts)))
            for part in parts:
                self.left[len(self.left)] = part if journal is None else journal.resume(part)
        self._starts = [one.next for one in self._joining]
        for k, part in self.left.items():
            found = None if journal is None else journal.result_of(part)
            if found is not None:
                self._take(k, found)
        for one in self._joining:
            if one.result is None and (lost := getattr(one.unit, "lost", "")):
                one.result = one.unit.unfinished_result(lost)
                handle(UnitDone(one.result))

    def order(self, *, backwards: bool) -> list[int]:
        """The parts that are to be done: unit after unit, the most urgent ones first; then the last first if
        ``backwards``.
        """
        urgent = sorted((one for one in self._joining if _urgency(one)), key=_urgency, reverse=True)
        others = [one for one in self._joining if not _urgency(one)]
        units = [*urgent, *(reversed(others) if backwards else others)]
        return [k for one in units for k in range(one.next, one.end) if not self.needless(k)]

    def part_to_do(self, k: int) -> Work[R] | None:
        """A part as it is now; None if it need not be done."""
        return None if self.needless(k) else self.left[k]

    def needless(self, k: int) -> bool:
        """Whether a part is done, or comes after the end of its unit."""
        one = self._of(k)
        return one.result is not None or not one.next <= k < one.end or k in one.waiting

    def count_steps(self, k: int, done: int) -> None:
        """So many steps of a part are done."""
        one = self._of(k)
        if one.result is None:
            one.steps[k] = done
            self.handle(CaseDone(one.unit.id, one.steps.total()))

    def so_far(self, k: int, so_far: Any) -> None:
        """What need not be done again of a part."""
        self.left[k] = replace(self.left[k], so_far=so_far)  # type: ignore[type-var]
        if self.journal is not None:
            self.journal.so_far(self.left[k])

    def keep(self, k: int) -> None:
        """What there is of a part is on the disk."""
        if self.journal is not None:
            self.journal.so_far(self.left[k], at_once=True)

    def finish(self, k: int, result: R) -> None:
        """The result of a part."""
        if self.journal is not None:
            self.journal.keep_result(self.left[k], result)
        self.give_up(k, result)

    def give_up(self, k: int, result: R) -> None:
        """A result that another run would not have."""
        if self.needless(k):
            return
        if self.left[k].total is not None and self._of(k).count > 1:
            self.count_steps(k, self.left[k].total or 0)
        self._take(k, result)
        self.check()

    def check(self) -> None:
        """Raises :class:`StopRun` if there is a result after which the run is to stop."""
        if self._why:
            raise StopRun(self._why)

    def results(self, why: str) -> list[R]:
        """One per unit, also of those that are not finished; of these the journal keeps what there is."""
        for k in self.left if self.journal is not None else ():
            if not self.needless(k):
                self.keep(k)
        return [one.result or one.unfinished_result(self.left, why) for one in self._joining]

    def _of(self, k: int) -> _Joining[R]:
        return self._joining[bisect_right(self._starts, k) - 1]

    def _take(self, k: int, result: R) -> None:
        one = self._of(k)
        one.take(k, result)
        if one.result is not None:
            self.handle(UnitDone(one.result))
        if self._enough and not self._why:
            self._why = self._enough(result)


class _Joining(Generic[R]):
    """The parts of a unit, joined in their order as they come in.

    Attributes:
        count: how many parts it was cut into.
        next: number of the first part whose result is not joined yet.
        end: number after the last part that is needed.
        waiting: results of later parts.
        steps: done, by part.
        result: once it is finished.
    """

    def __init__(self, unit: Work[R], first: int, count: int) -> None:
        self.unit = unit
        self.count = count
        self.next = first
        self.end = first + count
        self.waiting: dict[int, R] = {}
        self.steps: Counter[int] = Counter()
        self.result: R | None = None
        self._whole = unit if isinstance(unit, Divisible) and count > 1 else None
        self._joined: R | None = None

    def take(self, k: int, result: R) -> None:
        """A part is done."""
        if k >= self.end:
            return
        self.waiting[k] = result
        if self._whole and self._whole.last(result):
            self.end = k + 1
        while self.next in self.waiting and self.next < self.end:
            self._joined = self._with(self.waiting.pop(self.next))
            self.next += 1
        if self.next == self.end and self._joined is not None:
            self.result = self._conclude(self._joined)

    def unfinished_result(self, parts: dict[int, Work[R]], why: str) -> R:
        """The result of what is done."""
        for k in range(self.next, self.end):
            self._joined = self._with(self.waiting[k] if k in self.waiting else parts[k].unfinished_result(why))
        assert self._joined is not None
        return self._conclude(self._joined)

    def _with(self, result: R) -> R:
        return result if self._joined is None or self._whole is None else self._whole.join(self._joined, result)

    def _conclude(self, result: R) -> R:
        return result if self._whole is None else self._whole.conclude(result)


def _urgency(one: _Joining[Any]) -> int:
    """How much its results are waited for."""
    return int(getattr(one.unit, "urgency", 0))
