"""How a callable is called, found out by small calls: the reading under which its numbers are those of attention.

Names of parameters say what may be meant; a call of random numbers, all of whose axes differ, says what is. Of several
readings the one is taken whose output is nearest to the formula: a wrong kernel is read as what it is least wrong as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from attention_conformance.interfaces.interface import Mark, Parameters
from attention_conformance.interfaces.reading import AXES, Reading, flatten, roles_of
from attention_conformance.kernel.meaning import with_options, with_returned
from attention_conformance.kernel.small_calls import SIZES, Found, Try, distance
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import Alignment, AttentionCall
from generators.attention_calls import Numbers, tensors

STRINGS = {
    "BHLE": ("BNSD", "bhsd", "BHSD", "HND", "bhld", "bnsd"),
    "BLHE": ("BSND", "bshd", "BSHD", "NHD", "blhd", "bsnd"),
    "LBHE": ("sbhd", "SBND"),
    "BLHE joined": ("BSH",),
}
"""What libraries call these orders."""


def find_reading(call: Callable[..., Any], has: Parameters, dtype: torch.dtype, device: str) -> Found | None:
    """The reading that is nearest to attention; None if the callable returns for none.

    Args:
        call: the callable.
        has: its parameters.
        dtype: of the tensors that it is given.
        device: where they are.
    """
    tried = Try(call, has, dtype, device)
    for sizes, by_name in product(SIZES, (False, True)):
        made = tensors(sizes, Numbers.NORMAL, seed=0)
        found = [one for reading in candidates(has, by_name) if (one := _best(tried, reading, made)) is not None]
        if found:
            least = min(found, key=lambda one: one.off)
            return replace(least, reading=with_returned(tried, least, with_options(tried, least)))
    return None


def candidates(has: Parameters, by_name: bool) -> Iterator[Reading]:
    """The readings that names of parameters allow, the most usual first.

    Args:
        has: the parameters.
        by_name: whether the tensors are given by name.
    """
    roles = roles_of(has)
    names = {role: found[0] for role, found in roles.items() if found and role != "mask"}
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
    # What has to be given and nobody knows is given None: a mask, a workspace.
    constants: dict[str, Any] = {x: None for x, default in has.items() if default is Mark.REQUIRED and x not in known}
    constants.pop("**", None)
    if "upcast" in names:
        constants[names.pop("upcast")] = False
    layout = names.pop("layout", "")
    for axes in AXES:
        if "joined" in axes and "heads" not in names:
            continue
        for string in STRINGS.get(axes, ()) if has.get(layout) is Mark.REQUIRED else ("",):
            own = constants | ({layout: string} if string else {})
            for returned in (axes, "BLHE") if axes == "BHLE" else (axes,):
                yield Reading(frozenset(has), tensors, by_name or out_of_order, axes, returned, names, own)


def _tensor_names(has: Parameters, names: dict[str, str]) -> tuple[tuple[str, ...], bool]:
    """The names of query, key and value, and whether they have to be given by name."""
    inputs = [name for name in has if name != "**" and name != names.get("module")]
    if "packed" in names:
        packed = names["packed"]
        return ((packed,) if packed.lower() == "qkv" else (names.get("query", inputs[0]), packed)), False
    named = tuple(names[role] for role in ("query", "key", "value") if role in names)
    if len(named) == 3 and (tuple(inputs[:3]) != named or "module" in names):
        return named, True
    return tuple(inputs[:3]), False


def _best(tried: Try, reading: Reading, made: AttentionCall) -> Found | None:
    """The scale, the causality and the place of the output with which a reading is nearest."""
    _, returned = tried.of(reading, made)
    if returned is None and "out" not in reading.names:
        return None
    paths = [path for path, one in flatten(returned) if isinstance(one, torch.Tensor)]
    found = []
    for path in [*paths[:4], None] if "out" in reading.names else paths[:4]:
        one = replace(reading, output=path)
        output, _ = tried.of(one, made)
        if output is None:
            continue
        # Every call is causal only where nobody can say so; where one can, it is wrong, but its tensors are told apart.
        ways = ((False, Alignment.TOP_LEFT), (True, Alignment.TOP_LEFT), (True, Alignment.BOTTOM_RIGHT))
        for scale, (causal, alignment) in product((None, 1.0), ways):
            off = distance(output, made.replace(causal=causal), scale, alignment)
            always = causal and "causal" not in reading.names
            found.append(Found(off, replace(one, always_causal=always), scale, alignment, made))
    return min(found, key=lambda one: one.off, default=None)
