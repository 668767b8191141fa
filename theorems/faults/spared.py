"""Why a statement survives a fault that it touches, by name or kind of the fault."""

from __future__ import annotations

from collections.abc import Mapping

from theorems.faults.fault import Fault
from theorems.faults.survivors import SURVIVORS

NO_SOLUTION = "without a solution there is nothing to compare with"
MISREAD = "for the tokens as misread the objects of the statement do not exist, and it says so"


def why_survived(fault: Fault, id: str, survives: Mapping[str, str], undecided: bool = False) -> str:
    """Why the statement survives the fault; empty when nobody has said.

    Args:
        id, survives: of the :class:`theorems.core.statement.Statement`; what its own file says goes first.
        undecided: the statement itself said why it could not decide; only a more particular reason counts then.
    """
    if fault.name.endswith("always-infeasible"):
        return NO_SOLUTION
    if fault.spoil is not None:
        return MISREAD
    survives = {**SURVIVORS.get(id, {}), **survives}
    return survives.get(fault.name) or ("" if undecided else survives.get(str(fault.kind), ""))
