"""One statement to verify, as a unit of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from generators.user_data import Given
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import KERNEL_UNTOUCHED, KernelByName
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.result import Result, merge_results
from theorems.run.verify import PART, Progress, SoFar, part_sizes, verify_data, verify_generated


@dataclass(frozen=True)
class Unit:
    """One statement to verify; everything that its result depends on.

    Attributes:
        id: of the statement.
        examples: how many generated cases.
        seed: drives them.
        data: user data to check instead; ``None`` for generated cases.
        under_test: its functions must live in modules to be sent to other processes; a kernel by its name is loaded in
            the process that runs it.
        so_far: what need not be done again; the result does not depend on it.
        lost: why its statement could not be read; it is not tried then.
        isolated: whether untrusted code, if it is some, must run in another process.
        title: of the statement, for a result without a case.
        realistic: whether only cases as users have them are generated.
        relations: whether each case is checked again, changed by a relation.
        urgency: the larger, the sooner it is done; 0 for what follows from what a kernel is able to do.
        part: which :data:`PART` cases of a statement these are; a unit that is not cut has all of them.
    """

    id: str
    examples: int
    seed: int
    data: Given | None = None
    under_test: Implementation | KernelByName = REFERENCE
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
        """Whether it runs untrusted code, in a process that may die of it."""
        return self.isolated and (is_in_a_file(self.id) or isinstance(self.under_test, KernelByName))

    @property
    def together(self) -> str:
        """Capabilities of a kernel are views of the same calls, each examined once in a process."""
        return f"calls {self.part}" if self.urgency else ""

    def where(self, done: int | None) -> str:
        """Where it is when so many cases are done."""
        if done is None:
            return "while it was loaded"
        shrinking = self.so_far is not None and self.so_far.falsified is not None
        over = self.data is None and done >= self.examples
        return "while a case was made smaller" if shrinking or over else f"in case {self.part * PART + done + 1}"

    @property
    def total(self) -> int | None:
        """How many cases are tried, if that is known."""
        return None if self.data else self.examples

    def unfinished_result(self, why: str) -> Result:
        """The result of a unit that was interrupted, or whose process failed: of the cases that were finished."""
        begun = self.so_far.result if self.so_far else Result(self.id, self.title)
        return replace(begun, generated=self.data is None, interrupted=not why, stopped=why or "interrupted")

    def run(self, progress: Progress) -> Result:
        """The result; a unit with more cases is cut into :meth:`parts` first."""
        statement_named(self.id)
        under_test = self.under_test.load() if isinstance(self.under_test, KernelByName) else self.under_test
        progress(self.so_far.result.examples if self.so_far else 0)
        if self.data is not None:
            return verify_data(self.id, self.data, under_test, progress, self.so_far, self.relations)
        return verify_generated(
            self.id,
            self.examples,
            self.seed,
            under_test,
            progress,
            self.so_far,
            self.part,
            self.realistic,
            self.relations,
        )

    def prepare(self) -> None:
        """Import what is ours before its time runs."""
        statements()
        if isinstance(self.under_test, KernelByName):
            self.under_test.prepare()

    def parts(self) -> Sequence[Unit]:
        """The first :data:`PART` cases, the next ones, …"""
        if self.data is not None or self.part or self.examples <= PART:
            return [self]
        return [replace(self, examples=size, part=k) for k, size in enumerate(part_sizes(self.examples))]

    def join(self, first: Result, then: Result) -> Result:
        """Of the cases of both."""
        return merge_results([first, then])

    def last(self, result: Result) -> bool:
        """The first falsified case ends it; and of a kernel that a statement never calls, more cases say no more."""
        return result.counts.get(Verdict.FALSIFIED, 0) > 0 or not result.generated

    def conclude(self, result: Result) -> Result:
        """A statement is not about the kernel under test if no part is."""
        if result.reasons.get(Verdict.NOT_APPLICABLE) == KERNEL_UNTOUCHED:
            return replace(result, generated=False)
        return result
