"""Statements with one assumption left out: entries written by hand, or derived from the statement itself.

An entry is a :class:`theorems.without.weakening.Weakened`. Each paper's package has its entries; those of the first
paper are in :mod:`theorems.without`. For a statement and an assumption without an entry, the hunt for counterexamples
uses the statement's own claims, on cases that the generators build for the other assumptions.
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
from theorems.run.registry.suite import modules_without
from theorems.without.query_drawing import plain_query_cases
from theorems.without.weakening import Weakened, others

LOSS = "well-behaved-loss"


@cache
def entries() -> dict[tuple[str, str], Weakened]:
    """Return every entry written by hand, by the ids of the statement and of the assumption left out.

    Raises:
        ValueError: two entries are for the same statement and assumption.
    """
    by_pair: dict[tuple[str, str], Weakened] = {}
    for paper, module in modules_without():
        for entry in vars(module).values():
            if isinstance(entry, Weakened):
                _add(by_pair, entry, paper, module.__name__)
    return by_pair


def _add(by_pair: dict[tuple[str, str], Weakened], entry: Weakened, paper: Paper, module: str) -> None:
    with paper.blame():
        pair = (entry.statement.id, entry.without)
        if by_pair.get(pair, entry) is not entry:
            raise ValueError(f"{entry.name} is defined twice, the second time in {module}")
        by_pair[pair] = entry


def droppable(statement: Statement) -> tuple[str, ...]:
    """Return the ids of the assumptions that can be left out of the statement."""
    own_ids = [without for id, without in entries() if id == statement.id]
    return tuple(dict.fromkeys([*statement.assumptions, *own_ids]))


def weakened_named(id: str, without: str) -> Weakened:
    """Return the statement without the assumption ``without``; if ``without`` is empty, with all its assumptions.

    Raises:
        InvalidInput: the statement or the assumption is unknown, or the statement does not assume it.
    """
    statement = statement_named(id)
    if not without:
        return _as_it_stands(statement)
    entry = entries().get((statement.id, without))
    if entry is not None:
        return entry
    if without not in statement.assumptions:
        ids = droppable(statement)
        raise InvalidInput(
            f"--without: {statement.id} does not assume {without!r}.{suggest(without, ids)} It assumes"
            f" {', '.join(ids) or 'nothing that can be dropped'}."
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
    keeps, predicate = others(statement, without), statement.assumption(without).check

    def draw_cases() -> SearchStrategy[Any]:
        if "queries-given" in keeps:
            return plain_query_cases(losses=("squared",)) if without == LOSS else plain_query_cases()
        if statement.about is not Case:
            return statement.cases()  # for other kinds of data, only the statement's own strategy builds cases
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
