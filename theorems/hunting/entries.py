"""Every statement without one of its assumptions: hand-made entries, and the rest from the statement alone.

The entries stand in the papers' rooms for them, ours in :mod:`theorems.without`; a pair without one is hunted with the
statement's own claims, on cases that the generators build for its other assumptions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.finding import Finding
from generators.problems import cases as cases_with
from max_margin_theorems.papers import Paper
from reference_attention.errors import InvalidInput, suggest
from theorems.core.statement import Statement
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import definitions_in, modules_without
from theorems.without.query_drawing import plain_query_cases
from theorems.without.weakened import Weakened, others, statement_assumption

LOSS = "well-behaved-loss"


@cache
def entries() -> dict[tuple[str, str], Weakened]:
    """Every entry by (statement, assumption left out).

    Raises:
        ValueError: two of them are of the same pair.
    """
    found: dict[tuple[str, str], Weakened] = {}
    for paper, module in modules_without():
        for _, one in definitions_in([module], Weakened):
            _add(found, one, paper, module.__name__)
    return found


def _add(found: dict[tuple[str, str], Weakened], one: Weakened, paper: Paper, module: str) -> None:
    with paper.blame():
        pair = (one.statement.id, one.without)
        if pair in found:
            raise ValueError(f"{one.name} is there twice; {module} has the second")
        found[pair] = one


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
        own = droppable(statement)
        raise InvalidInput(
            f"--without: {statement.id} does not assume {without!r}.{suggest(without, own)} It assumes"
            f" {', '.join(own) or 'nothing that can be dropped'}."
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
    keeps, predicate = others(statement, without), statement_assumption(statement, without)

    def draw_cases() -> SearchStrategy[Any]:
        if "queries-given" in keeps:
            return plain_query_cases(losses=("squared",)) if without == LOSS else plain_query_cases()
        if statement.about is not Case:
            return statement.cases()  # nothing here builds other ones
        library = tuple(id for id in keeps if id not in statement.own_assumptions)
        return cases_with(assumptions=library, start="anywhere", plain=True)

    return Weakened(
        statement,
        without,
        keeps,
        statement.title,
        "the statement's own claims on data of its other assumptions",
        draw_cases,
        statement.conclusion,
        predicate,
    )
