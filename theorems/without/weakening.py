"""Entries for hunts: statements with one assumption left out, which a counterexample can refute.

An entry has three parts: a strategy for cases in which all other assumptions hold; claims that state the paper's
conclusion without using the assumption left out; and the sentence that a counterexample refutes. Entries with the same
conclusion are made from one :class:`Weakening`. :mod:`theorems.counterexamples.weakened_statements` collects all
entries.
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
    """Statement without one of its assumptions, with everything that a hunt for counterexamples needs.

    Attributes:
        statement: the statement that is weakened.
        without: the id of the assumption that is left out; empty to hunt for counterexamples to the unchanged
            statement.
        keeps: the ids of the assumptions that a counterexample must satisfy; each is decided exactly.
        refutes: the conclusion that a counterexample refutes, in the paper's words and symbols.
        why: the mechanism by which the conclusion fails, or the reason why there is no counterexample.
        cases: function that returns a strategy for cases in which ``keeps`` hold, preferably of small readable numbers.
        conclusion: function of a case and the implementation under test that yields claims; a case on which a claim is
            falsified far beyond its tolerance is a counterexample.
        fails: predicate of the assumption left out; on a counterexample it must return a finding whose ``holds`` is
            False.
        violation: function of a case that quickly returns a number, positive if the conclusion seems to fail; it guides
            the search and saves most of the work. If None, the conclusion itself is run on every case.
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
        """Title for output, such as ``theorem-2 without single-input``."""
        return f"{self.statement.id} without {self.without}" if self.without else self.statement.id

    @property
    def name(self) -> str:
        """Name for files, such as ``theorem-2-without-single-input``."""
        bare = self.statement.id.rpartition(":")[2]
        return f"{bare}-without-{self.without}" if self.without else bare

    def of(self, id: str, why: str, *, refutes: str) -> Weakened:
        """Return an entry for the statement ``id``: this entry's cases are to refute the conclusion ``refutes``."""
        return Weakening(id, self.conclusion, refutes).without(
            self.without, why, cases=self.cases, fails=self.fails, violation=self.violation
        )


@dataclass(frozen=True)
class Weakening:
    """Conclusion of a statement that can be stated without some of the statement's assumptions.

    Attributes:
        id: the id of the statement.
        conclusion: function of a case and the implementation under test that yields claims; a case on which a claim is
            falsified far beyond its tolerance is a counterexample.
        refutes: the conclusion in the paper's words and symbols.
    """

    id: str
    conclusion: Conclusion
    refutes: str

    @classmethod
    def of_claims(cls, statement: Statement, refutes: str, *names: str) -> Weakening:
        """Return a weakening with the statement's own conclusion, or only its claims with the given names."""

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
        """Return the statement without the assumption ``assumption``, as an entry for hunts; see :class:`Weakened`.

        Args:
            assumption: the id of the assumption that is left out.
            why: the mechanism by which the conclusion fails.
            cases: a strategy for cases in which ``keeps`` hold, or a function that returns one.
            keeps: the ids of the assumptions to keep; by default the statement's other assumptions.
            fails: the predicate of the assumption left out; by default the statement's own predicate.
            violation: a function of a case that quickly returns a number, positive if the conclusion seems to fail.

        Raises:
            InvalidInput: an id is unknown.
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
    """Return a decorator that makes a conclusion an entry for hunts: statement ``id`` without assumption ``without``.

    The docstring of the conclusion becomes the entry's ``why``; for the other arguments see :meth:`Weakening.without`.

    Raises:
        ValueError: the conclusion has no docstring.
        InvalidInput: an id is unknown.
    """

    def decorate(conclusion: Conclusion) -> Weakened:
        if not conclusion.__doc__:
            raise ValueError(f"the conclusion of {id} without {without} needs a docstring that says why it fails")
        return Weakening(id, conclusion, refutes).without(
            without, conclusion.__doc__, cases=cases, keeps=keeps, fails=fails, violation=violation
        )

    return decorate


def others(statement: Statement, without: str) -> tuple[str, ...]:
    """Return the ids of the statement's assumptions except ``without``."""
    return tuple(id for id in statement.assumptions if id != without)
