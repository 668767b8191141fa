"""Assumptions that hold on given data, and the statements that therefore apply."""

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
"""Assumptions that quantify over all directions: the statement draws a direction, so the data need not have one."""
PAIRS = ("wider-direction", "higher-neighbours")
"""Assumptions about directions in the data; statements that make them are left out of explanations."""
JOINT = ("optimal-tokens", "optimal-support-tokens")
"""Assumptions about the head v; statements that make one are checked with the tokens α that the data give, if any."""
SEVERAL = "sequence-given"
"""Assumption that marks statements on inputs with different numbers of tokens or several queries per input."""
LOCAL = "locally-optimal"
"""Assumption that marks statements on locally optimal tokens; they are checked with the selected tokens, if any."""


@dataclass(frozen=True)
class Applicability:
    """Applicability of a statement to the data.

    Attributes:
        id, title: the id and the title of the statement.
        of: the name of the tokens α for which the assumptions were checked: "optimal", "selected" or "given".
        missing: the statement's assumptions that do not hold or were not established.
    """

    id: str
    title: str
    of: str
    missing: tuple[NamedFinding, ...]

    @property
    def applies(self) -> bool | None:
        """Return whether all assumptions hold; None if none fails but some were not established."""
        if not self.missing:
            return True
        return False if any(finding.holds is False for finding in self.missing) else None


@dataclass(frozen=True)
class CheckedAssumptions:
    """The assumptions of statements, checked on the data with one choice of tokens.

    Attributes:
        of: the name of the tokens: "optimal", "selected" or "given".
        findings: for each assumption whether it holds, and why.
    """

    of: str
    findings: tuple[NamedFinding, ...]


def check_assumptions(
    cases: dict[str, Case], start: Any = None
) -> tuple[list[CheckedAssumptions], list[Applicability]]:
    """Check every assumption that a lemma or theorem makes, and return which statements apply.

    Args:
        cases: the data by the name of the tokens α: "optimal", and if there are any "selected" and "given". These cases
            have no start, so an assumption about starts in a cone is checked for the whole cone.
        start: the start of the data, for statements of other packages' papers, which may assume something about it.
    """
    first = next(iter(cases.values()))
    groups: dict[tuple[str, bool], list[Statement]] = {}
    for statement in statements().values():
        if (
            statement.about is Case
            and (is_explained(statement) if first.sequence is None else SEVERAL in statement.assumptions)
            and not {*PAIRS} & {*statement.assumptions}
        ):
            groups.setdefault((_tokens_to_check(statement, cases), is_foreign(statement)), []).append(statement)
    checked, applicabilities = [], []
    for (choice, foreign), group in groups.items():
        case = cases[choice].replace(start=start) if foreign else cases[choice]
        findings_of_case = tuple(finding for finding in findings(Given(case), group) if finding.id not in QUANTIFIED)
        checked.append(CheckedAssumptions(choice, findings_of_case))
        applicabilities += [applicability(statement, choice, findings_of_case) for statement in group]
    order = list(statements())
    return checked, sorted(applicabilities, key=lambda applicable: order.index(applicable.id))


def is_explained(statement: Statement) -> bool:
    """Return whether explanations include the statement, that is, its id begins with a prefix that its paper lists."""
    paper = paper_of(statement)
    return paper is not None and statement.id.startswith(paper.explained)


def is_foreign(statement: Statement) -> bool:
    """Return whether the statement comes from a paper of another installed package."""
    paper = paper_of(statement)
    return paper is not None and bool(paper.package)


def _tokens_to_check(statement: Statement, cases: dict[str, Case]) -> str:
    if LOCAL in statement.assumptions:
        return next(choice for choice in ("selected", "given", "optimal") if choice in cases)
    return "given" if {*JOINT} & {*statement.assumptions} and "given" in cases else "optimal"


def applicability(statement: Statement, choice: str, findings: Sequence[NamedFinding]) -> Applicability:
    """Return whether a statement applies, and which of its assumptions fail or are not established.

    Args:
        statement: the statement.
        choice: the name of the tokens α with which its assumptions were checked.
        findings: for each assumption, whether it holds on the data, and why.
    """
    missing = tuple(
        finding for finding in findings if finding.id in statement.assumptions and finding.holds is not True
    )
    return Applicability(statement.id, statement.title, choice, missing)
