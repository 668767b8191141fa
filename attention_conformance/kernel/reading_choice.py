"""The choice, by small calls, of the way to call a callable: a library's interface, or a reading of its signature.

Names of parameters suggest readings. A call with random numbers and different sizes on all axes selects the reading
whose output is nearest to the formula, so that a wrong kernel gets the reading under which it is least wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.sizes_and_numbers import Numbers, tensors
from attention_conformance.interfaces.interface import Mark, Parameters
from attention_conformance.interfaces.parameter_names import is_pytorchs, roles_of
from attention_conformance.interfaces.signature_reading import AXES, DECODED, HIDES, Reading, flatten
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.parameters import Account, of_kind
from attention_conformance.kernel.signature_probe import with_options, with_returned
from attention_conformance.kernel.small_calls import SIZES, Found, distance, returns_more, rightness, try_reading
from attention_conformance.kernel.torch_import import torch
from reference_attention.errors import InvalidInput

STRINGS = {
    "BHLE": ("BNSD", "bhsd", "BHSD", "HND", "bhld", "bnsd"),
    "BLHE": ("BSND", "bshd", "BSHD", "NHD", "blhd", "bsnd"),
    "LBHE": ("sbhd", "SBND"),
    "BLHE joined": ("BSH",),
}
"""The libraries' words for the orders of axes."""


def find_reading(kernel: Kernel) -> Found | None:
    """Return the reading whose output is nearest to attention; None if no reading gives an output."""
    has = kernel.parameters
    ways: list[tuple[Any, bool, dict[str, Any]]] = [
        (sizes, by_name, {}) for sizes, by_name in product(SIZES, (False, True))
    ]
    # Also try causal calls only, and a single query without an axis of queries.
    ways += [(sizes, False, {"causal": True}) for sizes in SIZES[1:]] if roles_of(has)["causal"] else []
    ways += [(replace(SIZES[0], L=1), by_name, {"among": DECODED}) for by_name in (False, True)]
    for sizes, by_name, further in ways:
        made = tensors(sizes, Numbers.NORMAL, seed=0)
        readings = candidates(has, by_name, **further)
        possible = [candidate for reading in readings if (candidate := _best(kernel, reading, made)) is not None]
        if possible:
            least = min(possible, key=lambda candidate: candidate.off)
            return replace(least, reading=with_returned(kernel, least, with_options(kernel, least)))
    return None


def candidates(has: Parameters, by_name: bool, causal: bool = False, among: Sequence[str] = AXES) -> Iterator[Reading]:
    """Yield the readings that parameter names allow, the most usual readings first.

    Args:
        has: the parameters.
        by_name: whether the tensors are given by name.
        causal: whether every call is causal.
        among: the orders of axes to try.
    """
    roles = roles_of(has)
    names = {role: parameters[0] for role, parameters in roles.items() if parameters and role != "mask"}
    tensors, out_of_order = _tensor_names(has, names)
    if len(tensors) < 3 and "packed" not in names and (by_name or "**" not in has):
        tensors = ()
    names = {role: name for role, name in names.items() if role not in ("query", "key", "value", "packed", "weights")}
    of_type = {"dtype": torch.dtype, "dropout": int | float | Mark}
    for role, type in of_type.items():
        if not isinstance(has.get(names.get(role, "")), type):
            names.pop(role, None)
    if "dropout_mask" in has:
        names.pop("dropout", None)  # dropout that needs further arguments is not tested
    known = {*tensors, *names.values()}
    # Pass None for unknown required parameters, such as a mask or a workspace.
    constants: dict[str, Any] = {x: None for x, default in has.items() if default is Mark.REQUIRED and x not in known}
    constants.pop("**", None)
    if "upcast" in names:
        constants[names.pop("upcast")] = False
    layout = names.pop("layout", "")
    if causal:
        constants[names.pop("causal")] = True
    for axes in among:
        if "joined" in axes and "heads" not in names:
            continue
        for string in STRINGS.get(axes, ()) if has.get(layout) is Mark.REQUIRED else ("",):
            own = constants | ({layout: string} if string else {})
            for returned in (axes, "BLHE") if axes == "BHLE" else (axes,):
                yield Reading(frozenset(has), tensors, by_name or out_of_order, axes, returned, names, own)


def _tensor_names(has: Parameters, names: dict[str, str]) -> tuple[tuple[str, ...], bool]:
    """Return the names of query, key and value, and whether they have to be given by name."""
    inputs = [name for name in has if name != "**" and name != names.get("module")]
    if "packed" in names:
        packed = names["packed"]
        return ((packed,) if packed.lower() == "qkv" else (names.get("query", inputs[0]), packed)), False
    named = tuple(names[role] for role in ("query", "key", "value") if role in names)
    if len(named) == 3 and (tuple(inputs[:3]) != named or "module" in names):
        return named, True
    return tuple(inputs[:3]), False


def _best(kernel: Kernel, reading: Reading, made: AttentionCall) -> Found | None:
    """Return a reading with those scale, causality and place of the output with which it is nearest to attention."""
    _, returned = try_reading(kernel, reading, made)
    if returned is None and "out" not in reading.names:
        return None
    paths = [path for path, value in flatten(returned) if isinstance(value, torch.Tensor)]
    readings = []
    for path in [*paths[:4], None] if "out" in reading.names else paths[:4]:
        with_path = replace(reading, output=path)
        output, _ = try_reading(kernel, with_path, made)
        if output is None:
            continue
        # If the causal formula fits best, a kernel without a parameter for causality is always causal. A kernel with
        # this parameter is wrong, but the order of its axes is known.
        ways = ((False, Alignment.TOP_LEFT), (True, Alignment.TOP_LEFT), (True, Alignment.BOTTOM_RIGHT))
        for scale, (causal, alignment) in product((None, 1.0), ways):
            off = distance(output, made.replace(causal=causal), scale, alignment)
            always = causal and "causal" not in reading.names
            readings.append(Found(off, replace(with_path, always_causal=always), scale, alignment, made))
    return min(readings, key=lambda candidate: candidate.off, default=None)


LIKE_OTHERS = ("plain", "sdpa", "flash", "triton", "mlx", "hf", "xformers")
"""Interfaces whose signature a kernel may have without following the interface."""


def may_be_read_otherwise(kernel: Kernel | InvalidInput) -> bool:
    """Return whether a kernel may have to be called by a reading instead of its recognised interface.

    So it is if calls by the interface fail or give wrong results, or if the names of further parameters have a known
    meaning.
    """
    if isinstance(kernel, InvalidInput):
        return True
    if kernel.interface.name not in LIKE_OTHERS:
        return False
    if rightness(kernel) < 1:
        return True
    roles = roles_of({*of_kind(kernel.accounts, Account.NOT_TESTED), *of_kind(kernel.accounts, Account.IGNORED)})
    known = ("scale", "mask", "causal", "softcap", "dropout", "lse", "weights", "dtype")
    return any(roles[role] for role in known) or (kernel.interface.name != "hf" and returns_more(kernel))


def is_better(read: Kernel, kernel: Kernel | InvalidInput) -> bool:
    """Return whether to call a kernel by its reading, as ``read`` is, instead of by a library's interface."""
    if isinstance(kernel, InvalidInput):
        return True
    assert read.reading is not None
    if is_pytorchs(kernel.parameters):
        lost = kernel.declares & {"boolean-mask", "additive-mask", "causal"} - read.declares
        if lost or not _takes_masks_as_pytorch(read.reading):
            return False
    theirs, own = rightness(read), rightness(kernel)
    more = bool(read.declares - kernel.declares - {"default-scale", "parameters", "grouped-heads"})
    more |= read.reading.weights is not None and kernel.interface.name in LIKE_OTHERS
    more |= "dtype" in read.reading.names
    if kernel.interface.name == "plain" and len(kernel.parameters) == 3:
        # A signature of only three tensors is the paper's, with scale 1 and all keys visible.
        reading = read.reading
        other = reading.axes not in ("BHLE", "NLE") or bool(reading.output)
        return own < theirs and (other or (reading.always_causal and reading.fixed_scale))
    return own < theirs or (own == theirs and more and kernel.declares - {"parameters"} <= read.declares)


def _takes_masks_as_pytorch(reading: Reading) -> bool:
    """Return whether True in ``attn_mask`` means visible, and masks may have any shape that can be broadcast."""
    masks = [mask for mask in (reading.mask, reading.bias) if mask is not None]
    return all(mask.sense != HIDES and not mask.shape for mask in masks if mask.name == "attn_mask")
