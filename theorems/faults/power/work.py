"""The work of ``theorems power``, cut into units that can be sent to other processes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from theorems.core.claim import Verdict
from theorems.faults import Fault, fault_named
from theorems.faults.power.trial import Cell, FaultOutcome, baseline, smallest_caught, try_fault
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.verify import Progress, draw_cases

QUICKEST = 4
"""Statements that a fault is made smaller against: the one that it names, and those that took the fewest examples."""
AT_A_TIME = 20
"""Faults of a part where there are many workers: each part tries the reference once more."""


@dataclass(frozen=True)
class Column:
    """What one statement catches.

    Attributes:
        id: of the statement.
        reference: how many of the cases the reference upholds.
        cases: how many cases there were.
        falsified: how the reference itself was falsified; the column is worth nothing then.
        cells: by name of the fault.
        failed: why there is no column, if there is none.
        interrupted: by a signal.
    """

    id: str
    reference: int = 0
    cases: int = 0
    falsified: str = ""
    cells: Mapping[str, Cell] = field(default_factory=dict)
    failed: str = ""
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """For a line of progress."""
        if self.failed:
            return self.failed
        caught = sum(cell.found is FaultOutcome.CAUGHT for cell in self.cells.values())
        return f"catches {caught} of {len(self.cells)} faults, {self.seconds:.1f} s"


@dataclass(frozen=True)
class FaultTrials:
    """One statement against many faults, all on the same generated cases.

    Attributes:
        so_far: cells that need not be filled again; the column does not depend on it.
        part: which faults these are of those of the statement.
        at_a_time: how many faults a part has; zero for all of them. The column does not depend on it.
    """

    id: str
    faults: tuple[str, ...]
    examples: int
    seed: int
    so_far: Column | None = None
    part: int = 0
    at_a_time: int = 0

    @property
    def foreign(self) -> bool:
        """Whether the statement is somebody else's code."""
        return is_in_a_file(self.id)

    def where(self, done: int | None) -> str:
        """Where it is when so many faults are done."""
        left = [name for name in self.faults if self.so_far is None or name not in self.so_far.cells]
        return "before the first fault" if done is None or not left else f"at the fault {left[0]}"

    @property
    def total(self) -> int | None:
        """Faults, and the reference."""
        return len(self.faults) + 1

    def run(self, progress: Progress) -> Column:
        """The column."""
        began = time.perf_counter()
        statement = statement_named(self.id)
        bases = [baseline(statement, case) for case in draw_cases(statement, self.examples, self.seed, every=False)]
        wrong = next((base for base in bases if base.verdict is Verdict.FALSIFIED), None)
        column = Column(
            statement.id,
            sum(base.verdict is Verdict.UPHELD for base in bases),
            len(bases),
            "" if wrong is None else wrong.reason,
            self.so_far.cells if self.so_far else {},
        )
        before = self.so_far.seconds if self.so_far else 0.0
        progress(len(column.cells) + 1)
        for name in self.faults:
            if name not in column.cells:
                cells = {**column.cells, name: try_fault(statement, fault_named(name), bases)}
                column = replace(column, cells=cells, seconds=before + time.perf_counter() - began)
                progress(len(cells) + 1, column)
        return column

    def unfinished_result(self, why: str) -> Column:
        """The cells that there are."""
        return replace(self.so_far or Column(self.id), failed=why or "interrupted", interrupted=not why)

    def parts(self) -> Sequence[FaultTrials]:
        """Some faults at a time; each part draws the cases and tries the reference on them, as the first one does."""
        size = self.at_a_time or len(self.faults)
        if self.part or len(self.faults) <= size:
            return [self]
        some = [self.faults[k : k + size] for k in range(0, len(self.faults), size)]
        return [replace(self, faults=names, part=k) for k, names in enumerate(some)]

    def join(self, first: Column, then: Column) -> Column:
        """The cells of both; what is said of the reference is the same in both, unless one has not begun."""
        about = first if first.cases else then
        return replace(
            about,
            cells={**first.cells, **then.cells},
            failed=first.failed or then.failed,
            interrupted=first.interrupted or then.interrupted,
            seconds=first.seconds + then.seconds,
        )

    def last(self, result: Column) -> bool:
        """Every fault is tried."""
        return False

    def conclude(self, result: Column) -> Column:
        """As it is."""
        return result


@dataclass(frozen=True)
class Smallest:
    """How small a fault is still caught.

    Attributes:
        id: the name of the fault.
        sizes: by id of the statements that were tried, in this order; None where not even the planted one is caught.
    """

    id: str
    sizes: Mapping[str, float | None] = field(default_factory=dict)
    failed: str = ""

    @property
    def best(self) -> tuple[str, float] | None:
        """The statement that catches the smallest, the first of several, and that size."""
        found = [(size, k, id) for k, (id, size) in enumerate(self.sizes.items()) if size is not None]
        return (min(found)[2], min(found)[0]) if found else None

    @property
    def summary(self) -> str:
        """For a line of progress."""
        if self.best is None:
            return self.failed or "no size is caught"
        return f"caught down to {self.best[1]:.0e} by {self.best[0]}"


@dataclass(frozen=True)
class Shrunk:
    """One fault made smaller and smaller, against a few statements."""

    id: str
    statements: tuple[str, ...]
    examples: int
    seed: int
    so_far: Smallest | None = None
    part: int = 0

    @property
    def foreign(self) -> bool:
        """Whether one of the statements is somebody else's code."""
        return any(map(is_in_a_file, self.statements))

    def where(self, done: int | None) -> str:
        """Where it is when so many statements are done."""
        return f"with {self.statements[min(done or 0, len(self.statements) - 1)]}"

    @property
    def total(self) -> int | None:
        """Statements."""
        return len(self.statements)

    def run(self, progress: Progress) -> Smallest:
        """The sizes."""
        found = self.so_far or Smallest(self.id)
        fault = fault_named(self.id)
        for id in self.statements:
            if id in found.sizes:
                continue
            statement = statement_named(id)
            bases = [baseline(statement, case) for case in draw_cases(statement, self.examples, self.seed, every=False)]
            found = replace(found, sizes={**found.sizes, id: smallest_caught(statement, fault, bases)})
            progress(len(found.sizes), found)
        return found

    def unfinished_result(self, why: str) -> Smallest:
        """The sizes that there are."""
        return replace(self.so_far or Smallest(self.id), failed=why or "interrupted")

    def parts(self) -> Sequence[Shrunk]:
        """One statement at a time."""
        if self.part or len(self.statements) == 1:
            return [self]
        return [replace(self, statements=(id,), part=k) for k, id in enumerate(self.statements)]

    def join(self, first: Smallest, then: Smallest) -> Smallest:
        """The sizes of both."""
        return replace(first, sizes={**first.sizes, **then.sizes}, failed=first.failed or then.failed)

    def last(self, result: Smallest) -> bool:
        """Every statement is tried."""
        return False

    def conclude(self, result: Smallest) -> Smallest:
        """As it is."""
        return result


def shrinking_of(faults: Sequence[Fault], columns: Sequence[Column], examples: int, seed: int) -> list[Shrunk]:
    """The faults that have a size and are caught, each with the statements that it is made smaller against."""
    made = []
    for fault in faults:
        found = [c for c in columns if fault.name in c.cells and c.cells[fault.name].found is FaultOutcome.CAUGHT]
        # The statement that the fault names goes first, whatever it took.
        order = sorted(found, key=lambda c: (c.id != fault.caught_by, c.cells[fault.name].examples))
        quickest = order[:QUICKEST]
        if fault.unit and quickest:
            ids = tuple(column.id for column in quickest)
            made.append(Shrunk(fault.name, ids, examples, seed))
    return made
