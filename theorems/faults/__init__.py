"""Planted faults: what the statements must catch. ``theorems power`` tabulates who does, and how small a one.

A fault in the attention is consistent (weights, risk and gradient are those of the wrong softmax) and computed as
carefully as its formula allows, so that it is caught for what it says, not for rounding. Every implementation here can
be sent to other processes.
"""

from __future__ import annotations

from reference_attention.errors import InvalidInput
from theorems.faults.attention_faults import ATTENTION_FAULTS
from theorems.faults.data_faults import DATA_FAULTS
from theorems.faults.descent_faults import DESCENT_FAULTS
from theorems.faults.direction_faults import DIRECTION_FAULTS
from theorems.faults.factored_faults import FACTORED_FAULTS
from theorems.faults.fault import Fault, Kind
from theorems.faults.flag_faults import FLAG_FAULTS
from theorems.faults.flow_faults import FLOW_FAULTS
from theorems.faults.gradient_faults import GRADIENT_FAULTS
from theorems.faults.joint_faults import JOINT_FAULTS
from theorems.faults.label_faults import LABEL_FAULTS
from theorems.faults.mixing_faults import MIXING_FAULTS
from theorems.faults.next_token_faults import NEXT_TOKEN_FAULTS
from theorems.faults.nuclear_faults import NUCLEAR_FAULTS
from theorems.faults.path_faults import PATH_FAULTS
from theorems.faults.risk_faults import RISK_FAULTS
from theorems.faults.set_faults import SET_FAULTS
from theorems.faults.size_faults import SIZE_FAULTS
from theorems.faults.steepest_faults import STEEPEST_FAULTS
from theorems.faults.svm_faults import SVM_FAULTS
from theorems.faults.token_faults import TOKEN_FAULTS

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *ATTENTION_FAULTS,
        *SIZE_FAULTS,
        *GRADIENT_FAULTS,
        *RISK_FAULTS,
        *DATA_FAULTS,
        *TOKEN_FAULTS,
        *SVM_FAULTS,
        *FLAG_FAULTS,
        *SET_FAULTS,
        *DIRECTION_FAULTS,
        *LABEL_FAULTS,
        *DESCENT_FAULTS,
        *FLOW_FAULTS,
        *FACTORED_FAULTS,
        *PATH_FAULTS,
        *NUCLEAR_FAULTS,
        *JOINT_FAULTS,
        *MIXING_FAULTS,
        *STEEPEST_FAULTS,
        *NEXT_TOKEN_FAULTS,
    )
}
"""Every planted fault by name."""


def fault_named(name: str) -> Fault:
    """The fault of that name.

    Raises:
        InvalidInput: for an unknown name.
    """
    if name not in FAULTS:
        raise InvalidInput(f"faults: {name!r} is not a planted fault; known are {', '.join(FAULTS)}.")
    return FAULTS[name]


__all__ = ["FAULTS", "Fault", "Kind", "fault_named"]
