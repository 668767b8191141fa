"""A claim about the margins of p_mm itself: they are steady in the cone."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from theorems.bounded import exact, with_rounding
from theorems.core.claim import Claim, Form, at_least
from theorems.token_selection.local_paths.local_constants import LocalConstants


def margins_in_cone(constants: LocalConstants, points: Float64[np.ndarray, "m d"]) -> Claim:
    """In the cone no margin of p̃ = p‖p_mm‖/‖p‖ differs from that of p_mm by more than w_it, and w_it suffices.

    w_it ≤ ¼ for good tokens, ≤ (m_it − 1)/4 for harmful ones; both in one claim, worst token per point.
    """
    constants, others = constants.carrying, constants.others
    p, p_mm = exact(points), with_rounding(constants.solution.p)
    tilted = norm(p_mm) * p / norm(p, axis=1)[:, None] - p_mm
    beyond = np.where(constants.harmful, constants.beyond / 4, 0.25)[others]
    allowed = np.minimum(constants.tilt[others], beyond)
    return at_least("margins-in-cone", Form.EFFECTIVE, allowed, np.abs(tilted @ constants.rows[others].T))
