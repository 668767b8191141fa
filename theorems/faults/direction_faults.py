"""Faults in the objects of Definition 3, for a direction q: selected tokens, directional margin and neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.directions import Direction, direction
from reference_attention.loss import Array
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.DIRECTION)


@FAULTS.change(
    "neighbours-within-a-tolerance",
    "tokens up to 1 + ε times the margin count as neighbours",
    "lemma-10",
    direction,
    size=0.25,
)
def _tolerate(right: Direction, size: float, *arguments: Any) -> Direction:
    return replace(right, neighbours=~right.selected & (right.margins <= (1 + size) * right.margin))


@FAULTS.change(
    "neighbours-per-input",
    "the neighbours are the nearest tokens of each input, not of all inputs",
    "lemma-10",
    direction,
)
def _nearest_of_each_input(right: Direction, *arguments: Any) -> Direction:
    margins = np.where(right.selected, np.inf, right.margins)
    return replace(right, neighbours=np.isfinite(margins) & (margins == margins.min(axis=1, keepdims=True)))


@FAULTS.change("ties-broken-by-argmax", "only the first of several selected tokens is reported", "lemma-10", direction)
def _break_ties(right: Direction, keys: Array, q: Array) -> Direction:
    first = np.argmax(right.selected, axis=1)
    return replace(right, selected=np.arange(keys.shape[1]) == first[:, None])


@FAULTS.change("margin-of-the-last-input", "the margin is that of the last input alone", "lemma-10", direction)
def _take_last_input(right: Direction, *arguments: Any) -> Direction:
    least = min((x for x in right.exact[-1] if x > 0), default=None)
    near = np.zeros_like(right.neighbours)
    near[-1] = [least is not None and x == least for x in right.exact[-1]]
    return replace(right, least=least, neighbours=near)


@FAULTS.change(
    "neighbours-by-argmin", "only the first of several directional neighbours is reported", "lemma-10", direction
)
def _keep_first_neighbour(right: Direction, *arguments: Any) -> Direction:
    near = np.zeros_like(right.neighbours)
    if right.neighbours.any():
        near[tuple(np.argwhere(right.neighbours)[0])] = True
    return replace(right, neighbours=near)


@FAULTS.change("direction-not-normalised", "margins are those of q, not of q/‖q‖", "lemma-8", direction)
def _leave_unnormalised(right: Direction, *arguments: Any) -> Direction:
    changed = replace(right)
    vars(changed)["norm"] = 1.0
    vars(changed)["margins"] = right.margins * right.norm
    return changed


@FAULTS.change("second-margin", "the second smallest margin is taken for the smallest", "lemma-10", direction)
def _take_second_margin(right: Direction, *arguments: Any) -> Direction:
    later = sorted({x for row in right.exact for x in row if x > 0})
    least = later[min(1, len(later) - 1)] if later else None
    near = np.array([[x == least for x in row] for row in right.exact])
    return replace(right, least=least, neighbours=near & ~right.selected)


@FAULTS.change(
    "direction-saturates", "entries of q outside the range of float32 are clipped to it", "lemma-8", direction
)
def _saturate(right: Direction, keys: Array, q: Array) -> Direction:
    sizes = np.clip(np.abs(right.q), np.finfo(np.float32).tiny, np.finfo(np.float32).max)
    return direction(keys, np.where(right.q == 0, 0.0, np.copysign(sizes, right.q)))
