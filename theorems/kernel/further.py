"""Parameters that more than one interface may have: what they declare, and what they are given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from theorems.kernel.request import Request

SINKS = ("learnable_sink", "sinks", "sink", "s_aux")
SLOPES = ("alibi_slopes",)
SPLITS = ("num_splits",)
FURTHER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(SINKS, ("sinks",)) | dict.fromkeys(SLOPES, ("alibi",)) | dict.fromkeys(SPLITS, ("splits",))
)
"""Parameter → the capabilities that it declares, whatever the interface."""


def further_arguments(request: Request, has: Collection[str]) -> dict[str, Any]:
    """The arguments of a request for these parameters, by name."""
    found: dict[str, Any] = {}
    if request.sinks is not None:
        found[_first(SINKS, has)] = request.sinks
    if request.slopes is not None:
        same = bool((request.slopes == request.slopes[:1]).all())
        found[_first(SLOPES, has)] = request.slopes[0] if same else request.slopes
    if request.splits:
        found[_first(SPLITS, has)] = request.splits
    return found


def _first(names: Collection[str], has: Collection[str]) -> str:
    return next(name for name in names if name in has)
