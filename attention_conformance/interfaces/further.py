"""Parameters that more than one interface may have: the capabilities that they declare, and their arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import Option, Parameters, Request, option_of
from attention_conformance.kernel.with_torch import torch

SINKS = ("learnable_sink", "sinks", "sink", "s_aux")
SLOPES = "alibi_slopes"
SPLITS = "num_splits"
DESCALES = ("q_descale", "k_descale", "v_descale")
"""Factors of (B, G), each of a tensor of 8 bits; the output then has 16 bits."""
LARGEST = 448.0
"""The largest number of 8 bits; entries outside the keys of a cache may be larger."""
ALONE = "batch_invariant"
FURTHER: Mapping[str, Option] = MappingProxyType(
    dict.fromkeys(SINKS, option_of("sinks", neutral=None))
    | {SLOPES: option_of("alibi", neutral=None), SPLITS: option_of("splits")}
    | dict.fromkeys(DESCALES, option_of("fp8-descale"))
    | {ALONE: option_of("batch-invariance", neutral=False)}
)
"""Options of these parameters, in every interface."""


def further_arguments(request: Request, has: Parameters) -> dict[str, Any]:
    """Return the arguments of a request for these parameters, by name."""
    arguments: dict[str, Any] = {}
    if request.sinks is not None:
        arguments[first_in(SINKS, has)] = request.sinks
    if request.slopes is not None:
        same = bool((request.slopes == request.slopes[:1]).all())
        arguments[SLOPES] = request.slopes[0] if same else request.slopes
    if request.splits:
        arguments[SPLITS] = request.splits
    if request.alone and ALONE in has:
        arguments[ALONE] = True
    if request.descales is not None:
        arguments |= dict(zip(DESCALES, request.descales, strict=True))
    return arguments


def in_8_bits(request: Request, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors, in 8 bits if the request has factors for them: 8 bits can express its numbers."""
    if request.descales is None:
        return tensors
    return tuple(x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn) for x in tensors)


def in_own_dtype(request: Request, output: Any) -> Any:
    """Return the output of tensors of 8 bits in the request's dtype; other outputs unchanged."""
    converts = request.descales is not None and isinstance(output, torch.Tensor)
    return output.to(request.query.dtype) if converts else output


def first_in(names: Collection[str], has: Collection[str]) -> str:
    """Return the first of these names that a kernel has."""
    return next(name for name in names if name in has)
