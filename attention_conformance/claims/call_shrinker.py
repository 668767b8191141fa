"""Search for a smaller call that still fails a claim: with fewer options, smaller sizes and simpler numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields

import numpy as np

from attention_conformance.calls.attention_call import AXES as FURTHER
from attention_conformance.calls.attention_call import LONG_STATES, PLAIN, AttentionCall, State

TRIALS, WORK = 400, 1 << 25
"""Limits of a search: the number of calls tried, and the total of multiplications in the calls' matrix products.

A limit of time would make the result depend on the machine.
"""
WORK_OF_LONG_STATE = 1 << 20
"""Multiplications that a call in a slow state counts in addition, so that at most 32 such calls are tried."""
FEW_PLACES = 4
"""The largest size of an axis at which the search tries to leave out single entries."""
FEW = 1 << 16
"""The largest number of multiplications of a call whose options are reduced first; in larger calls sizes come first."""
NEUTRAL = {
    field.name: field.default for field in fields(AttentionCall) if field.name in (*PLAIN, *FURTHER, "visible", "bias")
}
"""For each option of a call, the default, at which the option has no effect."""
BLOCKS = tuple(2**k for k in range(3, 17))
"""Sizes of the blocks in which kernels process queries and keys."""
SIZES = (1, 2, 3, 4, 5, 6, *(size for block in BLOCKS for size in (block - 1, block, block + 1, block + 8)))
"""Sizes to which an axis may be reduced, the smallest first: small numbers, then numbers near block sizes."""


class _SpentError(Exception):
    """Exception for a search that has reached one of the limits TRIALS and WORK."""


class _Search:
    """A search for a smaller failing call.

    Attributes:
        call: the smallest failing call so far.
    """

    def __init__(self, call: AttentionCall, fails: Callable[[AttentionCall], bool]) -> None:
        """Start from a failing call; ``fails`` returns whether another call fails in the same way."""
        self.call = call
        self._fails = fails
        self._left, self._work = TRIALS, WORK

    def run(self) -> None:
        """Reduce options, sizes, masks and numbers until nothing can be reduced further.

        Raises:
            _SpentError: the limits of calls or of work are reached before the search ends.
        """
        changed = True
        while changed:
            large = work_of(self.call) > FEW and self.call.state not in LONG_STATES
            steps = (self._reduce_sizes, self._reduce_options) if large else (self._reduce_options, self._reduce_sizes)
            changed = sum(step() for step in (*steps, self._reduce_masks, self._round)) > 0

    def _accept(self, candidate: AttentionCall) -> bool:
        """Return whether the candidate fails, and if so keep it as the smallest failing call so far."""
        self._left -= 1
        self._work -= work_of(candidate)
        self._work -= WORK_OF_LONG_STATE if candidate.state in (*LONG_STATES, State.REPLAYED) else 0
        if self._left < 0 or self._work < 0:
            raise _SpentError
        fails = self._fails(candidate)
        if fails:
            self.call = candidate
        return fails

    def _repeat(self, candidates: Callable[[AttentionCall], Iterator[AttentionCall]]) -> bool:
        """Replace the call by its first failing candidate until no candidate fails; return whether the call changed."""
        changed = False
        while any(self._accept(candidate) for candidate in candidates(self.call)):
            changed = True
        return changed

    def _reduce_options(self) -> bool:
        return self._repeat(_without_options)

    def _reduce_masks(self) -> bool:
        return self._repeat(_with_less_hidden)

    def _round(self) -> bool:
        return self._repeat(_rounder)

    def _reduce_sizes(self) -> bool:
        """Halve each axis while the call fails, then reduce each as far as possible; return whether any size changed.

        The axes T and L, and E and M, are reduced together as long as their sizes are equal.
        """
        changed = False
        for step in (self._halve, self._reduce):
            for axes in ("TL", "T", "L", "B", "G", "H", "EM", "E", "M"):
                if axes == "H":
                    changed |= self._repeat(_with_fewer_heads)
                else:
                    while step(axes):
                        changed = True
        return changed

    def _halve(self, axes: str) -> bool:
        """Return whether the call still fails with half of the entries of the given axes, and if so keep that call."""
        size = self.call.sizes[axes[0]]
        return size > 1 and _may_cut(self.call, axes) and self._cut(axes, size // 2)

    def _reduce(self, axes: str) -> bool:
        """Reduce the size of the axes to the smallest of :data:`SIZES` at which the call fails, then bisect further."""
        size = self.call.sizes[axes[0]]
        if size == 1 or not _may_cut(self.call, axes):
            return False
        passing, failing = 0, size
        for keep in (keep for keep in SIZES if keep < size):
            if self._cut(axes, keep):
                failing = keep
                break
            passing = keep
        while failing - passing > 1:
            middle = (failing + passing) // 2
            if self._cut(axes, middle):
                failing = middle
            else:
                passing = middle
        return failing < size

    def _cut(self, axes: str, keep: int) -> bool:
        """Return whether the call fails with only the first or last ``keep`` entries of the axes; keep it if so."""
        return any(self._accept(candidate) for candidate in _cuts(self.call, axes, keep))


def smallest_failing(call: AttentionCall, fails: Callable[[AttentionCall], bool]) -> AttentionCall:
    """Return a small call for which ``fails`` is true.

    Unless the search reaches its limits, leaving out any single option of the returned call makes the call pass, and so
    does reducing any single size to a smaller one of :data:`SIZES` or to the next smaller number.

    Args:
        call: the failing call.
        fails: returns whether another call fails in the same way.
    """
    search = _Search(call, fails)
    with suppress(_SpentError):
        search.run()
    return search.call.replace(name="generated")


def work_of(call: AttentionCall) -> int:
    """Return the number of multiplications in the matrix products of the call's forward pass."""
    sizes = call.sizes
    return sizes["B"] * sizes["H"] * sizes["L"] * sizes["T"] * (sizes["E"] + sizes["M"])


def _without_options(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield the call with all its options switched off, then with each single option switched off."""
    on = [name for name, value in NEUTRAL.items() if np.ndim(getattr(call, name)) or getattr(call, name) != value]
    # ``exact`` (a kernel rounds nothing) stays on at first, since it is also true of the call without its options.
    without = [name for name in on if name != "exact"]
    if len(without) > 1:
        yield call.replace(**{name: NEUTRAL[name] for name in without})
    if call.state in LONG_STATES:
        yield call.replace(**{name: NEUTRAL[name] for name in without if name != "state"})
    for name in on:
        yield call.replace(**{name: NEUTRAL[name]})


def _may_cut(call: AttentionCall, axes: str) -> bool:
    """Return whether the size of one axis, or of two axes together, may be reduced.

    Two axes are reduced together only if their sizes are equal. With causality or a window, L = T is kept, since
    kernels place the diagonal differently for L ≠ T. Under dropout, values must stay the identity.
    """
    sizes = call.sizes
    square = sizes["L"] == sizes["T"] and (call.causal or call.window is not None)
    if len(axes) > 1:
        return sizes[axes[0]] == sizes[axes[1]] and not call.dropout and not (call.exact and axes == "EM")
    return not (square and axes in ("T", "L")) and not (call.dropout and axes in ("T", "M"))


def _cuts(call: AttentionCall, axes: str, keep: int) -> Iterator[AttentionCall]:
    """Yield the call with only the first, and then with only the last, ``keep`` entries of the given axes."""
    size = call.sizes[axes[0]]
    if ("T" in axes and not _may_have(call, keep)) or (call.exact and axes == "E" and keep != EXACT_WIDTH):
        return
    for places in (slice(0, keep), slice(size - keep, size)) if axes[0] in "TLBG" else (slice(0, keep),):
        cut = call
        for axis in axes:
            cut = cut_call(cut, axis, places)
        yield cut


EXACT_WIDTH = 2
"""The only width to which queries and keys of an exact call are reduced: others may separate products that cancel."""


def _with_fewer_heads(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield calls with only some heads of each group, since a fault may concern any head."""
    sizes = call.sizes
    group = sizes["H"] // sizes["G"]
    of_group = np.arange(sizes["H"]) % group
    for heads in _parts_of(group):
        yield cut_call(call, "H", np.flatnonzero(np.isin(of_group, heads)))


def _parts_of(size: int) -> Iterator[np.ndarray]:
    """Yield the indices of the first and the second half of an axis; if it is short, also all indices but one."""
    places = np.arange(size)
    if size > 1:
        yield from (places[: size // 2], places[size // 2 :])
    if 2 < size <= FEW_PLACES:
        yield from (np.delete(places, place) for place in places)


def _may_have(call: AttentionCall, keys: int) -> bool:
    """Return whether the keys of a call may be reduced to ``keys``: an exact call must still need no rounding."""
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
"""For each axis, the names of the tensors that have the axis; for G, heads are cut together with their groups."""
MASK_AXES = {"B": -4, "H": -3, "L": -2, "T": -1}


def cut_call(call: AttentionCall, axis: str, chosen_places: slice | np.ndarray) -> AttentionCall:
    """Return the call with only the chosen entries of an axis; for axis G, with only the heads of the chosen groups."""
    sizes = call.sizes
    tensors = {name: _take(getattr(call, name), AXES[axis], chosen_places) for name in HAVE[axis]}
    on_masks, given_places = axis, chosen_places
    if axis == "G":
        group = sizes["H"] // sizes["G"]
        chosen_places = (np.arange(sizes["G"])[chosen_places][:, None] * group + np.arange(group)).ravel()
        tensors |= {name: _take(getattr(call, name), 1, chosen_places) for name in HAVE["H"]}
        on_masks = "H"
    if on_masks in MASK_AXES:
        place = MASK_AXES[on_masks]
        for name in ("visible", "bias"):
            mask = getattr(call, name)
            if mask is not None and mask.ndim >= -place and mask.shape[place] > 1:
                tensors[name] = _take(mask, mask.ndim + place, chosen_places)
    for name, axes in FURTHER.items():
        for on_axis, places in {axis: given_places, on_masks: chosen_places}.items():
            if getattr(call, name) is not None and on_axis in axes:
                tensors[name] = _take(getattr(call, name), axes.index(on_axis), places)
    cut = call.replace(**tensors)
    if call.lengths is not None and axis in "LT":
        cut = cut.replace(lengths=np.minimum(call.lengths, (cut.sizes["L"], cut.sizes["T"])))
    return cut


def _take(x: np.ndarray, axis: int, places: slice | np.ndarray) -> np.ndarray:
    return x[(slice(None),) * axis + (places,)]


def _with_less_hidden(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield calls whose mask no longer hides keys at some indices of an axis: at all, half or all but one of them."""
    for name, nothing in (("visible", True), ("bias", 0.0)):
        mask = getattr(call, name)
        if mask is None:
            continue
        for axis in range(mask.ndim):
            across = tuple(other for other in range(mask.ndim) if other != axis)
            hiding = np.flatnonzero((mask != nothing).any(axis=across))
            for places in (np.arange(hiding.size), *_parts_of(hiding.size)) if hiding.size else ():
                changed = np.moveaxis(mask.copy(), axis, 0)
                changed[hiding[places]] = nothing
                yield call.replace(**{name: np.moveaxis(changed, 0, axis)})


def _rounder(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield calls with the numbers of one tensor rounded to integers."""
    if call.exact:
        return
    for name in ("query", "key", "value", "upstream"):
        x = getattr(call, name)
        if call.dropout and name == "value":
            continue
        if np.abs(x).max(initial=0.0) < 1e6 and not (x == np.round(x)).all():
            yield call.replace(**{name: np.round(x)})
