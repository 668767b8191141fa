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
"""Assumptions of statements about every such direction, so that none has to be given."""
PAIRS = ("wider-direction", "higher-neighbours")
"""Assumptions of statements about given directions, which do not apply to data without them."""
JOINT = ("optimal-tokens", "optimal-support-tokens")
"""Assumptions of statements about chosen tokens α; the other statements are about the optimal tokens."""
SEVERAL = "sequence-given"
"""Assumption of statements about inputs with different numbers of tokens, and about several queries per input."""
LOCAL = "locally-optimal"
"""Assumption of statements about tokens that a flow may select."""


@dataclass(frozen=True)
class Applicability:
    """Applicability of a statement to the data.

    Attributes:
        id, title: of the statement.
        of: the tokens that it is about: "optimal", "selected" or "given".
        missing: the assumptions that do not hold or were not established.
    """

    id: str
    title: str
    of: str
    missing: tuple[NamedFinding, ...]

    @property
    def applies(self) -> bool | None:
        """Return whether the statement applies; None where an assumption was not established, and none fails."""
        if not self.missing:
            return True
        return False if any(finding.holds is False for finding in self.missing) else None


@dataclass(frozen=True)
class CheckedAssumptions:
    """The assumptions of some statements on the data with some chosen tokens."""

    of: str
    findings: tuple[NamedFinding, ...]


def check_assumptions(
    cases: dict[str, Case], start: Any = None
) -> tuple[list[CheckedAssumptions], list[Applicability]]:
    """Check every assumption that a lemma or theorem makes, and return which statements apply.

    Args:
        cases: the data with the tokens that are "optimal", and where there are any "selected" and "given" ones; without
            a start, so that findings about a cone hold for whatever starts there.
        start: the start of the data, which papers of other packages may assume something about.
    """
    first = next(iter(cases.values()))
    groups: dict[tuple[str, bool], list[Statement]] = {}
    for statement in statements().values():
        if (
            statement.about is Case
            and (is_explained(statement) if first.sequence is None else SEVERAL in statement.assumptions)
            and not {*PAIRS} & {*statement.assumptions}
        ):
            groups.setdefault((_whose(statement, cases), is_foreign(statement)), []).append(statement)
    checked, speaks = [], []
    for (choice, foreign), chosen in groups.items():
        case = cases[choice].replace(start=start) if foreign else cases[choice]
        findings_of_case = tuple(finding for finding in findings(Given(case), chosen) if finding.id not in QUANTIFIED)
        checked.append(CheckedAssumptions(choice, findings_of_case))
        speaks += [applicability(statement, choice, findings_of_case) for statement in chosen]
    order = list(statements())
    return checked, sorted(speaks, key=lambda applicable: order.index(applicable.id))


def is_explained(statement: Statement) -> bool:
    """Return whether an explanation of data of its kind looks at the statement, as its paper wants."""
    paper = paper_of(statement)
    return paper is not None and statement.id.startswith(paper.explained)


def is_foreign(statement: Statement) -> bool:
    """Return whether the statement is another package's."""
    paper = paper_of(statement)
    return paper is not None and bool(paper.package)


def _whose(statement: Statement, cases: dict[str, Case]) -> str:
    if LOCAL in statement.assumptions:
        return next(choice for choice in ("selected", "given", "optimal") if choice in cases)
    return "given" if {*JOINT} & {*statement.assumptions} and "given" in cases else "optimal"


def applicability(statement: Statement, choice: str, findings: Sequence[NamedFinding]) -> Applicability:
    """Return whether the statement applies to the data whose assumptions were checked."""
    missing = tuple(
        finding for finding in findings if finding.id in statement.assumptions and finding.holds is not True
    )
    return Applicability(statement.id, statement.title, choice, missing)
