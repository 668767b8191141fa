"""A statement with one assumption left out, as something that can be refuted.

An entry says where to look (a strategy for cases in which all other assumptions hold), what fails (the conclusion in
the paper's words, computed without the assumption that is gone) and which sentence a counterexample refutes. There
is one module per statement beside this one; a pair without an entry is hunted with the statement's own conclusion.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from hypothesis.strategies import SearchStrategy

from attention.errors import InvalidInput
from attention.implementation import REFERENCE
from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.finding import Finding
from generators.problems import cases as cases_with
from theorems.statement import Conclusion, Statement, statement_named


@dataclass(frozen=True)
class Weakened:
    """A statement without one of its assumptions.

    Attributes:
        statement: what is weakened.
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
    cases: Callable[[], SearchStrategy[Case]]
    conclusion: Conclusion
    fails: Callable[[Case], Finding]
    violation: Callable[[Case], float] | None = None

    @property
    def name(self) -> str:
        """E.g. ``theorem-2-without-single-input``; fit for a file name."""
        bare = self.statement.id.rpartition(":")[2]
        return f"{bare}-without-{self.without}" if self.without else bare


_REGISTRY: dict[tuple[str, str], Weakened] = {}


def weakened(
    id: str,
    *,
    without: str,
    refutes: str,
    cases: Callable[[], SearchStrategy[Case]],
    keeps: tuple[str, ...] | None = None,
    fails: Callable[[Case], Finding] | None = None,
    violation: Callable[[Case], float] | None = None,
) -> Callable[[Conclusion], Weakened]:
    """Register the decorated conclusion as that of statement ``id`` without one assumption; see :class:`Weakened`.

    Args:
        keeps: by default the statement's other assumptions.
        fails: by default the predicate of ``without`` in :data:`generators.assumptions.ASSUMPTIONS`.
    """

    def register(conclusion: Conclusion) -> Weakened:
        statement = statement_named(id)
        if (id, without) in _REGISTRY:
            raise ValueError(f"{id} without {without} is registered twice")
        if not conclusion.__doc__:
            raise ValueError(f"{id} without {without} has no docstring to say why it fails")
        kept = _others(statement, without) if keeps is None else keeps
        decided = fails or statement_assumption(statement, without)
        made = Weakened(statement, without, kept, refutes, conclusion.__doc__, cases, conclusion, decided, violation)
        _REGISTRY[id, without] = made
        return made

    return register


def statement_assumption(statement: Statement, id: str) -> Callable[[Case], Finding]:
    """The predicate of an assumption, the statement's own or one of the library.

    Raises:
        InvalidInput: for an unknown id.
    """
    return statement.assumption(id).check


def _others(statement: Statement, without: str) -> tuple[str, ...]:
    return tuple(id for id in statement.assumptions if id != without)


@cache
def entries() -> dict[tuple[str, str], Weakened]:
    """Every entry by (statement, assumption left out), in the order of the statements."""
    import theorems.hunting

    for module in pkgutil.iter_modules(theorems.hunting.__path__):
        if module.name.startswith(("lemma_", "theorem_", "conjecture_")):
            importlib.import_module(f"theorems.hunting.{module.name}")
    return dict(_REGISTRY)


def droppable(statement: Statement) -> tuple[str, ...]:
    """The assumptions without which the statement can be hunted."""
    own = [without for id, without in entries() if id == statement.id]
    return tuple(dict.fromkeys([*statement.assumptions, *own]))


def weakened_named(id: str, without: str) -> Weakened:
    """The statement without that assumption; without none (empty) the statement as it stands.

    Raises:
        InvalidInput: an unknown statement or assumption, or one that the statement does not make.
    """
    statement = statement_named(id)
    if not without:
        return _as_it_stands(statement)
    found = entries().get((statement.id, without))
    if found is not None:
        return found
    if without not in statement.assumptions:
        if without not in ASSUMPTIONS:
            raise InvalidInput(f"--without: {without!r} is no assumption; known are {', '.join(ASSUMPTIONS)}.")
        raise InvalidInput(
            f"--without: {statement.id} does not assume {without}; take one of"
            f" {', '.join(droppable(statement)) or 'none: it has no assumption'}."
        )
    return _generic(statement, without)


def _as_it_stands(statement: Statement) -> Weakened:
    return Weakened(
        statement,
        "",
        statement.assumptions,
        statement.title,
        "the statement as it stands",
        statement.cases,
        statement.conclusion,
        lambda _: Finding(False, "nothing is left out"),
    )


def _generic(statement: Statement, without: str) -> Weakened:
    keeps, predicate = _others(statement, without), statement_assumption(statement, without)

    def drawn() -> SearchStrategy[Case]:
        library = tuple(id for id in keeps if id in ASSUMPTIONS)
        return cases_with(assumptions=library, start="anywhere", plain=True)

    return Weakened(
        statement,
        without,
        keeps,
        statement.title,
        "the statement's own claims on data of its other assumptions",
        drawn,
        statement.conclusion,
        predicate,
    )


UNDER_TEST = REFERENCE
"""A hunt refutes statements, not kernels."""
