"""Checks on given data of the assumptions that statements make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from generators.assumptions import ASSUMPTIONS, Assumption
from generators.user_data import Given
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems.core.check import error_outcome
from theorems.core.statement import Statement


class NamedFinding(NamedTuple):
    """Finding about an assumption on data: a :class:`generators.finding.Finding` with the assumption's id and title."""

    id: str
    title: str
    holds: bool | None
    evidence: str
    exact: Mapping[str, Any] = MappingProxyType({})


def as_json(findings: Iterable[NamedFinding]) -> list[dict[str, Any]]:
    """Return findings in the form written to a JSON file.

    ``because`` is the evidence in words, with rounded numbers; ``exact`` holds the exact numbers. If several findings
    have the same exact numbers, only the first of them has ``exact``; the others give this first finding's id in
    ``exact_of``.
    """
    entries: list[dict[str, Any]] = []
    first_ids: dict[str, str] = {}
    for finding in findings:
        entry: dict[str, Any] = {"id": finding.id, "holds": finding.holds, "because": finding.evidence}
        first = first_ids.setdefault(to_json(finding.exact), finding.id)
        if finding.exact:
            entry |= {"exact": dict(finding.exact)} if first == finding.id else {"exact_of": first}
        entries.append(entry)
    return entries


def findings(data: Given, chosen: Sequence[Statement], further: Iterable[str] = ()) -> list[NamedFinding]:
    """Check every assumption of the given statements, and further assumptions, on the data.

    Args:
        data: the data.
        chosen: the statements; those about another kind of data are skipped.
        further: ids of more assumptions of the suite to check.
    """
    chosen = [statement for statement in chosen if isinstance(data.case, statement.about)]
    ids = {id for statement in chosen for id in statement.assumptions} | {*further}
    # Two files, or a file and a paper, may define different assumptions with the same id: tell them apart by file.
    assumptions: list[tuple[Assumption, Statement | None]] = [(a, None) for a in ASSUMPTIONS.values() if a.id in ids]
    # Several statements of an installed paper may share an assumption, which is then listed once.
    own_assumptions = {
        (statement.file, a.id): (a, statement) for statement in chosen for a in statement.own_assumptions.values()
    }
    assumptions += own_assumptions.values()
    entries: list[NamedFinding] = []
    for assumption, statement in assumptions:
        try:
            finding = assumption.check(data.case)
            entries.append(
                NamedFinding(assumption.id, assumption.title, finding.holds, finding.evidence, finding.exact)
            )
        except InvalidInput as error:
            entries.append(NamedFinding(assumption.id, assumption.title, None, str(error)))
        except Exception as error:
            if statement is None:
                raise
            reason = error_outcome(statement, error, where="its predicate").reason
            entries.append(NamedFinding(assumption.id, assumption.title, None, reason))
    return entries
