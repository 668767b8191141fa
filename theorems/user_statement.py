"""``@statement`` for somebody's own file: as in the suite, but registered nowhere and with less to give.

``theorems verify path.py:name`` and ``theorems hunt path.py:name`` find it (:mod:`theorems.user_file`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hypothesis.strategies import SearchStrategy

from attention.errors import InvalidInput
from attention.implementation import Implementation
from generators.assumptions import ASSUMPTIONS, Assumption, Finding, assumption_named
from generators.case import Case
from generators.problems import cases as cases_with
from theorems.statement import Claim, Statement, statements

Conclusion = Callable[[Case, Implementation], Iterator[Claim]]

NEED_OWN_CASES = {
    "direction-given": "generators.direction_cases.direction_cases()",
    "higher-neighbours": "generators.direction_cases.direction_cases(kinds=('higher',))",
    "not-locally-optimal-direction": "generators.direction_cases.direction_cases()",
    "wider-direction": "generators.direction_cases.pair_cases()",
    "decided-neighbours": "generators.direction_cases.pair_cases()",
    "prompt-selects": "generators.joint_cases.joint_cases(non_supports=True)",
    "descent-selects": "generators.joint_cases.joint_cases(non_supports=True)",
}
"""Assumptions that :func:`generators.problems.cases` does not build, and what does."""


def statement(
    id: str,
    title: str = "",
    *,
    source: str = "",
    assumptions: Sequence[str | Assumption] = (),
    cases: Callable[[], SearchStrategy[Case]] | SearchStrategy[Case] | None = None,
    from_data: Callable[[Case], Iterator[Case]] | None = None,
) -> Callable[[Conclusion], Statement]:
    """Make the decorated conclusion a statement of one's own.

    The conclusion takes a case and the implementation under test and yields claims; its docstring states it.

    Args:
        id: kebab-case, not one of the suite's.
        title: what it says, in a few words; the docstring's first line if left out.
        source: where it is stated.
        assumptions: ids of the suite's, or :class:`Assumption` objects of one's own.
        cases: a strategy for cases that satisfy them (or a function that makes it). If left out, the suite builds cases
            that satisfy its own assumptions; those on which an own one fails count as not applicable.
        from_data: the cases of one user-supplied case; itself if left out.

    Raises:
        InvalidInput: an id or an assumption that cannot be used, no docstring, assumptions that no strategy here builds.
    """
    _check_id(id)
    ids, own = _sorted_out(assumptions)
    strategy = _strategy(tuple(i for i in ids if i not in own), cases)
    if from_data is not None and not callable(from_data):
        raise InvalidInput(f"statement {id}: from_data is no function; give one that yields cases.")

    def register(conclusion: Conclusion) -> Statement:
        text = conclusion.__doc__ or ""
        if not text.strip():
            raise InvalidInput(f"statement {id}: the conclusion has no docstring; state what it says there.")
        first = inspect.cleandoc(text).partition("\n")[0].rstrip(".:")
        said = title or first
        return Statement(id, said, source or "own", ids, strategy, conclusion, text, from_data or _alone, (), own)

    return register


def _alone(case: Case) -> Iterator[Case]:
    yield case


def _check_id(id: str) -> None:
    if not isinstance(id, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id):
        raise InvalidInput(f"statement: the id {id!r} is not kebab-case; give one like 'my-conjecture'.")
    if any(id in (one.id, *one.aliases) for one in statements().values()):
        raise InvalidInput(f"statement: the id {id!r} is one of the suite's; choose another.")


def _sorted_out(assumptions: Sequence[str | Assumption]) -> tuple[tuple[str, ...], MappingProxyType[str, Assumption]]:
    """The ids, and the own assumptions by id."""
    if isinstance(assumptions, str) or not isinstance(assumptions, Sequence):
        raise InvalidInput("assumptions: give a tuple of ids or Assumption objects.")
    ids: list[str] = []
    own: dict[str, Assumption] = {}
    for one in assumptions:
        if isinstance(one, Assumption):
            if one.id in ASSUMPTIONS:
                raise InvalidInput(f"assumption: {one.id!r} is one of the suite's; choose another id.")
            own[one.id] = replace(one, check=_finding_of(one))
            ids.append(one.id)
        else:
            ids.append(assumption_named(one).id)
    twice = next((id for id in ids if ids.count(id) > 1), None)
    if twice is not None:
        raise InvalidInput(f"assumptions: {twice!r} is given twice.")
    return tuple(ids), MappingProxyType(own)


def _finding_of(assumption: Assumption) -> Callable[[Case], Finding]:
    """The predicate; whatever is no Finding is an error, not an answer."""

    def check(case: Case) -> Finding:
        found = assumption.check(case)
        if not isinstance(found, Finding):
            kind = type(found).__name__
            raise TypeError(
                f"the predicate of {assumption.id} returned a value of type {kind}; return Finding(holds, evidence)"
            )
        return found

    check.__doc__ = assumption.check.__doc__
    return check


def _strategy(
    ids: tuple[str, ...], given: Callable[[], SearchStrategy[Case]] | SearchStrategy[Case] | None
) -> Callable[[], SearchStrategy[Case]]:
    if given is None:
        hard = next((id for id in ids if id in NEED_OWN_CASES), None)
        if hard is not None:
            raise InvalidInput(f"cases: none are built for {hard!r}; give cases={NEED_OWN_CASES[hard]}.")
        built = cases_with(assumptions=ids)
        return lambda: built
    if isinstance(given, SearchStrategy):
        return lambda: given.map(_a_case)
    if not callable(given):
        raise InvalidInput("cases: give a Hypothesis strategy of cases, or a function that makes one.")

    def strategy() -> SearchStrategy[Case]:
        made = given()
        if not isinstance(made, SearchStrategy):
            raise TypeError(f"cases returned a value of type {type(made).__name__}, not a Hypothesis strategy")
        return made.map(_a_case)

    return strategy


def _a_case(drawn: Any) -> Case:
    if not isinstance(drawn, Case):
        raise TypeError(f"the strategy drew a value of type {type(drawn).__name__}, not a Case")
    return drawn
