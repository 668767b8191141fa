"""A statement with one assumption left out, as something that can be refuted.

An entry says where to look (a strategy for cases in which all other assumptions hold), what fails (the conclusion in
the paper's words, computed without the assumption left out) and which sentence a counterexample refutes. There is one
module per statement beside this one (:mod:`theorems.hunting.entries` finds them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

from generators.finding import Finding
from theorems.core.claim import until_undecided
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


def weaken(
    id: str,
    *,
    without: str,
    refutes: str,
    cases: Callable[[], SearchStrategy[Any]],
    keeps: tuple[str, ...] | None = None,
    fails: Callable[[Any], Finding] | None = None,
    violation: Callable[[Any], float] | None = None,
) -> Callable[[Conclusion], Weakened]:
    """Make the decorated conclusion that of statement ``id`` without one assumption; see :class:`Weakened`.

    Args:
        id: id of the statement.
        without: id of the assumption that is left out.
        refutes: the conclusion that a counterexample refutes, in the paper's words.
        cases: strategy for cases in which ``keeps`` hold.
        keeps: by default the statement's other assumptions.
        fails: by default the predicate of ``without`` in :data:`generators.assumptions.ASSUMPTIONS`.
        violation: a cheap number, positive where the conclusion seems to fail.

    Raises:
        ValueError: the conclusion has no docstring, which says why it fails.
        InvalidInput: for an unknown id.
    """

    def decorate(conclusion: Conclusion) -> Weakened:
        statement = statement_named(id)
        if not conclusion.__doc__:
            raise ValueError(f"{id} without {without} has no docstring to say why it fails")
        kept = others(statement, without) if keeps is None else keeps
        decided = fails or statement_assumption(statement, without)
        seen = until_undecided(conclusion)
        return Weakened(statement, without, kept, refutes, conclusion.__doc__, cases, seen, decided, violation)

    return decorate


def statement_assumption(statement: Statement, id: str) -> Callable[[Any], Finding]:
    """Return the predicate of an assumption, the statement's own or one of the library.

    Raises:
        InvalidInput: for an unknown id.
    """
    return statement.assumption(id).check


def others(statement: Statement, without: str) -> tuple[str, ...]:
    """Return the ids of the statement's assumptions except one."""
    return tuple(id for id in statement.assumptions if id != without)
