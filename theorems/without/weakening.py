"""A statement with one assumption left out, as something that can be refuted.

An entry says where to look (a strategy for cases in which all other assumptions hold), what fails (the conclusion in
the paper's words, computed without using that assumption) and which sentence a counterexample refutes. Entries that
share their conclusion are made from one :class:`Weakening`.
:mod:`theorems.counterexamples.weakened_statements` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

from generators.finding import Finding
from theorems.core.claim import Claim, until_undecided
from theorems.core.implementation import Implementation
from theorems.core.statement import Conclusion, Statement
from theorems.run.registry.lookup import statement_named


@dataclass(frozen=True)
class Weakened:
    """A statement without one of its assumptions.

    Attributes:
        statement: the statement that is weakened.
        without: id of the assumption that is left out; empty to hunt the statement as it stands.
        keeps: ids of the assumptions that a counterexample must satisfy, each decided exactly.
        refutes: the conclusion that a counterexample refutes, in the paper's words.
        why: the mechanism by which it fails, or why nothing is found.
        cases: strategy for cases in which ``keeps`` hold; small readable numbers first.
        conclusion: yields claims; a falsified one, far beyond its tolerance, is the violation.
        fails: whether the assumption left out really fails (``holds`` is ``False``) on a case.
        violation: a cheap number, positive where the conclusion seems to fail; guides the search and saves most
            of the work. ``None``: the conclusion itself is run on every case.
    """

    statement: Statement
    without: str
    keeps: tuple[str, ...]
    refutes: str
    why: str
    cases: Callable[[], SearchStrategy[Any]]
    conclusion: Conclusion
    fails: Callable[[Any], Finding]
    violation: Callable[[Any], float] | None = None

    @property
    def title(self) -> str:
        """Title for people, e.g. ``theorem-2 without single-input``."""
        return f"{self.statement.id} without {self.without}" if self.without else self.statement.id

    @property
    def name(self) -> str:
        """Name of a file, e.g. ``theorem-2-without-single-input``."""
        bare = self.statement.id.rpartition(":")[2]
        return f"{bare}-without-{self.without}" if self.without else bare

    def of(self, id: str, why: str, *, refutes: str) -> Weakened:
        """Return the entry for another statement: the same cases refute its conclusion ``refutes``."""
        return Weakening(id, self.conclusion, refutes).without(
            self.without, why, cases=self.cases, fails=self.fails, violation=self.violation
        )


@dataclass(frozen=True)
class Weakening:
    """A conclusion that can be stated without some of the assumptions of a statement.

    Attributes:
        id: id of the statement.
        conclusion: yields claims; a falsified one, far beyond its tolerance, is the violation.
        refutes: the conclusion in the paper's words.
    """

    id: str
    conclusion: Conclusion
    refutes: str

    @classmethod
    def of_claims(cls, statement: Statement, refutes: str, *names: str) -> Weakening:
        """Return the statement's own conclusion, or only its claims of these names."""

        def conclusion(case: Any, under_test: Implementation) -> Iterator[Claim]:
            claims = statement.conclusion(case, under_test)
            yield from (claim for claim in claims if not names or claim.name in names)

        return cls(statement.id, conclusion, refutes)

    def without(
        self,
        assumption: str,
        why: str,
        *,
        cases: Callable[[], SearchStrategy[Any]] | SearchStrategy[Any],
        keeps: tuple[str, ...] | None = None,
        fails: Callable[[Any], Finding] | None = None,
        violation: Callable[[Any], float] | None = None,
    ) -> Weakened:
        """Return the statement without an assumption; see :class:`Weakened`.

        Args:
            assumption: id of the assumption that is left out.
            why: the mechanism by which the conclusion fails.
            cases: strategy for cases in which ``keeps`` hold, or a function that makes one.
            keeps: by default the statement's other assumptions.
            fails: by default the statement's predicate of the assumption.
            violation: a cheap number, positive where the conclusion seems to fail.

        Raises:
            InvalidInput: for an unknown id.
        """
        statement = statement_named(self.id)
        return Weakened(
            statement,
            assumption,
            others(statement, assumption) if keeps is None else keeps,
            self.refutes,
            why,
            (lambda: cases) if isinstance(cases, SearchStrategy) else cases,
            until_undecided(self.conclusion),
            fails or statement.assumption(assumption).check,
            violation,
        )


def weaken(
    id: str,
    *,
    without: str,
    refutes: str,
    cases: Callable[[], SearchStrategy[Any]] | SearchStrategy[Any],
    keeps: tuple[str, ...] | None = None,
    fails: Callable[[Any], Finding] | None = None,
    violation: Callable[[Any], float] | None = None,
) -> Callable[[Conclusion], Weakened]:
    """Make the decorated conclusion that of statement ``id`` without one assumption.

    The docstring of the conclusion says why it fails; for the arguments see :class:`Weakening`.

    Raises:
        ValueError: the conclusion has no docstring.
        InvalidInput: for an unknown id.
    """

    def decorate(conclusion: Conclusion) -> Weakened:
        if not conclusion.__doc__:
            raise ValueError(f"{id} without {without} has no docstring to say why it fails")
        return Weakening(id, conclusion, refutes).without(
            without, conclusion.__doc__, cases=cases, keeps=keeps, fails=fails, violation=violation
        )

    return decorate


def others(statement: Statement, without: str) -> tuple[str, ...]:
    """Return the ids of the statement's assumptions except one."""
    return tuple(id for id in statement.assumptions if id != without)
