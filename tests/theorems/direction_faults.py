"""Planted faults in Definition 3: implementations whose directions are wrong in one way each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from attention.directions import Direction, direction
from attention.implementation import REFERENCE, Implementation

Change = Callable[[Direction, Any], Direction]


def _fault(name: str, change: Change) -> Implementation:
    return REFERENCE.but(name, direction=lambda keys, q: change(direction(keys, q), keys))


def _neighbours_by_tolerance(found: Direction, keys: Any) -> Direction:
    """Whatever is within a quarter of the margin counts as a directional neighbour."""
    near = ~found.selected & (found.margins <= 1.25 * found.margin)
    return replace(found, neighbours=near)


def _neighbours_per_input(found: Direction, keys: Any) -> Direction:
    """The nearest tokens of each input, instead of the nearest of all inputs."""
    margins = np.where(found.selected, np.inf, found.margins)
    return replace(found, neighbours=np.isfinite(margins) & (margins == margins.min(axis=1, keepdims=True)))


def _ties_broken(found: Direction, keys: Any) -> Direction:
    """argmax: of several selected tokens only the first is reported."""
    first = np.argmax(found.selected, axis=1)
    return replace(found, selected=np.arange(keys.shape[1]) == first[:, None])


def _last_input_ignored(found: Direction, keys: Any) -> Direction:
    """The margin is that of the last input alone."""
    least = min((x for x in found.exact[-1] if x > 0), default=None)
    near = np.zeros_like(found.neighbours)
    near[-1] = [least is not None and x == least for x in found.exact[-1]]
    return replace(found, least=least, neighbours=near)


def _one_neighbour(found: Direction, keys: Any) -> Direction:
    """argmin: of several directional neighbours only the first is reported."""
    near = np.zeros_like(found.neighbours)
    if found.neighbours.any():
        near[tuple(np.argwhere(found.neighbours)[0])] = True
    return replace(found, neighbours=near)


def _not_normalised(found: Direction, keys: Any) -> Direction:
    """Margins of q instead of those of q/‖q‖."""
    changed = replace(found)
    vars(changed)["norm"] = 1.0
    vars(changed)["margins"] = found.margins * found.norm
    return changed


def _next_margin(found: Direction, keys: Any) -> Direction:
    """The second smallest margin for the smallest."""
    later = sorted({x for row in found.exact for x in row if x > 0})
    least = later[min(1, len(later) - 1)] if later else None
    near = np.array([[x == least for x in row] for row in found.exact])
    return replace(found, least=least, neighbours=near & ~found.selected)


DIRECTION_FAULTS: dict[str, Implementation] = {
    fault.name: fault
    for fault in (
        _fault("neighbours-within-a-tolerance", _neighbours_by_tolerance),
        _fault("neighbours-per-input", _neighbours_per_input),
        _fault("ties-broken-by-argmax", _ties_broken),
        _fault("margin-of-the-last-input", _last_input_ignored),
        _fault("neighbours-by-argmin", _one_neighbour),
        _fault("direction-not-normalised", _not_normalised),
        _fault("second-margin", _next_margin),
    )
}
"""Faults in selected tokens, directional margin or directional neighbours."""
