"""How a callable is called, found out by small calls: the reading under which its numbers are those of attention.

Names of parameters say what may be meant; a call of random numbers, all of whose axes differ, says what is. Of several
readings the one is taken whose output is nearest to the formula: a wrong kernel is read as what it is least wrong as.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from generators.attention_call import Alignment, AttentionCall
from generators.attention_calls import Numbers, Sizes, tensors
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS
from theorems.core.on_kernel import Refused
from theorems.kernel.interfaces.by_name import interface_of
from theorems.kernel.interfaces.interface import Mark, Parameters, Request
from theorems.kernel.interfaces.reading import (
    ADDED,
    AXES,
    FOLDED,
    HIDES,
    MASK_SHAPES,
    ONES_HIDE,
    ROLES,
    SHOWS,
    Mask,
    Reading,
    flatten,
    roles_of,
)
from theorems.kernel.with_torch import torch
from theorems.rounding.attention_rows import AttentionRows

SIZES = (
    Sizes(B=2, H=4, G=4, L=3, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=5, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=16, T=16, E=64, M=64),
    Sizes(B=2, H=4, G=4, L=128, T=128, E=64, M=64),
)
"""At which a callable is tried, until it returns something."""
NEAR = 0.05
"""Of the largest output, by which half precision may be off; another reading of random numbers is off by as much as
there is."""
STRINGS = {
    "BHLE": ("BNSD", "bhsd", "BHSD", "HND", "bhld", "bnsd"),
    "BLHE": ("BSND", "bshd", "BSHD", "NHD", "blhd", "bsnd"),
    "LBHE": ("sbhd", "SBND"),
    "BLHE joined": ("BSH",),
}
"""What libraries call these orders."""


@dataclass(frozen=True)
class Try:
    """A callable on tensors of one dtype.

    Attributes:
        call: the callable.
        has: its parameters.
        dtype: of the tensors.
        device: where they are.
    """

    call: Callable[..., Any]
    has: Parameters
    dtype: torch.dtype
    device: str

    def of(self, reading: Reading, made: AttentionCall, **options: Any) -> tuple[Any, Any]:
        """Its output (B, H, L, M) in float64 and all that it returned; None where it raises, or returns none."""
        given = {name: self.tensor(getattr(made, name)) for name in ("query", "key", "value")}
        seen: list[Any] = []

        def heard(*args: Any, **named: Any) -> Any:
            seen.append(self.call(*args, **named))
            return seen[-1]

        try:
            with torch.no_grad():
                interface = interface_of(reading)
                request = Request(**given, **{"scale": None, "causal": made.causal, **options})
                output = interface.call(heard, request, self.has).output
        except (Exception, SystemExit):
            return None, None
        due = (*made.query.shape[:3], made.value.shape[-1])
        if not isinstance(output, torch.Tensor) or tuple(output.shape) != due or not output.is_floating_point():
            return None, seen[0]
        return output.to("cpu", torch.float64).numpy(), seen[0]

    def tensor(self, x: Any) -> torch.Tensor:
        """A tensor as the callable wants it."""
        return torch.tensor(np.asarray(x)).to(self.device, torch.bool if np.asarray(x).dtype == bool else self.dtype)


def distance(found: Any, made: AttentionCall, scale: float | None, alignment: Alignment) -> float:
    """How far an output is from the formula's, over the largest of these; infinite for none."""
    if found is None:
        return math.inf
    due = _due(made, scale, alignment).output.value
    off = np.max(np.abs(found - due)) / np.max(np.abs(due))
    return float(np.nan_to_num(off, nan=math.inf))


def _due(made: AttentionCall, scale: float | None, alignment: Alignment) -> Any:
    return AttentionRows(made.replace(scale=scale), FORMATS["float64"], alignment)


@dataclass(frozen=True)
class Found:
    """A reading and how good it is.

    Attributes:
        off: distance of its output from the formula's.
        reading: it.
        scale: its own, None for 1/√E.
        alignment: of every call, if all are causal.
        made: the call that it was found by.
    """

    off: float
    reading: Reading
    scale: float | None
    alignment: Alignment
    made: AttentionCall


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
            return replace(least, reading=_with_returned(tried, least, _with_options(tried, least)))
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
        # Every call is causal only where nobody can say so.
        ways = (True, Alignment.TOP_LEFT), (True, Alignment.BOTTOM_RIGHT)
        among = ((False, Alignment.TOP_LEFT), *(() if "causal" in reading.names else ways))
        for scale, (causal, alignment) in product((None, 1.0), among):
            off = distance(output, made.replace(causal=causal), scale, alignment)
            found.append(Found(off, replace(one, always_causal=causal), scale, alignment, made))
    return min(found, key=lambda one: one.off, default=None)


# ---- options ---------------------------------------------------------------------------------------------------------


def _with_options(tried: Try, found: Found) -> Reading:
    """The reading with what its masks mean, and without parameters that it has not."""
    reading = found.reading
    names = dict(reading.names)
    if "window" in names:
        square = tensors(SIZES[1], Numbers.NORMAL, seed=0).replace(causal=reading.always_causal)
        if tried.of(reading, square, window=(2, 0))[0] is None:
            names.pop("window")  # it is another kind of window
    reading = replace(reading, names=names, fixed_scale="scale" not in names and found.scale is None)
    masks = roles_of(tried.has)["mask"]
    for name in masks:
        mask, bias = _senses(tried, replace(found, reading=reading), name)
        of_keys = mask is not None and mask.shape in ("B, 1, 1, T", "B, T")
        if mask is not None and not of_keys and reading.mask is None:
            reading = replace(reading, mask=mask)
        elif mask is not None and of_keys and reading.key_mask is None:
            reading = replace(reading, key_mask=mask)
        if bias is not None and reading.bias is None:
            reading = replace(reading, bias=bias)
    return _through_keywords(tried, found, reading) if "**" in tried.has else reading


def _through_keywords(tried: Try, found: Found, reading: Reading) -> Reading:
    """The reading with what it takes as further keywords, under the names that PyTorch and flash-attn have for them."""

    def is_taken(one: Reading, **options: Any) -> bool:
        made = found.made.replace(**{"causal": one.always_causal, **options})
        given = {name: tried.tensor(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
        output, _ = tried.of(one, made, **given)
        if distance(output, made, options.get("scale", found.scale), found.alignment) < NEAR:
            return True
        without, _ = tried.of(reading, found.made.replace(causal=one.always_causal))
        return output is not None and "visible" not in given and not np.array_equal(output, without)

    square = replace(found, made=tensors(SIZES[1], Numbers.NORMAL, seed=0))
    asked: dict[str, dict[str, Any]] = {"scale": {"scale": 0.5}, "causal": {"causal": True}}
    for role, options in asked.items():
        for name in ROLES[role] if role not in reading.names and not reading.always_causal else ():
            one = replace(reading, names={**reading.names, role: name})
            found = square if role == "causal" else replace(found, made=found.made)
            if is_taken(one, **options):
                reading = one if role == "causal" else replace(one, fixed_scale=False)
                break
    for name in ROLES["mask"][:3] if reading.mask is None is reading.bias else ():
        mask, bias = _senses(tried, replace(found, reading=reading), name)
        visible = np.arange(found.made.sizes["T"]) < 2
        visible = np.broadcast_to(visible, tuple(found.made.sizes[axis] for axis in "BHLT"))
        if mask is not None and is_taken(replace(reading, mask=mask), visible=visible):
            return replace(reading, mask=mask, bias=bias)
    return reading


def _senses(tried: Try, found: Found, name: str) -> tuple[Mask | None, Mask | None]:
    """What a parameter for masks takes booleans as, and numbers."""
    made = found.made
    shape = tuple(made.sizes[axis] for axis in "BHLT")
    rng = np.random.default_rng(0)
    visible = rng.random(shape) < 0.6
    visible[..., 0] = True  # whatever else is hidden, a causal row sees a key
    boolean = _nearest(tried, found, name, visible, (SHOWS, HIDES, ADDED, ONES_HIDE))
    return boolean, _nearest(tried, found, name, rng.standard_normal(shape), (ADDED,))


def _nearest(tried: Try, found: Found, name: str, mask: Any, senses: tuple[str, ...]) -> Mask | None:
    """The sense and the shape in which a mask has the effect that is due; of none, those of the nearest with which a
    mask that hides nothing, or next to nothing, changes nothing."""
    kind, key = ("mask", "visible") if mask.dtype == bool else ("bias", "bias")
    # A mask that is not added may take any number but 0, or large ones alone, as it takes 1.
    nothing = (np.ones_like(mask),) if mask.dtype == bool else (0 * mask, 1e-6 * mask)

    def off(one: Mask, mask: Any) -> float:
        reading = replace(found.reading, **{kind: one})  # type: ignore[arg-type]
        made = found.made.replace(causal=found.reading.always_causal, **{key: mask})
        made = interface_of(reading).expressible(made)
        output, _ = tried.of(reading, made, **{key: tried.tensor(getattr(made, key))})
        return distance(output, made, found.scale, found.alignment)

    far: list[tuple[float, Mask]] = []
    for shape, sense in product(FOLDED if found.reading.axes == "NLE" else MASK_SHAPES, senses):
        one = Mask(name, sense, shape)
        apart = off(one, mask)
        if apart < NEAR:
            free = replace(one, shape="")
            small = (mask[0, 0], mask[:1], mask[:, :1], mask[:, :1, :1])
            return free if shape == MASK_SHAPES[0] and all(off(free, x) < NEAR for x in small) else one
        if apart < math.inf and all(off(one, x) < NEAR for x in nothing):
            far.append((apart, one))
    return min(far, key=lambda pair: pair[0])[1] if far else None


# ---- what is returned ------------------------------------------------------------------------------------------------


def _with_returned(tried: Try, found: Found, reading: Reading) -> Reading:
    """The reading with the places of log-sum-exps and weights in what is returned."""
    made = found.made.replace(causal=reading.always_causal)
    rows = _due(made, found.scale, found.alignment)
    B, H, L, T = (made.sizes[axis] for axis in "BHLT")
    _, returned = tried.of(reading, made, log_sum_exp=True)
    lse = _place_of(returned, np.asarray(rows.log_sum_exp.value), ((B, H, L), (B, L, H), (B * H, L)))
    if lse is None and "lse" in reading.names:  # it was asked for, and is not what it should be
        lse = _place_of(returned, None, ((B, H, L), (B, L, H), (B * H, L)))
    due = np.asarray(rows.weights.value)
    shapes = ((B, H, L, T), (B * H, L, T))
    weights = _place_of(tried.of(reading, made)[1], due, shapes)
    for flag in roles_of(tried.has)["weights"] if weights is None else ():
        one = replace(reading, constants={**reading.constants, flag: True})
        weights = _place_of(tried.of(one, made)[1], due, shapes)
        if weights is not None:
            reading = one
            break
    return replace(reading, log_sum_exp=lse, weights=weights)


def _place_of(returned: Any, due: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """The path to the tensor that is as it is due, (B, H, …), or to any, in one of these shapes."""
    for path, x in flatten(returned):
        if path and isinstance(x, torch.Tensor) and tuple(x.shape) in shapes and x.is_floating_point():
            if due is None:
                return path
            theirs = x.detach().to("cpu", torch.float64).numpy()
            swapped = theirs.shape == shapes[1] != shapes[0] and theirs.ndim == due.ndim
            theirs = np.swapaxes(theirs, 1, 2) if swapped else theirs.reshape(due.shape)
            if np.max(np.abs(theirs - due)) < NEAR * np.max(np.abs(due)):
                return path
    return None


# ---- whether a kernel is right ---------------------------------------------------------------------------------------


def rightness(kernel: Any) -> float:
    """The share of small calls, one for each of its masks and a causal one, in which a
    :class:`theorems.kernel.kernel.Kernel` is near to attention."""
    made = tensors(SIZES[0], Numbers.NORMAL, seed=0)
    rng = np.random.default_rng(0)
    shape = tuple(made.sizes[axis] for axis in "BHLT")
    visible = rng.random(shape) < 0.6
    visible[..., 0] = True
    asked = {
        "output": made,
        "boolean-mask": made.replace(visible=visible),
        "additive-mask": made.replace(bias=rng.standard_normal(shape)),
        "causal": tensors(SIZES[1], Numbers.NORMAL, seed=0).replace(causal=True),
    }
    near = [_is_near(kernel, call) for name, call in asked.items() if name in kernel.declares]
    return sum(near) / len(near)


def returns_more(kernel: Any) -> bool:
    """Whether it returns more than a tensor, without being asked for it."""
    seen: list[Any] = []

    def heard(*args: Any, **options: Any) -> Any:
        seen.append(kernel.call(*args, **options))
        return seen[-1]

    call = kernel.in_own_numbers(tensors(SIZES[0], Numbers.NORMAL, seed=0))
    with suppress(Refused, InvalidInput):
        kernel.replace(call=heard, differentiable=False).answer(call)
    return any(not isinstance(found, torch.Tensor) for found in seen)


def _is_near(kernel: Any, call: AttentionCall) -> bool:
    call = kernel.in_own_numbers(call.replace(scale=None) if kernel.fixed_scale else call)
    try:
        found = kernel.replace(differentiable=False).answer(call).output
    except (Refused, InvalidInput):
        return False
    return distance(found, call, call.scale, kernel.alignment) < NEAR
