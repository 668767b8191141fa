"""The unit of work that verifies one statement on its cases."""

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
    """Unit of work: one statement to verify, with everything on which the result depends.

    Attributes:
        id: the id of the statement.
        examples: the number of generated cases.
        seed: the seed of the generated cases.
        data: user data to check the statement on; None for generated cases.
        under_test: the implementation under test. Other processes must be able to import its functions by name; a
            kernel given by its name is loaded in the process that runs the unit.
        so_far: the result on the finished cases, reported if the unit is stopped; :meth:`run` does not depend on it.
        lost: the reason why the statement's file could not be read, so that the unit is not run; else empty.
        isolated: whether untrusted code must run in another process.
        part: the number k of this part of the cases, which are number k * PART + 1 to (k + 1) * PART; 0 for a unit that
            is not cut.
        title: the title of the statement, for the result if no case was checked.
        realistic: whether only cases that resemble users' data are generated.
        urgency: the priority: units with a larger number run sooner; 0 unless the statement is a capability of
            attention kernels.
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
    urgency: int = 0

    @property
    def foreign(self) -> bool:
        """Return whether the unit runs untrusted code, which may end its process."""
        return self.isolated and (is_in_a_file(self.id) or self.under_test.by_name)

    @property
    def together(self) -> str:
        """Return the name of a group of units that run in one process because they share a kernel's calls; else ""."""
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
        """Return the number of cases; None if it is unknown, as for user data and for capabilities of a kernel."""
        return None if self.data or self.together else self.examples

    def unfinished_result(self, why: str) -> Result:
        """Return the result on the finished cases, stopped for the reason ``why`` (empty: interrupted by a signal)."""
        begun = self.so_far.result if self.so_far else Result(self.id, self.title)
        return replace(begun, generated=self.data is None, interrupted=not why, stopped=why or "interrupted")

    def run(self, progress: Progress) -> Result:
        """Verify the statement and return the result; more than :data:`PART` cases must be cut into parts first."""
        statement_named(self.id)
        under_test = self.under_test.load()
        progress(0)
        if self.data is not None:
            return verify_data(self.id, self.data, under_test, progress)
        return verify_generated(
            self.id,
            self.examples,
            self.seed,
            under_test,
            progress,
            self.part,
            self.realistic,
        )

    def prepare(self) -> None:
        """Import our own modules before the unit's time limit begins."""
        statements()
        self.under_test.prepare()

    def parts(self) -> Sequence[Unit]:
        """Return the parts of the unit, each with at most :data:`PART` cases, in the order of the cases."""
        if self.data is not None or self.part or self.examples <= PART:
            return [self]
        return [replace(self, examples=size, part=k) for k, size in enumerate(part_sizes(self.examples))]

    def join(self, first: Result, then: Result) -> Result:
        """Merge the result of the first parts with the result of the next part."""
        return merge_results([first, then])

    def last(self, result: Result) -> bool:
        """Return whether the parts after the part with this result are unnecessary.

        The first falsified case ends the unit, and so does a part that never called the kernel under test.
        """
        return result.counts.get(Verdict.FALSIFIED, 0) > 0 or not result.generated

    def conclude(self, result: Result) -> Result:
        """Return the unit's result; it is "not applicable" if no part called the kernel under test."""
        if result.reasons.get(Verdict.NOT_APPLICABLE) == KERNEL_UNTOUCHED:
            return replace(result, generated=False)
        return result
