"""Find out by small calls how a callable is called: the reading under which its numbers are those of attention.

Names of parameters suggest readings; a call of random numbers, all of whose axes differ, decides among them. The
reading whose output is nearest to the formula is taken: a wrong kernel gets the reading under which it is least wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.attention_calls import Numbers, tensors
from attention_conformance.interfaces.interface import Mark, Parameters
from attention_conformance.interfaces.reading import AXES, DECODED, Reading, flatten, roles_of
from attention_conformance.kernel.signature_probe import with_options, with_returned
from attention_conformance.kernel.small_calls import SIZES, Found, Try, distance
from attention_conformance.kernel.with_torch import torch

STRINGS = {
    "BHLE": ("BNSD", "bhsd", "BHSD", "HND", "bhld", "bnsd"),
    "BLHE": ("BSND", "bshd", "BSHD", "NHD", "blhd", "bsnd"),
    "LBHE": ("sbhd", "SBND"),
    "BLHE joined": ("BSH",),
}
"""The names of these orders of axes in libraries."""


def find_reading(call: Callable[..., Any], has: Parameters, dtype: torch.dtype, device: str) -> Found | None:
    """Return the reading that is nearest to attention; None if the callable returns no output under any reading.

    Args:
        call: the callable.
        has: its parameters.
        dtype: the dtype of the tensors that it is given.
        device: the device of the tensors.
    """
    tried = Try(call, has, dtype, device)
    ways: list[tuple[Any, bool, dict[str, Any]]] = [
        (sizes, by_name, {}) for sizes, by_name in product(SIZES, (False, True))
    ]
    # Kernels that raise unless they are told to be causal, and such as take a query without an axis of queries.
    ways += [(sizes, False, {"causal": True}) for sizes in SIZES[1:]] if roles_of(has)["causal"] else []
    ways += [(replace(SIZES[0], L=1), by_name, {"among": DECODED}) for by_name in (False, True)]
    for sizes, by_name, further in ways:
        made = tensors(sizes, Numbers.NORMAL, seed=0)
        readings = candidates(has, by_name, **further)
        possible = [candidate for reading in readings if (candidate := _best(tried, reading, made)) is not None]
        if possible:
            least = min(possible, key=lambda candidate: candidate.off)
            return replace(least, reading=with_returned(tried, least, with_options(tried, least)))
    return None


def candidates(has: Parameters, by_name: bool, causal: bool = False, among: Sequence[str] = AXES) -> Iterator[Reading]:
    """Yield the readings that names of parameters allow, the most usual first.

    Args:
        has: the parameters.
        by_name: whether the tensors are given by name.
        causal: whether it is told to be causal in every call.
        among: the orders of axes.
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
        names.pop("dropout", None)  # which weights are dropped has to be said
    known = {*tensors, *names.values()}
    # Unknown required parameters, such as a mask or a workspace, are passed None.
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


def _best(tried: Try, reading: Reading, made: AttentionCall) -> Found | None:
    """Return a reading with the scale, the causality and the place of the output that bring it nearest to attention."""
    _, returned = tried.of(reading, made)
    if returned is None and "out" not in reading.names:
        return None
    paths = [path for path, value in flatten(returned) if isinstance(value, torch.Tensor)]
    readings = []
    for path in [*paths[:4], None] if "out" in reading.names else paths[:4]:
        with_path = replace(reading, output=path)
        output, _ = tried.of(with_path, made)
        if output is None:
            continue
        # Every call is causal only where nobody can say so; where one can, it is wrong, but its tensors are told apart.
        ways = ((False, Alignment.TOP_LEFT), (True, Alignment.TOP_LEFT), (True, Alignment.BOTTOM_RIGHT))
        for scale, (causal, alignment) in product((None, 1.0), ways):
            off = distance(output, made.replace(causal=causal), scale, alignment)
            always = causal and "causal" not in reading.names
            readings.append(Found(off, replace(with_path, always_causal=always), scale, alignment, made))
    return min(readings, key=lambda candidate: candidate.off, default=None)
