"""The claim that two evaluations of one quantity agree."""

from __future__ import annotations

from typing import Any

import numpy as np

from theorems.bounded import Bounded, exact
from theorems.core.claim import Claim, Form, at_least


def equal(name: str, left: Any, right: Any, *, points: str = "point") -> Claim:
    """The claim left = right at every entry, an identity up to the rounding that the two sides carry.

    What is the same number on both sides, and exact, says nothing about how near the others are: it is left out, unless
    there is nothing else.

    Args:
        left, right: arrays that broadcast against each other, at least one of them
            :class:`theorems.bounded.Bounded`.
        points: what an entry is, for the detail line.
    """
    sides = np.broadcast_arrays(*(x if isinstance(x, Bounded) else exact(x) for x in (left, right)))
    decided = sides[0] == sides[1]
    left, right = sides if decided.all() else (side[~decided] for side in sides)
    return at_least(name, Form.EXACT, np.concatenate([left, right]), np.concatenate([right, left]), points=points)
