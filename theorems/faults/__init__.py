"""Planted faults: what the statements must catch. ``theorems power`` tabulates who does, and how small a one.

A fault in the attention is consistent (weights, risk and gradient are those of the wrong softmax) and computed as
carefully as its formula allows, so that it is caught for what it says, not for rounding. Every implementation here can
be sent to other processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

from max_margin_theorems.papers import Paper, check_only, papers
from reference_attention.errors import InvalidInput, suggest
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
from theorems.faults.nuclear_faults import NUCLEAR_FAULTS
from theorems.faults.path_faults import PATH_FAULTS
from theorems.faults.risk_faults import RISK_FAULTS
from theorems.faults.set_faults import SET_FAULTS
from theorems.faults.size_faults import SIZE_FAULTS
from theorems.faults.split_faults import SPLIT_FAULTS
from theorems.faults.svm_faults import SVM_FAULTS
from theorems.faults.token_faults import TOKEN_FAULTS

_OURS: dict[str, Fault] = {
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
        *SPLIT_FAULTS,
    )
}
"""In attention and in what is made of it, which no paper has to itself."""

FAULTS: Mapping[str, Fault]
"""Every planted fault by name: those, then those that papers have of their own, in what only they compute."""


def __getattr__(name: str) -> Any:
    # Papers' rooms import modules of this package, which must be there by then.
    if name != "FAULTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _all_faults()


@cache
def _all_faults() -> Mapping[str, Fault]:
    found, by = dict(_OURS), dict.fromkeys(_OURS, Paper("", "", ""))
    for paper in papers():
        for module in paper.modules(paper.faults):
            for fault in _faults_in(module):
                if found.get(fault.name) is not fault:
                    check_only(fault.name, "faults", by, paper)
                found[fault.name] = fault
    return MappingProxyType(found)


def _faults_in(module: ModuleType) -> Iterator[Fault]:
    """Those that it names, one by one or in tuples."""
    for value in vars(module).values():
        several = value if isinstance(value, tuple | list) else (value,)
        yield from (one for one in several if isinstance(one, Fault))


def fault_named(name: str) -> Fault:
    """The fault of that name.

    Raises:
        InvalidInput: for an unknown name.
    """
    known = _all_faults()
    if name not in known:
        raise InvalidInput(
            f"faults: {name!r} is not a planted fault.{suggest(name, known)} `theorems power` tabulates them all."
        )
    return known[name]


__all__ = ["FAULTS", "Fault", "Kind", "fault_named"]
