"""A statement by its id: one of the suite's, or one in somebody's own file."""

from __future__ import annotations

from collections.abc import Sequence

from generators.case import Case
from generators.subject import Subject
from reference_attention.errors import InvalidInput, suggest
from theorems.core.statement import Statement
from theorems.run.registry.suite import capabilities, statements
from theorems.run.registry.user_file import is_in_a_file, statement_in_file

KINDS = ("queries-given", "sequence-given")
"""What a statement assumes to be given beside tokens, labels and head."""


def statement_named(id: str) -> Statement:
    """The statement of that id or alias, or of somebody's own file: ``path.py:name``.

    Raises:
        InvalidInput: for an unknown id; a file that cannot be loaded.
    """
    if is_in_a_file(id):
        return statement_in_file(id)
    for candidate in (*statements().values(), *capabilities().values()):
        if id == candidate.id or id in candidate.aliases:
            return candidate
    known = (*statements(), *capabilities())
    raise InvalidInput(
        f"id: {id!r} is not a statement.{suggest(id, known)} `theorems list` shows all; one in your own file is"
        " PATH.py:NAME."
    )


def select_statements(
    ids: Sequence[str], *, of_kernels: bool = False, subject: Subject | None = None
) -> list[Statement]:
    """The statements of those ids, each once; without ids all of the papers, and of kernels what they are able to do.

    Args:
        subject: data; without ids those about data of its kind: a paper's own; with queries where W is trained
            (several per input or one), without elsewhere.

    Raises:
        InvalidInput: an unknown id.
    """
    if not ids:
        known = [*(capabilities().values() if of_kernels else ()), *statements().values()]
        if subject is not None:
            known = [one for one in known if one.about.kind == subject.kind]
        if not isinstance(subject, Case):
            return known
        kinds = dict(zip(KINDS, (subject.queried, subject.sequence), strict=True))
        given = next((kind for kind, data in kinds.items() if data is not None), None)
        return [one for one in known if next((kind for kind in KINDS if kind in one.assumptions), None) == given]
    # An alias names the same statement: it is verified once.
    return list({found.id: found for found in map(statement_named, ids)}.values())
