"""Faults in Definition 3: selected tokens, directional margin, directional neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.directions import Direction, direction
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Change = Callable[[Direction, Any, float], Direction]


@dataclass(frozen=True)
class ChangedDirection:
    """The reference's Definition 3, changed: (direction, keys, size) → direction."""

    change: Change
    size: float = 0.0

    def decide(self, keys: Any, q: Any) -> Direction:
        """As :func:`reference_attention.directions.direction`."""
        return self.change(direction(keys, q), keys, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", direction=ChangedDirection(self.change, size).decide)


def _near(found: Direction, keys: Any, size: float) -> Direction:
    return replace(found, neighbours=~found.selected & (found.margins <= (1 + size) * found.margin))


def _per_input(found: Direction, keys: Any, size: float) -> Direction:
    margins = np.where(found.selected, np.inf, found.margins)
    return replace(found, neighbours=np.isfinite(margins) & (margins == margins.min(axis=1, keepdims=True)))


def _ties_broken(found: Direction, keys: Any, size: float) -> Direction:
    first = np.argmax(found.selected, axis=1)
    return replace(found, selected=np.arange(keys.shape[1]) == first[:, None])


def _last_input(found: Direction, keys: Any, size: float) -> Direction:
    least = min((x for x in found.exact[-1] if x > 0), default=None)
    near = np.zeros_like(found.neighbours)
    near[-1] = [least is not None and x == least for x in found.exact[-1]]
    return replace(found, least=least, neighbours=near)


def _one_neighbour(found: Direction, keys: Any, size: float) -> Direction:
    near = np.zeros_like(found.neighbours)
    if found.neighbours.any():
        near[tuple(np.argwhere(found.neighbours)[0])] = True
    return replace(found, neighbours=near)


def _not_normalised(found: Direction, keys: Any, size: float) -> Direction:
    changed = replace(found)
    vars(changed)["norm"] = 1.0
    vars(changed)["margins"] = found.margins * found.norm
    return changed


def _second_margin(found: Direction, keys: Any, size: float) -> Direction:
    later = sorted({x for row in found.exact for x in row if x > 0})
    least = later[min(1, len(later) - 1)] if later else None
    near = np.array([[x == least for x in row] for row in found.exact])
    return replace(found, least=least, neighbours=near & ~found.selected)


def _saturate(found: Direction, keys: Any, size: float) -> Direction:
    sizes = np.clip(np.abs(found.q), np.finfo(np.float32).tiny, np.finfo(np.float32).max)
    return direction(keys, np.where(found.q == 0, 0.0, np.copysign(sizes, found.q)))


DIRECTION_FAULTS = (
    Fault(
        "neighbours-within-a-tolerance",
        Kind.DIRECTION,
        "whatever is within a share ε of the margin is a neighbour",
        "lemma-10",
        ChangedDirection(_near),
        0.25,
        "ε",
    ),
    Fault(
        "neighbours-per-input",
        Kind.DIRECTION,
        "the nearest tokens of each input instead of all",
        "lemma-10",
        ChangedDirection(_per_input),
    ),
    Fault(
        "ties-broken-by-argmax",
        Kind.DIRECTION,
        "of several selected tokens the first is reported",
        "lemma-10",
        ChangedDirection(_ties_broken),
    ),
    Fault(
        "margin-of-the-last-input",
        Kind.DIRECTION,
        "the margin is that of the last input alone",
        "lemma-10",
        ChangedDirection(_last_input),
    ),
    Fault(
        "neighbours-by-argmin",
        Kind.DIRECTION,
        "of several directional neighbours the first is reported",
        "lemma-10",
        ChangedDirection(_one_neighbour),
    ),
    Fault(
        "direction-not-normalised",
        Kind.DIRECTION,
        "margins of q instead of q/‖q‖",
        "lemma-8",
        ChangedDirection(_not_normalised),
    ),
    Fault(
        "second-margin",
        Kind.DIRECTION,
        "the second smallest margin for the smallest",
        "lemma-10",
        ChangedDirection(_second_margin),
    ),
    Fault(
        "direction-saturates",
        Kind.DIRECTION,
        "entries of q beyond the range of float32 are its smallest or largest",
        "lemma-8",
        ChangedDirection(_saturate),
    ),
)
"""Faults in Definition 3."""
