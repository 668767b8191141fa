"""Parameters that more than one interface may have: what they declare, and what they are given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from theorems.kernel.interfaces.interface import Option, Parameters, Request, option_of

SINKS = ("learnable_sink", "sinks", "sink", "s_aux")
SLOPES = "alibi_slopes"
SPLITS = "num_splits"
FURTHER: Mapping[str, Option] = MappingProxyType(
    dict.fromkeys(SINKS, option_of("sinks", neutral=None))
    | {SLOPES: option_of("alibi", neutral=None), SPLITS: option_of("splits")}
)
"""Of whichever interface."""


def further_arguments(request: Request, has: Parameters) -> dict[str, Any]:
    """The arguments of a request for these parameters, by name."""
    found: dict[str, Any] = {}
    if request.sinks is not None:
        found[first_in(SINKS, has)] = request.sinks
    if request.slopes is not None:
        same = bool((request.slopes == request.slopes[:1]).all())
        found[SLOPES] = request.slopes[0] if same else request.slopes
    if request.splits:
        found[SPLITS] = request.splits
    return found


def first_in(names: Collection[str], has: Collection[str]) -> str:
    """The first of these names that a kernel has."""
    return next(name for name in names if name in has)
