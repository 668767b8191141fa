"""Flows through given points."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow


def flow_through(points: ArrayLike, norms: ArrayLike) -> Flow:
    """Return a flow recorded at the given norms, whatever the norms of its points; its other fields are unknown."""
    at = np.array(norms, dtype=np.float64)
    unknown = np.full(len(at), np.nan)
    return Flow(
        np.array(points, dtype=np.float64),
        at,
        unknown,
        unknown,
        unknown,
        unknown,
        Stop.NORM,
        "",
        "",
        0.0,
        0.0,
        0,
        lambda: unknown,
    )
