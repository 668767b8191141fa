"""The claim that two computations of the same quantity agree."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import Bounded, exact
from theorems.core.claim import Claim, Form, at_least


def equal(name: str, left: Any, right: Any, *, points: str = "point") -> Claim:
    """Return the claim that left = right at every entry, up to the rounding error that the two sides carry.

    Entries with exactly equal sides do not show how near the claim is to failing; they are left out unless the sides
    are equal at all entries.

    Args:
        name: the name of the claim.
        left: an array. At least one of ``left`` and ``right`` is :class:`theorems.bounded.Bounded`.
        right: an array that broadcasts against ``left``.
        points: a noun for the entries, used in the claim's ``detail``.
    """
    sides = np.broadcast_arrays(*(x if isinstance(x, Bounded) else exact(x) for x in (left, right)))
    decided = sides[0] == sides[1]
    left, right = sides if decided.all() else (side[~decided] for side in sides)
    return at_least(name, Form.EXACT, np.concatenate([left, right]), np.concatenate([right, left]), points=points)
