"""The reasons why statements are upheld although a fault is planted in a function that they call."""

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
    """Return the reasons why statements of all papers are upheld under faults: by statement, then by fault or kind.

    A paper lists its reasons as ``SURVIVORS`` in a module of its faults; a user's own statements give theirs as
    ``survives``.
    """
    modules = (module for paper in papers() for module in paper.modules(paper.faults))
    of_papers = (getattr(module, "SURVIVORS", {}) for module in modules)
    return {id: reasons for table in (SURVIVORS, *of_papers) for id, reasons in table.items()}


def why_survived(fault: Fault, id: str, survives: Mapping[str, str], undecided: bool = False) -> str:
    """Return why a statement is upheld although the fault is planted; empty when no reason is recorded.

    Args:
        fault: the planted fault.
        id: the id of the statement.
        survives: the reasons that the statement's own file gives, by fault or kind; they take precedence.
        undecided: True if the statement is inconclusive under the fault; then only a reason for this fault counts, not
            a reason for its kind.
    """
    if fault.name.endswith("always-infeasible"):
        return NO_SOLUTION
    if fault.spoil is not None:
        return MISREAD
    survives = {**survivors().get(id, {}), **survives}
    return survives.get(fault.name) or ("" if undecided else survives.get(str(fault.kind), ""))
