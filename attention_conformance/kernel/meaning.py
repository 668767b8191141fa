"""What the parameters of a callable mean, and where its results are in what it returns: found out by small calls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from attention_conformance.interfaces.by_name import interface_of
from attention_conformance.interfaces.reading import (
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
    is_pytorchs,
    roles_of,
)
from attention_conformance.kernel.small_calls import (
    NEAR,
    Found,
    Try,
    distance,
    due_rows,
    random_bias,
    random_mask,
    square_call,
)
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import AttentionCall

ONE_FOR_ALL_HEADS = "attention_mask"
"""Transformers and Megatron-LM make it (B, 1, L, T): a kernel need not look at more heads."""


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
    made = square_call(causal=False)
    for name in ROLES["mask"][:3] if reading.mask is None is reading.bias else ():
        mask, bias = _senses(tried, replace(found, reading=reading), name)
        given = {"visible": random_mask(made)} if mask is not None else {}
        given |= {"bias": random_bias(made)} if bias is not None else {}
        one = replace(reading, mask=mask, bias=bias)
        if given and all(_has_an_effect(tried, one, **{key: tried.tensor(x)}) for key, x in given.items()):
            return one
    return reading


def _has_an_effect(tried: Try, reading: Reading, **options: Any) -> bool:
    """Whether the output with these options is another one."""
    call = square_call(causal=reading.always_causal)
    without, _ = tried.of(reading, call)
    output, _ = tried.of(reading, call, **options)
    return output is not None and not np.array_equal(output, without)


def _senses(tried: Try, found: Found, name: str) -> tuple[Mask | None, Mask | None]:
    """What a parameter for masks takes booleans as, and numbers."""
    mask = random_mask(found.made)
    senses = (SHOWS, HIDES, ADDED, ONES_HIDE) if _adds_booleans(tried, found, name, mask) else (SHOWS, HIDES, ONES_HIDE)
    return _nearest(tried, found, name, mask, senses), _nearest(tried, found, name, random_bias(found.made), (ADDED,))


def _shapes(found: Found) -> tuple[str, ...]:
    return FOLDED if found.reading.axes == "NLE" else MASK_SHAPES


def _adds_booleans(tried: Try, found: Found, name: str, mask: Any) -> bool:
    """Whether it may be for numbers alone: booleans are refused in all shapes, or added as ones and zeros are.

    Under PyTorch's names they are no numbers.
    """
    one = found.made.replace(bias=mask.astype(np.float64))
    off = [_off(tried, found, Mask(name, SHOWS, shape), mask, due=one) for shape in _shapes(found)]
    return min(off) == math.inf or (min(off) < NEAR and not is_pytorchs(tried.has))


def _off(tried: Try, found: Found, one: Mask, mask: Any, due: AttentionCall | None = None) -> float:
    """How far the output with a mask is from what is due, infinite if it is refused.

    Args:
        one: how it is given.
        due: the call of which the output is due, if not of that with the mask.
    """
    kind, key = ("mask", "visible") if mask.dtype == bool else ("bias", "bias")
    reading = replace(found.reading, **{kind: one})  # type: ignore[arg-type]
    made = found.made.replace(causal=found.reading.always_causal, **{key: mask})
    made = interface_of(reading).expressible(made)
    output, _ = tried.of(reading, made, **{key: tried.tensor(getattr(made, key))})
    return distance(output, made if due is None else due.replace(causal=made.causal), found.scale, found.alignment)


def _nearest(tried: Try, found: Found, name: str, mask: Any, senses: tuple[str, ...]) -> Mask | None:
    """The sense and the shape in which a mask has the effect that is due; of none, those of the nearest with which a
    mask that hides nothing, or next to nothing, changes nothing.

    Poorer shapes are tried where richer ones are refused: a kernel that takes a mask of all heads, and looks at that of
    the first alone, is wrong.
    """
    # A mask that is not added may take any number but 0, or large ones alone, as it takes 1.
    nothing = (np.ones_like(mask),) if mask.dtype == bool else (0 * mask, 1e-6 * mask)
    for shape in _shapes(found):
        off = {one: _off(tried, found, one, mask) for one in (Mask(name, sense, shape) for sense in senses)}
        taken = [one for one in off if off[one] < math.inf]
        if not taken:
            continue
        best = min(taken, key=off.__getitem__)
        if off[best] < NEAR:
            free = replace(best, shape="")
            small = (mask[0, 0], mask[:1], mask[:, :1], mask[:, :1, :1])
            takes_all = shape == MASK_SHAPES[0] and all(_off(tried, found, free, x) < NEAR for x in small)
            return free if takes_all else best
        if name == ONE_FOR_ALL_HEADS and shape == MASK_SHAPES[0]:
            continue
        harmless = [one for one in taken if all(_off(tried, found, one, x) < NEAR for x in nothing)]
        return min(harmless, key=off.__getitem__, default=None)
    return None


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
