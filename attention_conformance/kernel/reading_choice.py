"""The choice, by small calls, of the way to call a callable: a library's interface, or a reading of its signature.

A reading (:class:`attention_conformance.interfaces.signature_reading.Reading`) is a possible meaning of the parameters
and results. Names of parameters suggest readings. A call with random numbers and different sizes on all axes selects
the reading under which the output is nearest to the formula of attention; for a wrong kernel this is the reading under
which the kernel is least wrong. Axes: B batch entries, H heads, L queries, T keys, E columns.
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
"""For each order of axes, the strings by which libraries name it in a parameter such as ``layout``."""


def find_reading(kernel: Kernel) -> Found | None:
    """Return the reading under which the kernel's output is nearest to attention; None if none gives an output."""
    has = kernel.parameters
    ways: list[tuple[Any, bool, dict[str, Any]]] = [
        (sizes, by_name, {}) for sizes, by_name in product(SIZES, (False, True))
    ]
    # Also try to call the kernel always causally, and with a single query that has no axis L.
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
    """Yield the readings of a signature that its parameter names allow, the most usual readings first.

    Args:
        has: the parameters of the callable with their defaults.
        by_name: whether to pass query, key and value by name.
        causal: whether to make every call causal.
        among: the orders of axes to try, elements of AXES or DECODED.
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
        names.pop("dropout", None)  # dropout that needs further arguments, such as a mask, is not tested
    known = {*tensors, *names.values()}
    # Pass None for required parameters of unknown meaning, which may be a mask or scratch memory.
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
    """Return the names of the parameters for query, key and value, and whether they have to be passed by name."""
    inputs = [name for name in has if name != "**" and name != names.get("module")]
    if "packed" in names:
        packed = names["packed"]
        return ((packed,) if packed.lower() == "qkv" else (names.get("query", inputs[0]), packed)), False
    named = tuple(names[role] for role in ("query", "key", "value") if role in names)
    if len(named) == 3 and (tuple(inputs[:3]) != named or "module" in names):
        return named, True
    return tuple(inputs[:3]), False


def _best(kernel: Kernel, reading: Reading, made: AttentionCall) -> Found | None:
    """Return ``reading`` with the scale, causality and place of the output that come nearest to attention."""
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
        # If the causal formula fits the output best, a kernel without a parameter for causality is always causal. A
        # kernel with such a parameter is wrong, as the call is not causal, but the fit shows the order of its axes.
        ways = ((False, Alignment.TOP_LEFT), (True, Alignment.TOP_LEFT), (True, Alignment.BOTTOM_RIGHT))
        for scale, (causal, alignment) in product((None, 1.0), ways):
            off = distance(output, made.replace(causal=causal), scale, alignment)
            always = causal and "causal" not in reading.names
            readings.append(Found(off, replace(with_path, always_causal=always), scale, alignment, made))
    return min(readings, key=lambda candidate: candidate.off, default=None)


LIKE_OTHERS = ("plain", "sdpa", "flash", "triton", "hf")
"""Interfaces whose parameter names also occur in kernels that do not follow the interface."""


def may_be_read_otherwise(kernel: Kernel | InvalidInput) -> bool:
    """Return whether to look for a reading of a kernel's signature, although a library's interface was recognised.

    ``kernel`` is the kernel as that interface calls it, or the error that it raises. A reading is looked for if calls
    fail or give wrong results, or if the names of parameters that the interface does not test have a known meaning.
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
    """Return whether to call a kernel by the reading of its signature instead of a library's interface.

    Args:
        read: the kernel as the reading calls it.
        kernel: the kernel as the interface calls it, or the error that it raises.
    """
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
        # The interface ``plain`` calls a function of three tensors as the paper's attention: scale 1, all keys visible.
        # Prefer the reading only if it is correct on more calls, and its axes, output or fixed options are others.
        reading = read.reading
        other = reading.axes not in ("BHLE", "NLE") or bool(reading.output)
        return own < theirs and (other or (reading.always_causal and reading.fixed_scale))
    return own < theirs or (own == theirs and more and kernel.declares - {"parameters"} <= read.declares)


def _takes_masks_as_pytorch(reading: Reading) -> bool:
    """Return whether ``attn_mask`` means what PyTorch documents: True shows a key, and all shapes broadcast."""
    masks = [mask for mask in (reading.mask, reading.bias) if mask is not None]
    return all(mask.sense != HIDES and not mask.shape for mask in masks if mask.name == "attn_mask")
