"""Which assumptions hold on given data, and which statements therefore speak of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from generators.case import Case
from generators.user_data import Given
from theorems.core.statement import Statement
from theorems.run.findings import NamedFinding, findings
from theorems.run.registry.suite import paper_of, statements

QUANTIFIED = ("direction-given", "not-locally-optimal-direction")
"""The statement is about every such direction, so that none has to be given."""
PAIRS = ("wider-direction", "higher-neighbours")
"""The statement is about directions that are given, and speaks of no data without."""
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


def check_assumptions(
    cases: dict[str, Case], start: Any = None
) -> tuple[list[CheckedAssumptions], list[Applicability]]:
    """Every assumption that a lemma or theorem makes, and which of those apply.

    Args:
        cases: the data with the tokens that are "optimal", and where there are any "selected" and "given" ones; without
            a start, so that what is said of a cone is said of whatever starts there.
        start: that of the data, which papers of other packages may speak of.
    """
    groups: dict[tuple[str, bool], list[Statement]] = {}
    for one in statements().values():
        if (
            one.about is Case
            and is_explained(one)
            and not {"wider-direction", "higher-neighbours"} & {*one.assumptions}
        ):
            groups.setdefault((_whose(one, cases), is_foreign(one)), []).append(one)
    looked, speaks = [], []
    for (of, foreign), chosen in groups.items():
        case = cases[of].replace(start=start) if foreign else cases[of]
        found = tuple(one for one in findings(Given(case), chosen) if one.id not in QUANTIFIED)
        looked.append(CheckedAssumptions(of, found))
        speaks += [applicability(one, of, found) for one in chosen]
    order = list(statements())
    return looked, sorted(speaks, key=lambda one: order.index(one.id))


def is_explained(statement: Statement) -> bool:
    """Whether its paper wants it among those that an explanation of data of its kind looks at."""
    paper = paper_of(statement)
    return paper is not None and statement.id.startswith(paper.explained)


def is_foreign(statement: Statement) -> bool:
    """Whether another package has it."""
    paper = paper_of(statement)
    return paper is not None and bool(paper.package)


def _whose(statement: Statement, cases: dict[str, Case]) -> str:
    if LOCAL in statement.assumptions:
        return next(of for of in ("selected", "given", "optimal") if of in cases)
    return "given" if {*JOINT} & {*statement.assumptions} and "given" in cases else "optimal"


def applicability(statement: Statement, of: str, found: Sequence[NamedFinding]) -> Applicability:
    """Whether the statement applies to the data whose assumptions were looked at."""
    missing = tuple(one for one in found if one.id in statement.assumptions and one.holds is not True)
    return Applicability(statement.id, statement.title, of, missing)
