"""Look-up of a statement by its id, in the suite or in a user's file."""

from __future__ import annotations

from collections.abc import Sequence

from generators.case import Case
from generators.subject import Subject
from reference_attention.errors import InvalidInput, suggest
from theorems.core.statement import Statement
from theorems.run.registry.suite import capabilities, statements
from theorems.run.registry.user_file import is_in_a_file, statement_in_file

KINDS = ("queries-given", "sequence-given")
"""Ids of two assumptions about the data: that each input has one query, and that each input has several."""


def statement_named(id: str) -> Statement:
    """Return the statement with this id or alias; the id ``path.py:name`` names a statement in a user's file.

    Raises:
        InvalidInput: the id is unknown, or the file cannot be loaded.
    """
    if is_in_a_file(id):
        return statement_in_file(id)
    for candidate in (*statements().values(), *capabilities().values()):
        if id == candidate.id or id in candidate.aliases:
            return candidate
    ids = (*statements(), *capabilities())
    raise InvalidInput(
        f"id: {id!r} is not a statement.{suggest(id, ids)} `theorems list` shows all; one in your own file is"
        " PATH.py:NAME."
    )


def select_statements(
    ids: Sequence[str], *, of_kernels: bool = False, subject: Subject | None = None
) -> list[Statement]:
    """Return the statements with these ids, each statement once; without ids return all statements of the papers.

    Args:
        ids: ids or aliases.
        of_kernels: whether "all statements" includes the capabilities of attention kernels.
        subject: user data, or None. Without ids, only statements about this kind of data are returned: data of a class
            that a paper defines, data with queries (one or several per input), or data without queries.

    Raises:
        InvalidInput: an id is unknown.
    """
    if not ids:
        candidates = [*(capabilities().values() if of_kernels or subject is not None else ()), *statements().values()]
        if subject is not None:
            candidates = [statement for statement in candidates if isinstance(subject, statement.about)]
        if not isinstance(subject, Case):
            return candidates
        kinds = dict(zip(KINDS, (subject.queried, subject.sequence), strict=True))
        kind_of_data = next((kind for kind, data in kinds.items() if data is not None), None)
        return [
            statement
            for statement in candidates
            if next((kind for kind in KINDS if kind in statement.assumptions), None) == kind_of_data
        ]
    # An id and an alias may name the same statement, which is verified once.
    return list({statement.id: statement for statement in map(statement_named, ids)}.values())
