"""Interfaces for signatures of no known library: parameter names suggest a meaning, which small calls confirm.

The results of a few small calls of the function show whether the kernel's axes are (B, L, H, E) or (B, H, L, E), and
whether True in a mask shows or hides a key. A :class:`.signature_reading.Reading` holds what was inferred. Axes: B
batch entries, H heads, L queries, T keys, E columns of queries and keys, M columns of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.hf import Module
from attention_conformance.interfaces.interface import (
    GIVEN,
    Interface,
    Mark,
    Option,
    Parameters,
    Request,
    Returned,
    neutral_option,
    option_of,
)
from attention_conformance.interfaces.parameter_names import (
    DESCALES,
    FURTHER,
    MEANINGS,
    arguments,
    in_8_bits,
    in_own_dtype,
)
from attention_conformance.interfaces.signature_reading import (
    ADDED,
    FOUR_AXES,
    HIDES,
    ONES_HIDE,
    SHOWS,
    Mask,
    Reading,
    look_up,
)
from attention_conformance.kernel.torch_import import torch

NAME = "by-name"
NO_L = ", no L"
"""Suffix of the name of an order of axes: the query tensor of the kernel has no axis L, as there is a single query."""


def to_axes(x: torch.Tensor, axes: str) -> torch.Tensor:
    """Return a tensor (B, H, L, E) with its axes in the order ``axes``, an element of AXES or DECODED."""
    axes = axes.removesuffix(NO_L)
    if axes == "NLE":
        return x.flatten(0, 1)
    if axes == "LBHE":
        return x.permute(2, 0, 1, 3)
    if axes == "BHLE":
        return x
    return x.transpose(1, 2) if axes == "BLHE" else x.transpose(1, 2).flatten(2)


def from_axes(x: Any, axes: str, heads: int) -> Any:
    """Return a result whose axes are in the order ``axes`` as (B, H, L, E).

    The last axis of the result may join the heads although the arguments have an axis of heads. A result of any other
    shape is returned unchanged, for the caller to refuse.
    """
    if not isinstance(x, torch.Tensor) or x.dim() not in (3, 4):
        return x
    if axes.endswith(NO_L):
        return x[:, :, None] if x.dim() == 3 else x
    if axes == "NLE" and x.dim() == 3 and len(x) % heads == 0:
        return x.reshape(-1, heads, *x.shape[1:])
    if axes in ("BHLE", "NLE"):
        return x
    if x.dim() == 3 and x.shape[-1] % heads == 0:
        x = x.reshape(*x.shape[:2], heads, -1)
    return x.permute(1, 2, 0, 3) if axes == "LBHE" and x.dim() == 4 else x.transpose(1, 2)


def mask_as_wanted(mask: torch.Tensor, parameter: Mask, request: Request) -> torch.Tensor:
    """Convert a mask to the meaning and shape that the kernel's parameter expects.

    ``mask`` is boolean with True for visible keys, or a number to add to each logit.
    """
    B, H, L, T = *request.query.shape[:3], request.key.shape[2]
    if mask.dtype == torch.bool and parameter.sense != SHOWS:
        if parameter.sense == HIDES:
            mask = ~mask
        elif parameter.sense == ONES_HIDE:
            mask = (~mask).to(request.query.dtype)
        elif parameter.sense == ADDED:
            zero = torch.zeros((), dtype=request.query.dtype, device=mask.device)
            mask = torch.where(mask, zero, zero - math.inf)
    if not parameter.shape:
        return mask
    four = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
    if parameter.shape == FOUR_AXES:
        return four
    whole = four.expand(-1, -1, L if mask.shape[-2:-1] else 1, T)
    shapes = {
        "B, H, L, T": lambda x: x.expand(B, H, L, T),
        "B, 1, L, T": lambda x: x[:, :1].expand(B, 1, L, T),
        "1, 1, L, T": lambda x: x[:1, :1],
        "L, T": lambda x: x[0, 0],
        "B·H, L, T": lambda x: x.expand(B, H, L, T).flatten(0, 1),
        "B, 1, 1, T": lambda x: x[:, :1, :1].expand(B, 1, 1, T),
        "B, T": lambda x: x[:, 0, 0].expand(B, T),
    }
    return shapes[parameter.shape](whole)


def _mask_options(reading: Reading, request: Request) -> dict[str, Any]:
    if request.visible is not None:
        of_keys = request.visible.dim() == 4 and request.visible.shape[1:3] == (1, 1)
        parameter = reading.key_mask if reading.mask is None or (of_keys and reading.key_mask) else reading.mask
        return {} if parameter is None else {parameter.name: mask_as_wanted(request.visible, parameter, request)}
    if request.bias is not None and reading.bias is not None:
        return {reading.bias.name: mask_as_wanted(request.bias, reading.bias, request)}
    return {}


def options_of(reading: Reading, request: Request, has: Parameters) -> dict[str, Any]:
    """Return the keyword arguments, except query, key and value, with which the callable computes the request."""
    module = {reading.names["module"]: Module(request)} if "module" in reading.names else {}
    given = arguments(reading.names, request, has)
    return {**reading.constants, **module, **given, **_mask_options(reading, request)}


def _tensors(reading: Reading, request: Request) -> list[torch.Tensor]:
    tensors = [to_axes(x, reading.axes) for x in (request.query, request.key, request.value)]
    if reading.axes.endswith(NO_L):
        if request.query.shape[2] > 1:
            raise ValueError("the kernel takes one query per call")
        tensors[0] = request.query[:, :, 0]
    if reading.tensors == ("qkv",):
        return [torch.stack(tensors, dim=2)]
    if len(reading.tensors) == 2:
        return [tensors[0], torch.stack(tensors[1:], dim=2)]
    return tensors


def put(
    reading: Reading, kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    """Call the kernel as ``reading``, the inferred meaning of its signature, says; return the results."""
    if reading.always_causal and not request.causal:
        if request.query.shape[2] > 1:
            raise ValueError("every call is causal")
        # Repeat the single query T times and use the last row, which sees all T keys wherever the diagonal is.
        query = request.query.expand(-1, -1, request.key.shape[2], -1)
        return Returned(_output(reading, kernel, _with_query(request, query), has, options)[0][..., -1:, :])
    output, returned = _output(reading, kernel, request, has, options)
    lse = None
    if request.log_sum_exp and reading.log_sum_exp is not None and not isinstance(returned, torch.Tensor):
        lse = look_up(returned, reading.log_sum_exp)
    weights = None if reading.weights is None else look_up(returned, reading.weights)
    if reading.axes == "NLE":
        heads = request.query.shape[:2]
        lse, weights = (x.reshape(*heads, *x.shape[1:]) if isinstance(x, torch.Tensor) else x for x in (lse, weights))
    if isinstance(lse, torch.Tensor) and lse.dim() == 3 and reading.lse_axes == "BLH":
        lse = lse.transpose(1, 2)
    return Returned(in_own_dtype(request, output), lse, weights)


def _with_query(request: Request, query: torch.Tensor) -> Request:
    return Request(query, request.key, request.value, request.scale, causal=True)


def _output(
    reading: Reading, kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Return the kernel's output as a tensor (B, H, L, M), and everything that the kernel returned."""
    options = options | options_of(reading, request, has)
    tensors = in_8_bits(request, *_tensors(reading, request))
    place = None
    if "out" in reading.names and has.get(reading.names["out"]) is Mark.REQUIRED:
        like = (*request.query.shape[:3], request.value.shape[-1])
        place = torch.empty_like(to_axes(request.query.new_empty(like), reading.returned_axes)).contiguous()
        options[reading.names["out"]] = place
    by_keyword = dict(zip(reading.tensors, tensors, strict=True)) if reading.by_keyword else {}
    returned = kernel(*([] if by_keyword else tensors), **by_keyword, **options)
    output = place if reading.output is None else look_up(returned, reading.output)
    output = output[0] if isinstance(output, tuple | list) else output  # a pair with the log-sum-exp
    return from_axes(output, reading.returned_axes, request.query.shape[1]), returned


def _expressible(reading: Reading, call: AttentionCall) -> AttentionCall:
    """Return the call with masks in shapes that the callable takes, and causal if the callable always is."""
    if reading.always_causal:
        call = call.replace(causal=True)
    mask = reading.mask or reading.key_mask
    if call.visible is not None and mask is not None:
        call = call.replace(visible=_reduce(call.visible, mask.shape))
    if call.bias is not None and reading.bias is not None:
        call = call.replace(bias=_reduce(call.bias, reading.bias.shape))
    return call


def _reduce(mask: Any, shape: str) -> Any:
    """Return the mask cut to its first batch entry, head or row on each axis that masks of this shape do not have."""
    axes = {"B, 1, L, T": (1,), "1, 1, L, T": (0, 1), "L, T": (0, 1), "B, 1, 1, T": (1, 2), "B, T": (1, 2)}
    mask = np.asarray(mask)
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape) if shape in axes else mask
    for axis in axes.get(shape, ()):
        mask = np.take(mask, [0], axis)
    return mask


def interface_of(reading: Reading) -> Interface:
    """Return the interface of callables whose signature has the inferred meaning ``reading``."""
    names = reading.names
    options: dict[str, Option] = dict.fromkeys(reading.tensors, GIVEN)
    options |= {name: option for name, option in FURTHER.items() if name not in DESCALES}
    options |= {names[role]: GIVEN for role in ("heads", "groups", "out", "dtype", "module") if role in names}
    # A constant argument that is a string or True has the option GIVEN; any other constant switches its parameter off.
    options |= {
        name: GIVEN if value is True or isinstance(value, str) else neutral_option(value)
        for name, value in reading.constants.items()
    }
    further: list[str] = []  # capabilities of keywords that the callable takes as ``**`` and passes on
    parameters = reading.parameters
    for role, option in MEANINGS.items():
        if role == "lse" and reading.log_sum_exp is None:
            option = Option()
        if role in names and names[role] in parameters:
            options[names[role]] = option
        elif role in names:
            further += option.declares
    for mask, capability in (
        (reading.key_mask, "boolean-mask"),
        (reading.mask, "boolean-mask"),
        (reading.bias, "additive-mask"),
    ):
        if mask is not None and mask.name in parameters:
            declares = options.get(mask.name, Option()).declares
            options[mask.name] = option_of(*declares, capability)
        elif mask is not None:
            further.append(capability)
    by_place = 0 if reading.by_keyword else len(reading.tensors)
    # Capabilities for which the callable has no parameter are declared by the parameter of the first tensor.
    always: tuple[str, ...] = ("causal", "causal-rectangle") if reading.always_causal else ()
    always += ("log-sum-exp",) if reading.log_sum_exp is not None and "lse" not in names else ()
    options[reading.tensors[0] if reading.tensors else "**"] = Option(always, given=True)
    if further:
        options["**"] = Option((*options.get("**", Option()).declares, *further))
    return Interface(
        NAME,
        "any other signature: names of parameters and small calls show how to call it",
        (),
        MappingProxyType(options),
        partial(put, reading),
        by_place=by_place,
        found_out=("grouped-heads",),
        expressible=partial(_expressible, reading),
    )


BY_NAME = Interface(
    NAME,
    "any other signature: names of parameters and small calls show how to call it",
    (),
    MappingProxyType({}),
    partial(put, Reading()),
)
"""The interface that ``--interface by-name`` selects; small calls then replace the empty reading of the signature."""
