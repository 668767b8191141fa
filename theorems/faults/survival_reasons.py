"""The reasons why statements survive faults in functions that they call, by name or kind of the fault."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from max_margin_theorems.papers import papers
from theorems.faults.fault import Fault
from theorems.faults.survivors import SURVIVORS

NO_SOLUTION = "the faulty solver returns no solution, so there is nothing to compare with"
MISREAD = "for the misread tokens the objects of the statement do not exist, and the statement reports this"


@cache
def survivors() -> Mapping[str, Mapping[str, str]]:
    """Return the reasons why statements of all papers survive faults, by the id of the statement.

    A paper lists its reasons as ``SURVIVORS`` in a module of its faults; a user's own statements give theirs as
    ``survives``.
    """
    modules = (module for paper in papers() for module in paper.modules(paper.faults))
    of_papers = (getattr(module, "SURVIVORS", {}) for module in modules)
    return {id: reasons for table in (SURVIVORS, *of_papers) for id, reasons in table.items()}


def why_survived(fault: Fault, id: str, survives: Mapping[str, str], undecided: bool = False) -> str:
    """Return why the statement survives the fault; empty when no reason is recorded.

    Args:
        fault: the planted fault.
        id: id of the :class:`theorems.core.statement.Statement`.
        survives: the reasons that the statement's own file gives, which take precedence.
        undecided: True if the statement reports why it could not decide; then only a reason for this fault counts, not
            a reason for its kind.
    """
    if fault.name.endswith("always-infeasible"):
        return NO_SOLUTION
    if fault.spoil is not None:
        return MISREAD
    survives = {**survivors().get(id, {}), **survives}
    return survives.get(fault.name) or ("" if undecided else survives.get(str(fault.kind), ""))
