"""Which of the assumptions that statements make hold on given data."""

from __future__ import annotations

from collections.abc import Sequence

from generators.assumptions import ASSUMPTIONS, Assumption
from reference_attention.errors import InvalidInput
from theorems.core.check import broken
from theorems.core.statement import Statement
from theorems.run.user_data import Given


def findings(given: Given, chosen: Sequence[Statement]) -> list[tuple[str, str, bool | None, str]]:
    """Id, title, holds and evidence of every assumption that one of the statements makes."""
    made = {id for statement in chosen for id in statement.assumptions}
    # Own assumptions of two files may have the same id.
    needed: list[tuple[Assumption, Statement | None]] = [(a, None) for a in ASSUMPTIONS.values() if a.id in made]
    needed += [(a, statement) for statement in chosen for a in statement.own_assumptions.values()]
    found: list[tuple[str, str, bool | None, str]] = []
    for assumption, statement in needed:
        try:
            finding = assumption.check(given.case)
            found.append((assumption.id, assumption.title, finding.holds, finding.evidence))
        except InvalidInput as error:
            found.append((assumption.id, assumption.title, None, str(error)))
        except Exception as error:
            if statement is None:
                raise
            found.append(
                (assumption.id, assumption.title, None, broken(statement, error, where="its predicate").reason)
            )
    return found
