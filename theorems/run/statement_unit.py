"""Verification of one statement as a unit of work."""

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
    """One statement to verify, with everything that its result depends on.

    Attributes:
        id: the id of the statement.
        examples: how many generated cases.
        seed: the seed of the generated cases.
        data: user data to check instead; ``None`` for generated cases.
        under_test: its functions must live in modules to be sent to other processes; a kernel by its name is loaded in
            the process that runs it.
        so_far: what is finished of it, for a result if it never ends; the result of :meth:`run` does not depend on it.
        lost: why its statement could not be read; it is not tried then.
        isolated: whether untrusted code, if it is some, must run in another process.
        title: of the statement, for a result without a case.
        realistic: whether only cases as users have them are generated.
        relations: whether each case is checked again, changed by a relation.
        urgency: the larger, the sooner it is done; 0 for statements that follow from a kernel's capabilities.
        part: which :data:`PART` cases of a statement these are; a unit that is not cut has all of them.
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
        """Return whether it runs untrusted code, in a process that may die of it."""
        return self.isolated and (is_in_a_file(self.id) or self.under_test.by_name)

    @property
    def together(self) -> str:
        """Return the group of a capability: capabilities of a kernel share calls, each examined once in a process."""
        return f"calls {self.part}" if self.urgency else ""

    def where(self, done: int | None) -> str:
        """Return where in its work the unit is when so many cases are done."""
        if done is None:
            return "while it was loaded"
        shrinking = self.so_far is not None and self.so_far.falsified is not None
        over = self.total is not None and done >= self.total
        return "while a case was made smaller" if shrinking or over else f"in case {self.part * PART + done + 1}"

    @property
    def total(self) -> int | None:
        """Return how many cases are tried, if that is known; of a capability it is the size of a cover."""
        return None if self.data or self.together else self.examples

    def unfinished_result(self, why: str) -> Result:
        """Return the result of the finished cases, for a unit that was interrupted or whose process failed."""
        begun = self.so_far.result if self.so_far else Result(self.id, self.title)
        return replace(begun, generated=self.data is None, interrupted=not why, stopped=why or "interrupted")

    def run(self, progress: Progress) -> Result:
        """Verify the statement and return the result; a unit with more cases is cut into :meth:`parts` first."""
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
        """Import our own modules before the unit's time runs."""
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
        """Return whether the later parts are not needed after this result.

        The first falsified case ends the unit; and where a statement never calls the kernel, more cases say no more.
        """
        return result.counts.get(Verdict.FALSIFIED, 0) > 0 or not result.generated

    def conclude(self, result: Result) -> Result:
        """Return the result of the unit: the statement is not about the kernel under test if no part is."""
        if result.reasons.get(Verdict.NOT_APPLICABLE) == KERNEL_UNTOUCHED:
            return replace(result, generated=False)
        return result
