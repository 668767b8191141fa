"""The meaning of a signature's parameters and results, and the interface that follows from it.

Axes: B batch entries, H heads, L queries, T keys, E columns of queries and keys, M columns of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.declaration import LAYOUTS, OPTIONS, ROOT
from attention_conformance.interfaces.interface import (
    GIVEN,
    Interface,
    Option,
    Parameters,
    Request,
    Returned,
    first_of,
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
from attention_conformance.kernel.torch_import import torch

SHOWS, HIDES, ADDED = "True shows a key", "True hides a key", "is added to the logits"
FOUR_AXES, OF_KEYS = "·, ·, ·, ·", "B, T"
"""Shapes of masks: four axes, each of them possibly of length 1; one row for all heads and queries of an entry."""
SAID = MappingProxyType({"BHLE": "(B, H, L, E)", "BLHE": "(B, L, H, E)"})


@dataclass(frozen=True)
class Mask:
    """A parameter for masks.

    Attributes:
        name: the name of the parameter.
        sense: the meaning of the mask's entries: SHOWS, HIDES or ADDED.
        shape: FOUR_AXES or OF_KEYS; "" for any shape that broadcasts to (B, H, L, T).
    """

    name: str
    sense: str
    shape: str = ""


@dataclass(frozen=True)
class Reading:
    """The meaning of a callable's parameters and results; it says how to call the callable.

    Attributes:
        parameters: the names of all parameters of the callable.
        axes: the order of the axes of query, key, value and output, "BHLE" or "BLHE".
        names: the name of the callable's parameter in each role of :data:`.parameter_names.ROLES`.
        mask, bias: the parameters for boolean masks, and for numbers added to logits.
        always_causal: whether the callable is causal in every call.
        fixed_scale: whether the callable always scales logits by 1/√E.
        own_scale: the number by which the callable scales logits if it has no parameter for it.
        alignment: the position of the causal diagonal; empty if it is not told.
        equal: whether the callable takes only as many queries as keys.
        lse_axes: the order of the log-sum-exp's axes, "BHL" or "BLH".
        told: whether a decorator says all this, and not only simple calls.
    """

    parameters: tuple[str, ...] = ()
    axes: str = "BHLE"
    names: Mapping[str, str] = field(default_factory=dict)
    mask: Mask | None = None
    bias: Mask | None = None
    always_causal: bool = False
    fixed_scale: bool = False
    own_scale: float = 1.0
    alignment: str = ""
    equal: bool = False
    lse_axes: str = "BHL"
    told: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the line by which a report describes the reading."""
        masks = dict.fromkeys(f"{mask.name}: {mask.sense}" for mask in (self.mask, self.bias) if mask is not None)
        causal = ["every call is causal"] if self.always_causal else []
        source = "its decorator" if self.told else "simple calls"
        yield f"told by {source}: {'; '.join([f'tensors are {SAID[self.axes]}', *masks, *causal])}"


def reading_of(told: Mapping[str, Any], parameters: Parameters) -> Reading:
    """Return the reading that the fields of a decorator tell."""
    names = {OPTIONS[name]: value for name, value in told.items() if name in OPTIONS and OPTIONS[name] != "mask"}
    causal, scale = told["causal"], told["scale"]
    names |= {"causal": causal} if causal not in ("always", "never") else {}
    names |= {"scale": scale} if isinstance(scale, str) and scale != ROOT else {}
    mask, bias = (Mask(told["mask"], sense) if "mask" in told else None for sense in (SHOWS, ADDED))
    if "key_padding_mask" in told and mask is None:
        mask = Mask(told["key_padding_mask"], HIDES, OF_KEYS)
    return Reading(
        tuple(parameters),
        LAYOUTS[told["layout"]],
        names,
        mask,
        bias,
        always_causal=causal == "always",
        fixed_scale=scale == ROOT,
        own_scale=1.0 if isinstance(scale, str) else float(scale),
        alignment=told["alignment"],
        equal=told["lengths"] == "equal",
        told=True,
    )


def _swapped(x: torch.Tensor, axes: str) -> torch.Tensor:
    return x.transpose(1, 2) if axes == "BLHE" else x


def _output_of(x: Any, axes: str, heads: int) -> Any:
    """Return a result as (B, H, L, M); its last axis may join the heads. Any other shape is returned unchanged."""
    if not isinstance(x, torch.Tensor) or axes != "BLHE" or x.dim() not in (3, 4):
        return x
    return (x.reshape(*x.shape[:2], heads, -1) if x.dim() == 3 and x.shape[-1] % heads == 0 else x).transpose(1, 2)


def _mask_options(reading: Reading, request: Request) -> dict[str, Any]:
    parameter = reading.mask if request.visible is not None else reading.bias
    mask = request.mask
    if mask is None or parameter is None:
        return {}
    if parameter.shape == OF_KEYS:
        mask = mask[:, 0, 0].expand(len(request.query), -1)
    elif not parameter.shape:
        mask = request.visible if request.visible is not None else request.bias
    return {parameter.name: ~mask if parameter.sense == HIDES else mask}  # type: ignore[operator]


def put(
    reading: Reading, kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    """Call the kernel as ``reading``, the meaning of its signature, says; return the results."""
    if reading.always_causal and not request.causal:
        if request.query.shape[2] > 1:
            raise ValueError("every call is causal")
        # Repeat the single query T times and use the last row, which sees all T keys wherever the diagonal is.
        query = request.query.expand(-1, -1, request.key.shape[2], -1)
        repeated = replace(request, query=query, causal=True)
        return Returned(put(reading, kernel, repeated, has, options).output[..., -1:, :])
    options = options | arguments(reading.names, request, has) | _mask_options(reading, request)
    tensors = (_swapped(x, reading.axes) for x in (request.query, request.key, request.value))
    output, lse = first_of(kernel(*in_8_bits(request, *tensors), **options))
    if isinstance(lse, torch.Tensor) and lse.dim() == 3 and reading.lse_axes == "BLH":
        lse = lse.transpose(1, 2)
    output = _output_of(output, reading.axes, request.query.shape[1])
    return Returned(in_own_dtype(request, output), lse if request.log_sum_exp else None)


def _expressible(reading: Reading, call: AttentionCall) -> AttentionCall:
    """Return the call with masks in shapes that the callable takes, and causal if the callable always is."""
    call = call.replace(causal=True) if reading.always_causal else call
    if call.visible is not None and reading.mask is not None and reading.mask.shape == OF_KEYS:
        mask = np.asarray(call.visible)
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        call = call.replace(visible=mask[:, :1, :1])
    return call


def interface_of(reading: Reading) -> Interface:
    """Return the interface of callables whose signature has the meaning ``reading``."""
    options: dict[str, Option] = {name: option for name, option in FURTHER.items() if name not in DESCALES}
    options |= {reading.names[role]: option for role, option in MEANINGS.items() if role in reading.names}
    for mask, capability in ((reading.mask, "boolean-mask"), (reading.bias, "additive-mask")):
        if mask is not None:
            options[mask.name] = option_of(*options.get(mask.name, Option()).declares, capability)
    # What the callable does without a parameter is declared by the parameter of the first tensor.
    always = ("causal", "causal-rectangle") if reading.always_causal else ()
    options |= dict.fromkeys(reading.parameters[:3], GIVEN)
    options |= {name: Option(always, given=True) for name in reading.parameters[:1]}
    return Interface(
        "declared",
        "as its decorator or simple calls tell",
        (),
        MappingProxyType(options),
        partial(put, reading),
        found_out=("grouped-heads",),
        expressible=partial(_expressible, reading),
    )
