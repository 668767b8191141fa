"""The unit of work that verifies one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from generators.user_data import Given
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.core.kernel_use import KERNEL_UNTOUCHED
from theorems.core.under_test import UnderTest
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.result import Result, merge_results
from theorems.run.verify import PART, Progress, SoFar, part_sizes, verify_data, verify_generated


@dataclass(frozen=True)
class Unit:
    """One statement to verify, with everything on which its result depends.

    Attributes:
        id: the id of the statement.
        examples: the number of generated cases.
        seed: the seed of the generated cases.
        data: user data to check instead; ``None`` for generated cases.
        under_test: the implementation under test. Its functions must be importable by name in other processes; a
            kernel given by its name is loaded in the process that runs the unit.
        so_far: the result of the finished cases, in case the unit is stopped; :meth:`run` does not depend on it.
        lost: the reason why the statement could not be read, so that it is not run; else empty.
        isolated: whether untrusted code must run in another process.
        part: the number of the part: part k has cases k * PART to (k + 1) * PART; 0 for a unit that is not cut.
        title: the title of the statement, for a result without a case.
        realistic: whether only cases that resemble users' data are generated.
        relations: whether each case is checked again after a change that must not change the verdict.
        urgency: units of larger urgency run sooner; 0 for statements that are not capabilities of a kernel.
    """

    id: str
    examples: int
    seed: int
    data: Given | None = None
    under_test: UnderTest = REFERENCE
    so_far: SoFar | None = None
    lost: str = ""
    isolated: bool = True
    part: int = 0
    title: str = ""
    realistic: bool = False
    relations: bool = False
    urgency: int = 0

    @property
    def foreign(self) -> bool:
        """Return whether the unit runs untrusted code, which may end its process."""
        return self.isolated and (is_in_a_file(self.id) or self.under_test.by_name)

    @property
    def together(self) -> str:
        """Return the group of a kernel's capabilities, whose units share calls: a process examines each call once."""
        return f"calls {self.part}" if self.urgency else ""

    def where(self, done: int | None) -> str:
        """Return in words what the unit does after ``done`` cases; ``done`` is None before the unit begins."""
        if done is None:
            return "while it was loaded"
        shrinking = self.so_far is not None and self.so_far.falsified is not None
        over = self.total is not None and done >= self.total
        return "while a case was made smaller" if shrinking or over else f"in case {self.part * PART + done + 1}"

    @property
    def total(self) -> int | None:
        """Return the number of cases; None if it is unknown: for data, and for capabilities of a kernel."""
        return None if self.data or self.together else self.examples

    def unfinished_result(self, why: str) -> Result:
        """Return the result on the finished cases, marked as interrupted, or as stopped for the reason ``why``."""
        begun = self.so_far.result if self.so_far else Result(self.id, self.title)
        return replace(begun, generated=self.data is None, interrupted=not why, stopped=why or "interrupted")

    def run(self, progress: Progress) -> Result:
        """Verify the statement and return the result; a unit with more than :data:`PART` cases must be cut first."""
        statement_named(self.id)
        under_test = self.under_test.load()
        progress(0)
        if self.data is not None:
            return verify_data(self.id, self.data, under_test, progress, self.relations)
        return verify_generated(
            self.id,
            self.examples,
            self.seed,
            under_test,
            progress,
            self.part,
            self.realistic,
            self.relations,
        )

    def prepare(self) -> None:
        """Import our own modules, before the time limit of the unit begins."""
        statements()
        self.under_test.prepare()

    def parts(self) -> Sequence[Unit]:
        """Return the parts of the unit: the first :data:`PART` cases, the next ones, and so on."""
        if self.data is not None or self.part or self.examples <= PART:
            return [self]
        return [replace(self, examples=size, part=k) for k, size in enumerate(part_sizes(self.examples))]

    def join(self, first: Result, then: Result) -> Result:
        """Merge the results of two parts."""
        return merge_results([first, then])

    def last(self, result: Result) -> bool:
        """Return whether a part with this result makes the later parts unnecessary.

        The first falsified case ends the unit, and so does a part that never called the kernel under test.
        """
        return result.counts.get(Verdict.FALSIFIED, 0) > 0 or not result.generated

    def conclude(self, result: Result) -> Result:
        """Return the result of the unit; if no part called the kernel under test, it is "not applicable"."""
        if result.reasons.get(Verdict.NOT_APPLICABLE) == KERNEL_UNTOUCHED:
            return replace(result, generated=False)
        return result
