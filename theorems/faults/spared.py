"""Why a statement survives a fault that it touches, as the statement says by name or kind of the fault."""

from __future__ import annotations

from collections.abc import Mapping

from theorems.faults.fault import Fault

NO_SOLUTION = "without a solution there is nothing to compare with"
MISREAD = "for the tokens as misread the objects of the statement do not exist, and it says so"


def why_spared(fault: Fault, survives: Mapping[str, str], undecided: bool = False) -> str:
    """Why the statement survives the fault; empty when nobody has said.

    Args:
        survives: as of the :class:`theorems.core.statement.Statement`.
        undecided: the statement itself said why it could not decide; only a more particular reason counts then.
    """
    if fault.name == "svm-always-infeasible":
        return NO_SOLUTION
    if fault.spoil is not None:
        return MISREAD
    return survives.get(fault.name) or ("" if undecided else survives.get(str(fault.kind), ""))
