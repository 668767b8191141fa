"""What the parameters of a callable mean, and where its results are in what it returns: found out by small calls."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from theorems.kernel.interfaces.by_name import interface_of
from theorems.kernel.interfaces.reading import (
    ADDED,
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
from theorems.kernel.small_calls import NEAR, Found, Try, distance, due_rows, random_bias, random_mask, square_call
from theorems.kernel.with_torch import torch


def with_options(tried: Try, found: Found) -> Reading:
    """The reading with what its masks mean, and without parameters that it has not."""
    reading = found.reading
    names = dict(reading.names)
    square = square_call(causal=reading.always_causal)
    if "window" in names and tried.of(reading, square, window=(2, 0))[0] is None:
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
    """The reading with what it takes as further keywords, under the names that libraries have for them."""
    asked: dict[str, dict[str, Any]] = {"scale": {"scale": 0.5}, "causal": {"causal": True}}
    for role, options in asked.items():
        for name in ROLES[role] if role not in reading.names and not reading.always_causal else ():
            one = replace(reading, names={**reading.names, role: name})
            if _has_an_effect(tried, one, **options):
                reading = one if role == "causal" else replace(one, fixed_scale=False)
                break
    for name in ROLES["mask"][:3] if reading.mask is None is reading.bias else ():
        mask, bias = _senses(tried, replace(found, reading=reading), name)
        visible = random_mask(square_call(causal=False))
        if mask is not None and _has_an_effect(tried, replace(reading, mask=mask), visible=tried.tensor(visible)):
            return replace(reading, mask=mask, bias=bias)
    return reading


def _has_an_effect(tried: Try, reading: Reading, **options: Any) -> bool:
    """Whether the output with these options is another one."""
    call = square_call(causal=reading.always_causal)
    without, _ = tried.of(reading, call)
    output, _ = tried.of(reading, call, **options)
    return output is not None and not np.array_equal(output, without)


def _senses(tried: Try, found: Found, name: str) -> tuple[Mask | None, Mask | None]:
    """What a parameter for masks takes booleans as, and numbers."""
    boolean = _nearest(tried, found, name, random_mask(found.made), (SHOWS, HIDES, ADDED, ONES_HIDE))
    return boolean, _nearest(tried, found, name, random_bias(found.made), (ADDED,))


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


def with_returned(tried: Try, found: Found, reading: Reading) -> Reading:
    """The reading with the places of log-sum-exps and weights in what is returned."""
    made = found.made.replace(causal=reading.always_causal)
    rows = due_rows(made, found.scale, found.alignment)
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
