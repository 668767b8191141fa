"""Calls of attention kernels in and out: a failing one is written down, and read again with ``--data``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from generators.attention_call import AXES, PLAIN, AttentionCall, Memory, State
from reference_attention.errors import InvalidInput, suggest
from reference_attention.files import numbers, to_json
from reference_attention.problem import checked_array, refuse_truth_values

TENSORS = ("query", "key", "value", "upstream")
OPTIONS = ("visible", "bias", *AXES, *PLAIN, "seed", "name")
USUAL: Mapping[str, Any] = MappingProxyType(
    {one.name: one.default for one in fields(AttentionCall) if one.name in OPTIONS and one.name != "scale"}
)
"""What is not written down; of the scale, which has two values that others may take for their default, it is."""

MASKS: Mapping[str, Any] = MappingProxyType({"visible": bool, "bias": np.float64})
"""With the type of their entries."""
ARRAYS = (*MASKS, *AXES)


def text_of(call: AttentionCall, **record: str) -> str:
    """JSON that :func:`call_of` reads back to the same floats."""
    held: dict[str, Any] = {key: value for key, value in record.items() if value}
    held |= {name: getattr(call, name) for name in TENSORS}
    for name in OPTIONS:
        value = getattr(call, name)
        if np.ndim(value) or name not in USUAL or value != USUAL[name]:
            held[name] = str(value) if isinstance(value, str) else value
    return "{\n" + ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in held.items()) + "\n}\n"


def call_of(held: Mapping[str, Any], name: str = "data") -> AttentionCall:
    """The call that named values make.

    Raises:
        InvalidInput: unknown names, missing tensors, shapes that do not fit together.
    """
    unknown = sorted({*held} - {*TENSORS, *OPTIONS, "case_of", "claim"})
    if unknown:
        raise InvalidInput(
            f"{name}: unknown name {unknown[0]!r}.{suggest(unknown[0], (*TENSORS, *OPTIONS))} Those of a call are"
            f" {', '.join((*TENSORS, *OPTIONS))}."
        )
    missing = [key for key in TENSORS if key not in held]
    if missing:
        raise InvalidInput(f"{name}: {missing[0]} is missing; a call has {', '.join(TENSORS)}.")
    query = checked_array("query", numbers(held["query"]), ("B", "H", "L", "E"))
    B, H, L, E = query.shape
    key = checked_array("key", numbers(held["key"]), (B, "G", "T", E))
    value = checked_array("value", numbers(held["value"]), (*key.shape[:3], "M"))
    upstream = checked_array("upstream", numbers(held["upstream"]), (B, H, L, value.shape[-1]))
    if H % key.shape[1]:
        raise InvalidInput(f"key: {key.shape[1]} groups do not divide {H} heads; give a divisor.")
    options: dict[str, Any] = {one: _option(one, held[one]) for one in OPTIONS if one in held and one not in ARRAYS}
    for mask, dtype in MASKS.items():
        if mask in held:
            options[mask] = _mask(mask, held[mask], dtype, (B, H, L, key.shape[2]))
    named = {"B": B, "H": H, "L": L, "G": key.shape[1], "2": 2, "3": 3}
    for one, axes in AXES.items():
        if one in held:
            array = checked_array(one, numbers(held[one]), tuple(named[axis] for axis in axes))
            options[one] = _lengths(array, L, key.shape[2]) if one == "lengths" else array
            if one == "mask_mod":
                options[one] = array.astype(np.int64)
    return AttentionCall(query, key, value, upstream, **options)


def _option(name: str, value: Any) -> Any:
    """What is no array.

    Raises:
        InvalidInput: it is not what that option is.
    """
    value = value.tolist() if isinstance(value, np.ndarray) else value
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    whole = number and isinstance(value, int)
    if name in ("causal", "log_sum_exp", "exact", "poison", "shared", "alone"):
        fits, due = isinstance(value, bool), "true or false"
    elif name == "scale":
        fits, due = value is None or number, "a finite number, or null for the kernel's own"
    elif name == "softcap":
        fits, due = number and value >= 0, "a finite number that is not negative"
    elif name in ("seed", "parts", "splits", "page", "beyond"):
        fits, due = whole and value >= 0, "a whole number that is not negative"
    elif name == "window":
        fits = isinstance(value, list | tuple) and len(value) == 2 and all(type(one) is int for one in value)
        due, value = "two whole numbers", tuple(value) if fits else value
    elif name.endswith("memory"):
        fits, due = value in list(Memory), f"one of {', '.join(Memory)}"
        value = Memory(value) if fits else value
    elif name == "state":
        fits, due = value in list(State), f"one of {', '.join(State)}"
        value = State(value) if fits else value
    elif name == "dropout":
        fits, due = number and 0 <= value < 1, "a number from 0 to less than 1"
    elif name in ("wants", "placed"):
        fits, due = isinstance(value, str) and {*value} <= {*"qkv"}, "letters of qkv"
    else:
        fits, due = isinstance(value, str), "text"
    if not fits:
        raise InvalidInput(f"{name}: must be {due}.")
    return value


def _lengths(array: np.ndarray, queries: int, keys: int) -> np.ndarray:
    if not (array == np.round(array)).all() or (array < 0).any() or (array > (queries, keys)).any():
        raise InvalidInput(
            f"lengths: must be whole numbers from 0 to L = {queries} and T = {keys}, two per batch entry."
        )
    return array.astype(np.int64)


def _mask(name: str, value: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    if dtype is not bool:
        refuse_truth_values(name, value)
    try:
        mask = np.asarray(numbers(value), dtype=np.float64).astype(dtype)
        np.broadcast_to(mask, shape)  # its own shape is kept: a kernel may take some shapes for others
    except (ValueError, TypeError):
        raise InvalidInput(f"{name}: does not broadcast to (B, H, L, T) = {shape}.") from None
    return mask
