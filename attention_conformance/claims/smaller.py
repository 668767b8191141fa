"""Find a smaller call that still fails: without the options that do not matter, then with less of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from attention_conformance.calls.attention_call import AXES as FURTHER
from attention_conformance.calls.attention_call import LONG_STATES, PLAIN, AttentionCall, State

TRIALS, WORK = 150, 1 << 25
"""The largest number of calls that are tried, and of multiplications in their matrix products.

A time limit would make the result depend on the machine.
"""
WORK_OF_LONG_STATE = 1 << 20
"""Added to the work of a call in one of the states that take long: 32 such calls are tried."""
FEW_PLACES = 4
"""The largest number of places of an axis of which each is left out by itself."""
FEW = 1 << 16
"""The largest work of a call whose options are reduced before its sizes."""
NEUTRAL = {
    field.name: field.default for field in fields(AttentionCall) if field.name in (*PLAIN, *FURTHER, "visible", "bias")
}
"""Options that are off. A field of a call with a default is an option; with its default it has no effect."""


def smallest_failing(call: AttentionCall, fails: Callable[[AttentionCall], bool]) -> AttentionCall:
    """Return a small call for which ``fails`` is true, as it is for the given one.

    Args:
        call: the failing call.
        fails: returns whether another call fails in the same way.
    """
    left, work = TRIALS, WORK
    changed = True
    while changed:
        changed = False
        large = work_of(call) > FEW and call.state not in LONG_STATES
        steps = (_shorter, _without_options) if large else (_without_options, _shorter)
        for step in (*steps, _with_less_hidden, _rounder):
            again = True
            while again:
                again = False
                for candidate in step(call):
                    left, work = left - 1, work - work_of(candidate)
                    work -= WORK_OF_LONG_STATE if candidate.state in (*LONG_STATES, State.REPLAYED) else 0
                    if left < 0 or work < 0:
                        return call.replace(name="generated")
                    if fails(candidate):
                        call, again, changed = candidate, True, True
                        break
    return call.replace(name="generated")


def work_of(call: AttentionCall) -> int:
    """Return the number of multiplications in the call's matrix products."""
    sizes = call.sizes
    return sizes["B"] * sizes["H"] * sizes["L"] * sizes["T"] * (sizes["E"] + sizes["M"])


def _without_options(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield the call without all options, then without each of them."""
    on = [name for name, value in NEUTRAL.items() if np.ndim(getattr(call, name)) or getattr(call, name) != value]
    # An exact call without its options is as exact; and dropout needs the values that it has.
    without = [name for name in on if name != "exact"]
    if len(without) > 1:
        yield call.replace(**{name: NEUTRAL[name] for name in without})
    if call.state in LONG_STATES:
        yield call.replace(**{name: NEUTRAL[name] for name in without if name != "state"})
    for name in on:
        yield call.replace(**{name: NEUTRAL[name]})


def _shorter(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield calls with half of an axis, or one place less.

    With causality or a window, as many queries as keys stay as many.
    """
    sizes = call.sizes
    group = sizes["H"] // sizes["G"]
    dropping = call.dropout > 0
    # Where the diagonal is with L ≠ T is another question.
    square = sizes["L"] == sizes["T"] and (call.causal or call.window is not None)
    for axis in "TBG" if square else "TLBG":
        size = sizes[axis]
        halves = (size // 2, size - 1) if size > 3 else (size - 1,)
        for keep in dict.fromkeys(halves):
            if keep < 1 or (axis == "T" and (dropping or not _may_have(call, keep))):
                continue
            for kept in (slice(0, keep), slice(size - keep, size)):
                cut = cut_call(call, axis, kept)
                yield cut_call(cut, "L", kept) if square and axis == "T" else cut
    of_group = np.arange(sizes["H"]) % group
    for heads in _parts_of(group):  # any head may be the one that fails
        yield cut_call(call, "H", np.flatnonzero(np.isin(of_group, heads)))
    for axis in "EM":
        size = sizes[axis]
        for keep in dict.fromkeys((size // 2, size - 1) if size > 3 else (size - 1,)):
            if keep >= 1 and not (dropping and axis == "M") and not (call.exact and axis == "E"):
                yield cut_call(call, axis, slice(0, keep))
    if call.exact and sizes["E"] > 2:
        yield cut_call(call, "E", slice(0, 2))  # the products that cancel go together


def _parts_of(size: int) -> Iterator[np.ndarray]:
    """Yield the first and the second half of the places of an axis, then all but one place if they are few."""
    places = np.arange(size)
    if size > 1:
        yield from (places[: size // 2], places[size // 2 :])
    if 2 < size <= FEW_PLACES:
        yield from (np.delete(places, place) for place in places)


def _may_have(call: AttentionCall, keys: int) -> bool:
    """Return whether an exact call stays exact with this number of its keys."""
    return not call.exact or float(np.max(np.abs(call.value))) <= 2 or (keys > 1 and keys & (keys - 1) == 0)


AXES = {"B": 0, "L": 2, "H": 1, "G": 1, "E": 3, "M": 3, "T": 2}
HAVE = {
    "B": ("query", "key", "value", "upstream"),
    "G": ("key", "value"),
    "H": ("query", "upstream"),
    "L": ("query", "upstream"),
    "T": ("key", "value"),
    "E": ("query", "key"),
    "M": ("value", "upstream"),
}
"""The tensors that have each axis; heads go with their groups."""
MASK_AXES = {"B": -4, "H": -3, "L": -2, "T": -1}


def cut_call(call: AttentionCall, axis: str, kept: slice | np.ndarray) -> AttentionCall:
    """Return the call with some places of an axis; on axis G with the heads of these groups."""
    sizes = call.sizes
    tensors = {name: _take(getattr(call, name), AXES[axis], kept) for name in HAVE[axis]}
    on_masks, own = axis, kept
    if axis == "G":
        group = sizes["H"] // sizes["G"]
        kept = (np.arange(sizes["G"])[kept][:, None] * group + np.arange(group)).ravel()
        tensors |= {name: _take(getattr(call, name), 1, kept) for name in HAVE["H"]}
        on_masks = "H"
    if on_masks in MASK_AXES:
        place = MASK_AXES[on_masks]
        for name in ("visible", "bias"):
            mask = getattr(call, name)
            if mask is not None and mask.ndim >= -place and mask.shape[place] > 1:
                tensors[name] = _take(mask, mask.ndim + place, kept)
    for name, axes in FURTHER.items():
        for on_axis, places in {axis: own, on_masks: kept}.items():
            if getattr(call, name) is not None and on_axis in axes:
                tensors[name] = _take(getattr(call, name), axes.index(on_axis), places)
    made = call.replace(**tensors)
    if call.lengths is not None and axis in "LT":
        made = made.replace(lengths=np.minimum(call.lengths, (made.sizes["L"], made.sizes["T"])))
    return made


def _take(x: np.ndarray, axis: int, kept: slice | np.ndarray) -> np.ndarray:
    return x[(slice(None),) * axis + (kept,)]


def _with_less_hidden(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield calls whose mask has no effect on some places of an axis: on all, on half, or on all but one of a few."""
    for name, nothing in (("visible", True), ("bias", 0.0)):
        mask = getattr(call, name)
        if mask is None:
            continue
        for axis in range(mask.ndim):
            across = tuple(other for other in range(mask.ndim) if other != axis)
            left = np.flatnonzero((mask != nothing).any(axis=across))
            for places in (np.arange(left.size), *_parts_of(left.size)) if left.size else ():
                shown = np.moveaxis(mask.copy(), axis, 0)
                shown[left[places]] = nothing
                yield call.replace(**{name: np.moveaxis(shown, 0, axis)})


def _rounder(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield calls with the numbers of one tensor rounded to integers."""
    if call.exact:
        return
    for name in ("query", "key", "value", "upstream"):
        x = getattr(call, name)
        if call.dropout and name == "value":
            continue
        if np.abs(x).max() < 1e6 and not (x == np.round(x)).all():
            yield call.replace(**{name: np.round(x)})
