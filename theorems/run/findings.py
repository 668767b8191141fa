"""Which of the assumptions that statements make hold on given data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from generators.assumptions import ASSUMPTIONS, Assumption
from generators.attention_call import AttentionCall
from generators.user_data import Given
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems.core.check import error_outcome
from theorems.core.statement import Statement


class NamedFinding(NamedTuple):
    """An assumption on given data; as in :class:`generators.finding.Finding`, with id and title."""

    id: str
    title: str
    holds: bool | None
    evidence: str
    exact: Mapping[str, Any] = MappingProxyType({})


def as_json(findings: Iterable[NamedFinding]) -> list[dict[str, Any]]:
    """For a file: ``because`` is rounded, ``exact`` is not; what two have is written once, ``exact_of`` says where."""
    held: list[dict[str, Any]] = []
    given: dict[str, str] = {}
    for one in findings:
        entry: dict[str, Any] = {"id": one.id, "holds": one.holds, "because": one.evidence}
        first = given.setdefault(to_json(one.exact), one.id)
        if one.exact:
            entry |= {"exact": dict(one.exact)} if first == one.id else {"exact_of": first}
        held.append(entry)
    return held


def findings(given: Given, chosen: Sequence[Statement], further: Iterable[str] = ()) -> list[NamedFinding]:
    """Every assumption that one of the statements makes; none of a call, which assumes nothing.

    Args:
        further: ids of assumptions of the suite's that are asked for, too.
    """
    if isinstance(given.case, AttentionCall):
        return []
    made = {id for statement in chosen for id in statement.assumptions} | {*further}
    # Own assumptions of two files may have the same id, and so may those of a file and of a paper.
    needed: list[tuple[Assumption, Statement | None]] = [(a, None) for a in ASSUMPTIONS.values() if a.id in made]
    # Of an installed paper one assumption is that of several statements.
    own = {(statement.file, a.id): (a, statement) for statement in chosen for a in statement.own_assumptions.values()}
    needed += own.values()
    found: list[NamedFinding] = []
    for assumption, statement in needed:
        try:
            finding = assumption.check(given.case)
            found.append(NamedFinding(assumption.id, assumption.title, finding.holds, finding.evidence, finding.exact))
        except InvalidInput as error:
            found.append(NamedFinding(assumption.id, assumption.title, None, str(error)))
        except Exception as error:
            if statement is None:
                raise
            said = error_outcome(statement, error, where="its predicate").reason
            found.append(NamedFinding(assumption.id, assumption.title, None, said))
    return found
