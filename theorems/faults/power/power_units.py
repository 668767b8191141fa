"""The work of ``theorems power``, cut into units that other processes can run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from theorems.core.claim import Verdict
from theorems.faults import Fault, fault_named
from theorems.faults.power.trial import Cell, FaultOutcome, baseline, smallest_caught, try_fault
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.unit_protocols import Divisible
from theorems.run.verify import Progress, draw_cases

QUICKEST = 4
"""Largest number of statements that are tried on smaller sizes of a fault: first its ``caught_by``, then those that
catch it after the fewest examples."""
AT_A_TIME = 20
"""Number of faults in a part of a statement's unit. Each part checks the reference again; an interrupted run resumes
after its last finished part."""


@dataclass(frozen=True)
class Column:
    """A column of the table: which faults one statement catches.

    Attributes:
        id: the id of the statement.
        reference: the number of cases on which the statement is upheld for the reference.
        cases: the number of cases.
        falsified: why the statement is falsified for the reference, which makes the column meaningless; else empty.
        cells: the result of each fault, by its name.
        failed: why the column is incomplete; empty if it is complete.
        interrupted: whether a signal ended the work before the column was complete.
        seconds: the seconds that the column took.
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
        """Return the number of caught faults, or why there is no column, as a line of progress."""
        if self.failed:
            return self.failed
        caught = sum(cell.outcome is FaultOutcome.CAUGHT for cell in self.cells.values())
        return f"catches {caught} of {len(self.cells)} faults, {self.seconds:.1f} s"


@dataclass(frozen=True)
class FaultTrials(Divisible[Column]):
    """A unit of work that tries many faults against one statement, all on the same generated cases.

    Attributes:
        id: the id of the statement.
        faults: the names of the faults.
        examples: the number of cases that are generated.
        seed: the seed of the cases.
        so_far: the cells filled so far, which are reported if the unit does not finish; they do not change the column.
        part: the index, from zero, of this part among the parts into which the statement's faults are divided.
        at_a_time: the number of faults in a part; the column does not depend on it.
    """

    id: str
    faults: tuple[str, ...]
    examples: int
    seed: int
    so_far: Column | None = None
    part: int = 0
    at_a_time: int = AT_A_TIME

    @property
    def foreign(self) -> bool:
        """Return whether the statement is in a user's file."""
        return is_in_a_file(self.id)

    def where(self, done: int | None) -> str:
        """Return a phrase that names the fault which is being tried."""
        remaining = [name for name in self.faults if self.so_far is None or name not in self.so_far.cells]
        return "before the first fault" if done is None or not remaining else f"at the fault {remaining[0]}"

    @property
    def total(self) -> int | None:
        """The number of steps of progress: one for the reference, and one for each fault."""
        return len(self.faults) + 1

    def run(self, progress: Progress) -> Column:
        """Check the reference, try all faults, and return the column."""
        began = time.perf_counter()
        statement = statement_named(self.id)
        bases = [baseline(statement, case) for case in draw_cases(statement, self.examples, self.seed, every=False)]
        wrong = next((base for base in bases if base.verdict is Verdict.FALSIFIED), None)
        column = Column(
            statement.id,
            sum(base.verdict is Verdict.UPHELD for base in bases),
            len(bases),
            "" if wrong is None else wrong.reason,
        )
        progress(1)
        for name in self.faults:
            cells = {**column.cells, name: try_fault(statement, fault_named(name), bases)}
            column = replace(column, cells=cells, seconds=time.perf_counter() - began)
            progress(len(cells) + 1, column)
        return column

    def unfinished_result(self, why: str) -> Column:
        """Return the column with the cells filled so far; ``why`` is the reason, empty after an interruption."""
        return replace(self.so_far or Column(self.id), failed=why or "interrupted", interrupted=not why)

    def parts(self) -> Sequence[FaultTrials]:
        """Return units for groups of the faults; each draws the same cases and checks the reference on them again."""
        size = self.at_a_time
        if self.part or len(self.faults) <= size:
            return [self]
        some = [self.faults[k : k + size] for k in range(0, len(self.faults), size)]
        return [replace(self, faults=names, part=k) for k, names in enumerate(some)]

    def join(self, first: Column, then: Column) -> Column:
        """Return a column with the cells of both parts, whose results for the reference agree if both have begun."""
        about = first if first.cases else then
        return replace(
            about,
            cells={**first.cells, **then.cells},
            failed=first.failed or then.failed,
            interrupted=first.interrupted or then.interrupted,
            seconds=first.seconds + then.seconds,
        )


@dataclass(frozen=True)
class Smallest:
    """The smallest sizes at which a fault is still caught.

    Attributes:
        id: the name of the fault.
        sizes: the smallest size that a statement catches, by the statement's id, in the order tried; None if the
            statement does not even catch the planted size.
        failed: why sizes are missing; empty if none are.
    """

    id: str
    sizes: Mapping[str, float | None] = field(default_factory=dict)
    failed: str = ""

    @property
    def best(self) -> tuple[str, float] | None:
        """The first statement that catches the smallest size, with this size; None if no size is caught."""
        caught = [(size, k, id) for k, (id, size) in enumerate(self.sizes.items()) if size is not None]
        return (min(caught)[2], min(caught)[0]) if caught else None

    @property
    def summary(self) -> str:
        """The smallest size caught, or why there is none, as a line of progress."""
        if self.best is None:
            return self.failed or "no size is caught"
        return f"caught down to {self.best[1]:.0e} by {self.best[0]}"


@dataclass(frozen=True)
class Shrunk(Divisible[Smallest]):
    """A unit of work that tries smaller and smaller sizes of one fault against a few statements.

    Attributes:
        id: the name of the fault.
        statements: the ids of the statements.
        examples: the number of cases that are generated for each statement.
        seed: the seed of the cases.
        so_far: the sizes computed so far, which are reported if the unit does not finish.
        part: the index, from zero, of this part among the parts of the unit, one per statement.
    """

    id: str
    statements: tuple[str, ...]
    examples: int
    seed: int
    so_far: Smallest | None = None
    part: int = 0

    @property
    def foreign(self) -> bool:
        """Return whether one of the statements is in a user's file."""
        return any(map(is_in_a_file, self.statements))

    def where(self, done: int | None) -> str:
        """Return a phrase that names the statement which is tried after ``done`` others."""
        return f"with {self.statements[min(done or 0, len(self.statements) - 1)]}"

    @property
    def total(self) -> int | None:
        """The number of steps of progress: one for each statement."""
        return len(self.statements)

    def run(self, progress: Progress) -> Smallest:
        """Return the smallest size that each statement catches."""
        smallest = Smallest(self.id)
        fault = fault_named(self.id)
        for id in self.statements:
            statement = statement_named(id)
            bases = [baseline(statement, case) for case in draw_cases(statement, self.examples, self.seed, every=False)]
            smallest = replace(smallest, sizes={**smallest.sizes, id: smallest_caught(statement, fault, bases)})
            progress(len(smallest.sizes), smallest)
        return smallest

    def unfinished_result(self, why: str) -> Smallest:
        """Return the sizes computed so far; ``why`` is the reason, empty after an interruption."""
        return replace(self.so_far or Smallest(self.id), failed=why or "interrupted")

    def parts(self) -> Sequence[Shrunk]:
        """Return units with one statement each."""
        if self.part or len(self.statements) == 1:
            return [self]
        return [replace(self, statements=(id,), part=k) for k, id in enumerate(self.statements)]

    def join(self, first: Smallest, then: Smallest) -> Smallest:
        """Return the sizes of both parts."""
        return replace(first, sizes={**first.sizes, **then.sizes}, failed=first.failed or then.failed)


def shrinking_of(faults: Sequence[Fault], columns: Sequence[Column], examples: int, seed: int) -> list[Shrunk]:
    """Return a unit for each fault that has a size and is caught, with the statements to try it on at smaller sizes."""
    units = []
    for fault in faults:
        catching = [c for c in columns if fault.name in c.cells and c.cells[fault.name].outcome is FaultOutcome.CAUGHT]
        # First the statement of the fault's ``caught_by``, however many examples it needed.
        order = sorted(catching, key=lambda c: (c.id != fault.caught_by, c.cells[fault.name].examples))
        quickest = order[:QUICKEST]
        if fault.unit and quickest:
            ids = tuple(column.id for column in quickest)
            units.append(Shrunk(fault.name, ids, examples, seed))
    return units
