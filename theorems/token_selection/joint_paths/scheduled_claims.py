"""p(c), the limit along r = cR, is what its program says: p_mm at c = 0, p_relax from c* on, best in between.

p(c) maximises τ(p, c) = min( min_{i∈S} m_i, min_{i∉S} m_i + c slack_i ) over unit vectors with m_i ≥ 0, where m_i =
min_t (k_iα − k_it)·p; :mod:`reference_attention.paths.scheduled_direction`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.statement import always
from theorems.core.tolerances import tolerance
from theorems.token_selection.joint_paths.joint_sublevel import JointSetup

SCHEDULED = tolerance(
    "scheduled-direction",
    "2⁻²⁶ max|k_iα − k_it|",
    "non-negative least squares tells feasible from not by a residual, whose square is what float64 resolves",
)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)
"""c/c* at which it is looked at."""


SCHEDULED_CLAIMS = always("scheduled-direction-is-best", "scheduled-direction-in-quadrant") | dict.fromkeys(
    ("critical-ratio-suffices", "critical-ratio-is-needed"),
    "some non-support is in the way of p_relax: c* > 0 by more than the rounding of margins",
)
"""The claims of :func:`scheduled_claims`, and when they are made."""


def scheduled_claims(setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """Feasible, and no worse than p_mm, p_relax and what lies between; c* is where p_relax begins to be best."""
    joint = setup.joint
    critical = under_test.critical_ratio(joint, setup.target)
    towards, start = setup.separator.p - setup.target.p, setup.target.p
    others = np.array([start + share * towards for share in np.linspace(0.0, 1.0, 9)])
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    found, best, lowest = [], [], []
    for share in SHARES:
        p = under_test.scheduled_direction(joint, share * critical)[None]
        found.append(_tau(setup, p, share * critical)[0])
        best.append(_tau(setup, others, share * critical).max())
        lowest.append(_margins(setup, p).min())
    allowed = 2.0**-26 * joint.longest_row
    yield _claim("scheduled-direction-is-best", np.array(found), np.array(best), allowed)
    yield _claim("scheduled-direction-in-quadrant", np.array(lowest), np.zeros(len(SHARES)), allowed)
    # A unit vector's margin is a sum of k rounded products of rounded factors. Where half of Θ − ρ_i is not more, as
    # where the rows of i are those of a support but for a rounding, floats do not tell on which side of c* a ratio is.
    margin_rounding = 2 * (towards.size + 4) * EPS * joint.longest_row
    spare = joint.svm.slack[~joint.svm.support]
    if critical * spare.min(initial=math.inf) / 2 > 4 * margin_rounding:
        relaxed = setup.target.direction[None]
        # At c*, p_relax is feasible for its own margin; below, some non-support is in its way.
        at, below = (_tau(setup, relaxed, share * critical)[0] for share in (1.0, 0.5))
        theta = setup.target.margin
        yield _claim("critical-ratio-suffices", np.array([at]), np.array([theta]), allowed)
        yield _claim("critical-ratio-is-needed", np.array([theta]), np.array([below + margin_rounding]), 0.0)


def _claim(name: str, left: Float64[np.ndarray, "m"], right: Float64[np.ndarray, "m"], allowed: float) -> Claim:
    return at_least(name, Form.EFFECTIVE, left, right, rounding=allowed, why=SCHEDULED, points="ratio")


def _margins(setup: JointSetup, p: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m n"]:
    rows = np.einsum("ntk,mk->mnt", setup.joint.rows, p)
    return np.asarray(np.min(np.where(setup.joint.others, rows, np.inf), axis=-1))


def _tau(setup: JointSetup, p: Float64[np.ndarray, "m k"], ratio: float) -> Float64[np.ndarray, "m"]:
    return np.asarray(np.min(_margins(setup, p) + ratio * setup.joint.svm.slack, axis=1))
