"""Reading and writing calls of attention kernels: ``--data`` reads a failing call, or a call captured from a model.

A captured call is a file with the arrays query, key and value, and with options named like PyTorch's parameters. The
kernel is called in the number format of these arrays, or in the format that ``dtype`` names.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AXES, PLAIN, AttentionCall, Memory, State
from generators.subject import FORMATS, FileFormat
from reference_attention.errors import InvalidInput, suggest
from reference_attention.files import numbers, to_json
from reference_attention.problem import checked_array, refuse_truth_values
from theorems.bounded.formats import FORMATS as FLOATS

TENSORS = ("query", "key", "value", "upstream")
OPTIONS = ("visible", "bias", *AXES, *PLAIN, "seed", "name")
USUAL: Mapping[str, Any] = MappingProxyType(
    {field.name: field.default for field in fields(AttentionCall) if field.name in OPTIONS and field.name != "scale"}
)
"""The default of each option except the scale; an option at its default is not written to a file, a scale always is."""

REQUIRED = TENSORS[:3]
NAMES_OF_MASK, NAME_OF_CAUSAL = ("mask", "attn_mask"), "is_causal"
"""Further names in files: ``mask`` or ``attn_mask`` for a Boolean or additive mask, ``is_causal`` for ``causal``."""
MASKS: Mapping[str, Any] = MappingProxyType({"visible": bool, "bias": np.float64})
"""The names of the two kinds of masks, each with the type of its entries."""
ARRAYS = (*MASKS, *AXES)
OF_KERNEL = ("kernel_dtype", "kernel_interface", "kernel_device")
"""The names of the options of the run in which a saved call failed."""
RECORD = ("case_of", "claim", *OF_KERNEL)
"""The names in the file of a failing call besides the call: the statement, the claim, the options of the run."""


def _values_of(call: AttentionCall, record: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the tensors and the options that the call uses by name, after the entries of ``record``."""
    values: dict[str, Any] = {key: value for key, value in record.items() if value}
    values |= {name: getattr(call, name) for name in TENSORS}
    for name in OPTIONS:
        value = getattr(call, name)
        if np.ndim(value) or name not in USUAL or value != USUAL[name]:
            values[name] = str(value) if isinstance(value, str) else value
    return values


def text_of(call: AttentionCall, **record: str) -> str:
    """Return the call as JSON, with the entries of ``record`` added; :func:`call_of` reads back the same floats."""
    values = _values_of(call, record)
    return "{\n" + ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in values.items()) + "\n}\n"


def npz_of(call: AttentionCall, **record: str | None) -> bytes:
    """Return the call as the content of a .npz file, with the entries of ``record`` added, for :func:`call_of`.

    Without the entry ``scale`` the call leaves the scale to the kernel.
    """
    file = io.BytesIO()
    values: dict[str, Any] = {"seed": call.seed} | _values_of(call, record)
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in values.items() if value is not None}
    np.savez(file, **arrays)
    return file.getvalue()


def call_of(values: Mapping[str, Any], name: str = "data") -> AttentionCall:
    """Build a call from named values; error messages start with ``name``.

    Raises:
        InvalidInput: unknown names, missing tensors, shapes that do not fit together.
    """
    known = (*TENSORS, *NAMES_OF_MASK, NAME_OF_CAUSAL, *OPTIONS)
    unknown = sorted({*values} - {*known, *RECORD})
    if unknown:
        raise InvalidInput(
            f"{name}: unknown name {unknown[0]!r}.{suggest(unknown[0], known)} A call has the names {', '.join(known)}."
        )
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise InvalidInput(f"{name}: {missing[0]} is missing; a call has {', '.join(REQUIRED)}.")
    values = _in_own_names(values)
    is_saved = "case_of" in values
    if dtype := "" if is_saved and "dtype" not in values else _dtype_of(values):
        values = {"name": name} | values | {"dtype": dtype}
    if dtype or is_saved:
        values = {"scale": None} | values
    query = checked_array("query", numbers(values["query"]), ("B", "H", "L", "E"))
    B, H, L, E = query.shape
    has_upstream = "upstream" in values
    upstream = checked_array("upstream", numbers(values["upstream"]), (B, H, L, "M")) if has_upstream else None
    width = "M" if upstream is None else upstream.shape[-1]
    key = _of_keys("key", numbers(values["key"]), (B, "G", "T", E))
    value = _of_keys("value", numbers(values["value"]), (*key.shape[:3], width))
    if upstream is None:
        upstream, values = np.ones((B, H, L, value.shape[-1])), {**values, "wants": ""}
    if H % key.shape[1]:
        raise InvalidInput(f"key: {key.shape[1]} groups do not divide {H} heads; give a divisor.")
    options: dict[str, Any] = {
        option: _option(option, values[option]) for option in OPTIONS if option in values and option not in ARRAYS
    }
    for mask, dtype in MASKS.items():
        if mask in values:
            options[mask] = _mask(mask, values[mask], dtype, (B, H, L, key.shape[2]))
    size_of_axis = {"B": B, "H": H, "L": L, "G": key.shape[1], "2": 2, "3": 3}
    for array_name, axes in AXES.items():
        if array_name in values:
            array = checked_array(array_name, numbers(values[array_name]), tuple(size_of_axis[axis] for axis in axes))
            options[array_name] = _lengths(array, L, key.shape[2]) if array_name == "lengths" else array
    return AttentionCall(query, key, value, upstream, **options)


def _in_own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with PyTorch's names replaced by those of a call: a mask becomes ``visible`` or ``bias``.

    Raises:
        InvalidInput: an option is given twice, or the entries of a mask are neither Booleans nor floats.
    """
    renamed = dict(values)
    for name in (NAME_OF_CAUSAL, *NAMES_OF_MASK):
        if name not in values:
            continue
        value = renamed.pop(name)
        target = "causal"
        if name in NAMES_OF_MASK:
            kind = ""
            with suppress(ValueError):  # rows of different lengths
                kind = np.asarray(numbers(value)).dtype.kind
            if kind not in ("b", "f"):
                raise InvalidInput(
                    f"{name}: must be Boolean, True where a key is seen, or floats that are added to the logits."
                )
            target = "visible" if kind == "b" else "bias"
        if target in renamed:
            raise InvalidInput(f"{name}: {target} is given, too; leave out one of them.")
        renamed[target] = value
    return renamed


def _dtype_of(values: Mapping[str, Any]) -> str:
    """Return the number format of captured tensors: ``dtype`` or the arrays' format; empty for JSON without ``dtype``.

    Raises:
        InvalidInput: ``dtype`` is missing, and the arrays have different formats or an unknown format.
    """
    if "dtype" in values:
        return str(_option("dtype", values["dtype"]))
    names = {name: str(getattr(values[name], "dtype", "")).removeprefix("torch.") for name in REQUIRED}
    dtype = names["query"]
    for name, other in names.items():
        if other not in ("", *FLOATS):
            raise InvalidInput(
                f"{name}: has the format {other}, not one of {', '.join(FLOATS)}; save it in one of"
                ' them. Save bfloat16 arrays as float32, and add the entry dtype = "bfloat16" to the file.'
            )
        if other != dtype:
            raise InvalidInput(
                f"{name}: has the format {other}, but query has {dtype}; save both in one format, or give dtype."
            )
    return dtype


def _of_keys(name: str, value: Any, shape: tuple[int | str, ...]) -> Any:
    """Return keys or values as an array; an empty list (no keys) gets its width from ``shape``.

    Raises:
        InvalidInput: the numbers do not have the shape ``shape``.
    """
    try:
        axes = np.shape(value)
    except ValueError:
        axes = ()
    if len(axes) in (3, 4) and shape[-1] != "M" and axes[0] == shape[0] and axes[1] and axes[2] == 0:
        return np.zeros((*axes[:3], int(shape[-1])))
    return checked_array(name, value, shape)


def _option(name: str, value: Any) -> Any:
    """Return the value of an option that is not an array, converted to the option's type.

    Raises:
        InvalidInput: the value does not fit the option.
    """
    value = value.tolist() if isinstance(value, np.ndarray) else value
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    whole = number and isinstance(value, int)
    if name in ("causal", "log_sum_exp", "exact", "poison", "alone"):
        fits, expected = isinstance(value, bool), "true or false"
    elif name == "scale":
        fits, expected = value is None or number, "a finite number, or null for the kernel's own"
    elif name == "softcap":
        fits, expected = number and value >= 0, "a finite number that is not negative"
    elif name in ("seed", "splits", "page", "beyond"):
        fits, expected = whole and value >= 0, "a whole number that is not negative"
    elif name == "window":
        fits = isinstance(value, list | tuple) and len(value) == 2 and all(type(size) is int for size in value)
        expected, value = "two whole numbers", tuple(value) if fits else value
    elif name.endswith("memory"):
        fits, expected = value in list(Memory), f"one of {', '.join(Memory)}"
        value = Memory(value) if fits else value
    elif name == "state":
        fits, expected = value in list(State), f"one of {', '.join(State)}"
        value = State(value) if fits else value
    elif name in ("mask_format", "dtype"):
        fits, expected = value in ("", *FLOATS), f"empty, or one of {', '.join(FLOATS)}"
    elif name == "dropout":
        fits, expected = number and 0 <= value < 1, "a number from 0 to less than 1"
    elif name in ("wants", "placed"):
        fits, expected = isinstance(value, str) and {*value} <= {*"qkv"}, "letters of qkv"
    else:
        fits, expected = isinstance(value, str), "text"
    if not fits:
        raise InvalidInput(f"{name}: must be {expected}.")
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
        np.broadcast_to(mask, shape)  # only a check: the kernel gets the mask in its own shape
    except (ValueError, TypeError):
        raise InvalidInput(f"{name}: does not broadcast to (B, H, L, T) = {shape}.") from None
    if dtype is not bool and (np.isnan(mask) | np.isposinf(mask)).any():
        raise InvalidInput(f"{name}: has NaN or +infinity; give numbers, or -infinity where a key is hidden.")
    return mask


FORMATS["query"] = FileFormat(AttentionCall, "query", call_of, text_of, "theorems verify --attention")
