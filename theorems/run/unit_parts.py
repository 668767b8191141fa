"""State of a run: the parts into which its units of work are cut, and the parts' results so far.

A unit of work is, for example, a statement on its cases.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic

from theorems.core.claim import Verdict
from theorems.run.events import CaseDone, Handler, UnitDone
from theorems.run.journal import Journal
from theorems.run.unit_protocols import Divisible, R, StopRun, Work


class Parts(Generic[R]):
    """The parts of all units of a run, numbered through the run, with their results.

    Attributes:
        handle: the handler of the events about units; a single part causes no event of its own.
        by_number: the parts by number; the field ``so_far`` of an unfinished part has the result of its finished steps.
    """

    def __init__(
        self,
        units: Sequence[Work[R]],
        handle: Handler,
        journal: Journal | None,
        enough: Callable[[R], str] | None,
    ) -> None:
        """Cut the units into parts, and take the results that the journal has.

        ``enough`` is a function of a part's result that returns the reason to stop the run, or an empty string to go
        on.
        """
        self.handle = handle
        self.journal = journal
        self.by_number: dict[int, Work[R]] = {}
        self._enough = enough
        self._why = ""
        self._joining: list[_Joining[R]] = []
        for unit in units:
            parts = list(unit.parts()) if isinstance(unit, Divisible) else [unit]
            self._joining.append(_Joining(unit, len(self.by_number), len(parts)))
            for part in parts:
                self.by_number[len(self.by_number)] = part
        self._starts = [joining.next for joining in self._joining]
        for k, part in self.by_number.items():
            result = None if journal is None else journal.result_of(part)
            if result is not None:
                self._take(k, result)
        for joining in self._joining:
            if joining.result is None and (lost := getattr(joining.unit, "lost", "")):
                joining.result = joining.unit.unfinished_result(lost)
                handle(UnitDone(joining.result))

    def order(self, *, backwards: bool) -> list[int]:
        """Return the numbers of the unfinished parts: first the parts of units with a priority, the highest first.

        If ``backwards`` is true, the units without a priority come in reverse order.
        """
        urgent = sorted((joining for joining in self._joining if _urgency(joining)), key=_urgency, reverse=True)
        others = [joining for joining in self._joining if not _urgency(joining)]
        units = [*urgent, *(reversed(others) if backwards else others)]
        return [k for joining in units for k in range(joining.next, joining.end) if not self.needless(k)]

    def is_urgent(self, k: int) -> bool:
        """Return whether a part belongs to an urgent unit."""
        return _urgency(self._of(k)) > 0

    def any_upheld(self) -> bool:
        """Return whether any unit has an upheld result."""
        return any(getattr(joining.result, "verdict", None) is Verdict.UPHELD for joining in self._joining)

    def part_to_do(self, k: int) -> Work[R] | None:
        """Return part number k with the result of its finished steps; return None if the part need not be run."""
        return None if self.needless(k) else self.by_number[k]

    def needless(self, k: int) -> bool:
        """Return whether part number k is finished, or is not needed because an earlier part ended its unit."""
        joining = self._of(k)
        return joining.result is not None or not joining.next <= k < joining.end or k in joining.waiting

    def count_steps(self, k: int, done: int) -> None:
        """Record that ``done`` steps of part number k are finished."""
        joining = self._of(k)
        if joining.result is None:
            joining.steps[k] = done
            self.handle(CaseDone(joining.unit.id, joining.steps.total()))

    def so_far(self, k: int, so_far: Any) -> None:
        """Record the result of the finished steps of part number k; it is used if the part does not finish."""
        self.by_number[k] = replace(self.by_number[k], so_far=so_far)  # type: ignore[type-var]

    def finish(self, k: int, result: R) -> None:
        """Record the result of part number k, also in the journal."""
        if self.journal is not None:
            self.journal.keep_result(self.by_number[k], result)
        self.give_up(k, result)

    def give_up(self, k: int, result: R) -> None:
        """Record a result that might differ in another run, such as a timeout's, without writing it to the journal."""
        if self.needless(k):
            return
        if self.by_number[k].total is not None and self._of(k).count > 1:
            self.count_steps(k, self.by_number[k].total or 0)
        self._take(k, result)
        self.check()

    def check(self) -> None:
        """Raise :class:`theorems.run.unit_protocols.StopRun` if ``enough`` gave a reason to stop the run."""
        if self._why:
            raise StopRun(self._why)

    def results(self, why: str) -> list[R]:
        """Return one result per unit; the results of unfinished units give ``why`` as the reason."""
        return [joining.result or joining.unfinished_result(self.by_number, why) for joining in self._joining]

    def _of(self, k: int) -> _Joining[R]:
        return self._joining[bisect_right(self._starts, k) - 1]

    def _take(self, k: int, result: R) -> None:
        joining = self._of(k)
        joining.take(k, result)
        if joining.result is not None:
            self.handle(UnitDone(joining.result))
        if self._enough and not self._why:
            self._why = self._enough(result)


class _Joining(Generic[R]):
    """One unit of work and the results of its parts, which are joined in the parts' order.

    Attributes:
        count: the number of parts.
        next: the number of the first part whose result is not joined yet.
        end: the number of the last part that is needed, plus one.
        waiting: results of finished parts that are not joined yet, by the part's number.
        steps: the number of finished steps of each part, by the part's number.
        result: the result of the unit; None until it is finished.
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
        """Take the result of part number k, and join each result whose earlier parts are all joined."""
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
        """Return the joined result; unfinished parts add their finished steps, with ``why`` as the reason."""
        for k in range(self.next, self.end):
            self._joined = self._with(self.waiting[k] if k in self.waiting else parts[k].unfinished_result(why))
        assert self._joined is not None
        return self._conclude(self._joined)

    def _with(self, result: R) -> R:
        return result if self._joined is None or self._whole is None else self._whole.join(self._joined, result)

    def _conclude(self, result: R) -> R:
        return result if self._whole is None else self._whole.conclude(result)


def _urgency(joining: _Joining[Any]) -> int:
    """Return the priority of a unit (a larger number runs sooner): its attribute ``urgency``, or 0 without one."""
    return int(getattr(joining.unit, "urgency", 0))
