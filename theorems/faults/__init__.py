"""Planted faults: wrong implementations that statements must catch, by falsifying a claim.

A fault in the softmax is consistent: weights, risk and gradient are those of the same wrong function. Each is computed
as accurately as its formula allows, so that statements catch the wrong formula, not rounding. Every implementation here
can be sent to other processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

from max_margin_theorems.papers import Paper, check_only, papers
from reference_attention.errors import InvalidInput, suggest
from theorems.faults import (
    attention_faults,
    data_faults,
    descent_faults,
    direction_faults,
    flag_faults,
    flow_faults,
    gradient_faults,
    joint_faults,
    label_faults,
    path_faults,
    risk_faults,
    set_faults,
    size_faults,
    split_faults,
    svm_faults,
    token_faults,
)
from theorems.faults.fault import Fault, Kind

_COMMON = (
    attention_faults,
    size_faults,
    gradient_faults,
    risk_faults,
    data_faults,
    token_faults,
    svm_faults,
    flag_faults,
    set_faults,
    direction_faults,
    label_faults,
    descent_faults,
    flow_faults,
    path_faults,
    joint_faults,
    split_faults,
)
"""The modules of faults in functions that several papers use: attention, and everything computed from it."""

FAULTS: Mapping[str, Fault]
"""Every planted fault by name: first the faults that several papers use, then those in functions of a single paper."""


def __getattr__(name: str) -> Any:
    # Collect the faults on first use: papers import this package, so it cannot import their packages when it is loaded.
    if name != "FAULTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _all_faults()


@cache
def _all_faults() -> Mapping[str, Fault]:
    faults: dict[str, Fault] = {}
    owners: dict[str, Paper] = {}
    common = Paper("", "", "")
    for paper, modules in [(common, _COMMON), *((paper, paper.modules(paper.faults)) for paper in papers())]:
        for module in modules:
            for fault in _faults_in(module):
                if faults.get(fault.name) is not fault:
                    check_only(fault.name, "faults", owners, paper)
                if faults.setdefault(fault.name, fault) is not fault:
                    raise InvalidInput(
                        f"faults: two faults are named {fault.name!r}, one of them in {module.__name__}; rename one."
                    )
    return MappingProxyType(faults)


def _faults_in(module: ModuleType) -> Iterator[Fault]:
    """Yield, once each, the faults that are variables of the module, or items of its tuples and lists."""
    yielded = set()
    for value in vars(module).values():
        for fault in value if isinstance(value, tuple | list) else (value,):
            if isinstance(fault, Fault) and id(fault) not in yielded:
                yielded.add(id(fault))
                yield fault


def fault_named(name: str) -> Fault:
    """Return the planted fault with this name.

    Raises:
        InvalidInput: no fault has the name.
    """
    faults = _all_faults()
    if name not in faults:
        raise InvalidInput(f"faults: {name!r} is not a planted fault.{suggest(name, faults)}")
    return faults[name]


__all__ = ["FAULTS", "Fault", "Kind", "fault_named"]
