"""Points at which every optimal token leads by a given margin, and what the gradient is there.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 4 and 5; derivations in
:mod:`.descent_from_a_margin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.points import affordable, climb, directions, log_uniform
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.bounded import exact, in_floats, value_of
from theorems.token_selection.global_paths.margin_constants import MarginConstants

POINTS = 100
"""Points at which the bounds on the gradient are tried, before the search for worse ones."""
LEAST, MOST = 1e-3, 1e4
"""Margins beyond log((T − 1)A) at which they are tried."""
ASKEW = (1e-2, 1e3)
"""How far beside the ray of p_mm points lie, in units of ‖p_mm‖."""

POINT_CLAIMS = ("climbs-along-p_mm", "gradient-is-short", "softmin-of-margins", "correlation")
"""The claims of :func:`point_claims`."""


def with_least_margin(
    constants: MarginConstants, beside: Float64[np.ndarray, "m d"], margins: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """p = r p_mm + v for the v given (``beside``), of margin m(p) as asked for, a little more where that is rounded.

    min_j (r a_j + g_j·v) is the margin asked for at r = max_j (margin − g_j·v)/a_j, a_j = g_j·p_mm ≥ 1.
    """
    rows, p_mm = value_of(constants.rows), constants.svm.p
    a, wanted, points = np.maximum(rows @ p_mm, 1.0), margins, beside
    for doubled in range(60):
        r = np.max((wanted[:, None] - beside @ rows.T) / a, axis=1)
        points = r[:, None] * p_mm + beside
        short = ~np.asarray(constants.margins(exact(points)) >= margins)
        if not short.any():
            break
        more = 2.0**doubled * EPS * (1 + np.abs(margins) + norm(beside, axis=1) * norm(rows, axis=1).max())
        wanted = np.where(short, margins + more, wanted)
    return np.asarray(points)


def beside_the_ray(
    rng: np.random.Generator, constants: MarginConstants, sizes: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """Vectors of those lengths in units of ‖p_mm‖: in any direction, or for or against single rows."""
    rows, m = value_of(constants.rows), len(sizes)
    chosen = rows[rng.integers(len(rows), size=m)] * rng.choice([-1.0, 1.0], size=(m, 1))
    chosen = chosen / norm(chosen, axis=1, keepdims=True)
    mixed = directions(rng, m, rows.shape[1]) * rng.choice([0.1, 0.9], size=(m, 1))
    raw = np.where(rng.random((m, 1)) < 0.5, chosen + mixed, mixed)
    raw /= norm(raw, axis=1, keepdims=True)
    return np.asarray(raw * (sizes * constants.svm.norm)[:, None])


def point_claims(constants: MarginConstants, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """The bounds on −∇L wherever m(p) > log((T − 1)A), m(p) > 0; anywhere, not only along runs."""
    m = affordable(constants.problem, POINTS)
    sizes = log_uniform(rng, *ASKEW, m) * (rng.random(m) < 0.9)
    edge = float(value_of(constants.edge)) * (1 + 8 * EPS)
    wanted = edge + log_uniform(rng, LEAST, MOST, m)
    points = with_least_margin(constants, beside_the_ray(rng, constants, sizes), wanted)

    # Constants of its own: those of a search are plain floats.
    plain = MarginConstants(constants.problem, constants.svm)

    def violation(tried: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        with in_floats():
            sides = [(left, right) for left, right in _sides(plain, under_test, tried).values()]
            worst = np.max([(right - left) / np.abs(right) for left, right in sides], axis=0)
            return np.where(plain.margins(tried) <= edge, -np.inf, worst)

    points = climb(rng, points, violation)
    inside = np.asarray(constants.margins(exact(points)) > constants.edge)
    for name, (left, right) in _sides(constants, under_test, points[inside]).items():
        yield at_least(name, Form.EFFECTIVE, left, right)


def _sides(
    constants: MarginConstants, under_test: Implementation, points: Float64[np.ndarray, "m d"]
) -> dict[str, tuple[Any, Any]]:
    """Both sides of each bound, in units of the gradient at each point."""
    at = AttentionAt(constants.problem, points)
    descent, p = -at.gradient_of(under_test, POINT_CLAIMS[0]), exact(points)
    m, omega = constants.margins(p), constants.omega(at)
    q, along, outward = constants.missed(m), descent @ constants.p_mm, np.vecdot(descent, p)
    bounds = (
        (along, constants.share(m) * omega),
        ((1 + q) * constants.reach * omega, norm(descent, axis=-1)),
        ((m + constants.spread + np.log1p(q)) * omega, outward),
        (constants.correlation(p, m) * along / constants.length, outward / norm(p, axis=-1)),
    )
    return dict(zip(POINT_CLAIMS, bounds, strict=True))
