"""Which assumptions hold on given data, and which statements therefore speak of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generators.case import Case
from generators.user_data import Given
from theorems.core.statement import Statement
from theorems.run.findings import NamedFinding, findings
from theorems.run.registry.suite import statements

QUANTIFIED = ("direction-given", "not-locally-optimal-direction")
"""The statement is about every such direction, so that none has to be given."""
JOINT = ("optimal-tokens", "optimal-support-tokens")
"""Statements with these speak of chosen tokens α, the others of the optimal ones."""
LOCAL = "locally-optimal"
"""Statements with this speak of tokens that a flow may select."""


@dataclass(frozen=True)
class Applicability:
    """Whether a statement applies to the data.

    Attributes:
        id, title: of the statement.
        of: whose tokens it speaks of: "optimal", "selected" or "given".
        missing: the assumptions that do not hold or were not established.
    """

    id: str
    title: str
    of: str
    missing: tuple[NamedFinding, ...]

    @property
    def applies(self) -> bool | None:
        """None where an assumption was not established, and none fails."""
        if not self.missing:
            return True
        return False if any(one.holds is False for one in self.missing) else None


@dataclass(frozen=True)
class CheckedAssumptions:
    """The assumptions of some statements on the data with some chosen tokens."""

    of: str
    findings: tuple[NamedFinding, ...]


def check_assumptions(cases: dict[str, Case]) -> tuple[list[CheckedAssumptions], list[Applicability]]:
    """Every assumption that a lemma or theorem makes, and which of those apply.

    Args:
        cases: the data with the tokens that are "optimal", and where there are any "selected" and "given" ones.
    """
    groups: dict[str, list[Statement]] = {}
    for one in statements().values():
        if one.id.startswith(("lemma-", "theorem-")) and not {"wider-direction", "higher-neighbours"} & {
            *one.assumptions
        }:
            groups.setdefault(_whose(one, cases), []).append(one)
    looked, speaks = [], []
    for of, chosen in groups.items():
        found = tuple(one for one in findings(Given(cases[of]), chosen) if one.id not in QUANTIFIED)
        looked.append(CheckedAssumptions(of, found))
        speaks += [_applicability(one, of, found) for one in chosen]
    order = list(statements())
    return looked, sorted(speaks, key=lambda one: order.index(one.id))


def _whose(statement: Statement, cases: dict[str, Case]) -> str:
    if LOCAL in statement.assumptions:
        return next(of for of in ("selected", "given", "optimal") if of in cases)
    return "given" if {*JOINT} & {*statement.assumptions} and "given" in cases else "optimal"


def _applicability(statement: Statement, of: str, found: Sequence[NamedFinding]) -> Applicability:
    missing = tuple(one for one in found if one.id in statement.assumptions and one.holds is not True)
    return Applicability(statement.id, statement.title, of, missing)
