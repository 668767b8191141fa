"""Points with a given margin, on the ray of p_mm and beside it, at which bounds of Theorem 2 are checked.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.bounded import exact, value_of
from theorems.core.points import affordable, directions, log_uniform
from theorems.rounding.attention_at import Numbers

POINTS = 100
"""The number of points at which a bound is checked, before a search for points where it is closer to failing."""
LEAST, MOST = 1e-3, 1e4
"""The least and the largest difference between the margin of a point and :attr:`Margins.edge`."""
ASKEW_POINTS = (1e-2, 1e3)
"""The least and the largest distance from the ray of p_mm of the points at which bounds are checked, in units of
‖p_mm‖."""
ASKEW = (0.0, 1.0, 30.0)
"""The distances from the ray of p_mm of the starts of descents, in units of ‖p_mm‖."""
FARTHEST = 1e9
"""The largest product of ‖p(0)‖ and the norm of the longest row for a start p(0) beside the ray; at this product the
rounding of 200 steps changes a margin by 1e-4."""


@runtime_checkable
class Margins(Protocol):
    """The margin m(p) = min g_it·p of optimal tokens, with constants; the rows are g_it = k_i,opt − k_it, t ≠ opt_i."""

    @property
    def problem(self) -> Problem:
        """The problem: keys, scores and loss."""

    @property
    def svm(self) -> MaxMargin:
        """The solution p_mm of ATT-SVM for the optimal tokens."""

    @property
    def rows(self) -> Numbers:
        """The rows g_it of all inputs i and tokens t ≠ opt_i, (N, d)."""

    @property
    def reach(self) -> Numbers:
        """The largest norm of a row, max ‖g_it‖."""

    @property
    def edge(self) -> Numbers:
        """The margin m(p) beyond which ⟨−∇L(p), p_mm⟩ is proven to be positive."""

    @property
    def needed(self) -> Numbers:
        """The margin m(p(0)) that the start of a descent needs."""

    def margins(self, p: Any) -> Numbers:
        """Return the margins m(p) of points p, (*b, d) → (*b,)."""


def with_least_margin(
    constants: Margins, beside: Float64[np.ndarray, "m d"], margins: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """Return points p = r p_mm + v, for each v in ``beside``, whose margins m(p) are the given ones, or slightly more.

    With the rows g_j and a_j = g_j·p_mm ≥ 1, the margin min_j (r a_j + g_j·v) is the given one at r = max_j (margin −
    g_j·v)/a_j.
    """
    rows, p_mm = value_of(constants.rows), constants.svm.p
    a, targets, points = np.maximum(rows @ p_mm, 1.0), margins, beside
    for doubled in range(60):
        r = np.max((targets[:, None] - beside @ rows.T) / a, axis=1)
        points = r[:, None] * p_mm + beside
        short = ~np.asarray(constants.margins(exact(points)) >= margins)
        if not short.any():
            break
        more = 2.0**doubled * EPS * (1 + np.abs(margins) + norm(beside, axis=1) * norm(rows, axis=1).max())
        targets = np.where(short, margins + more, targets)
    return np.asarray(points)


def beside_the_ray(
    rng: np.random.Generator, constants: Margins, sizes: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """Draw vectors with the given lengths in units of ‖p_mm‖, in any direction or near ± a single row."""
    rows, m = value_of(constants.rows), len(sizes)
    chosen = rows[rng.integers(len(rows), size=m)] * rng.choice([-1.0, 1.0], size=(m, 1))
    chosen = chosen / norm(chosen, axis=1, keepdims=True)
    mixed = directions(rng, m, rows.shape[1]) * rng.choice([0.1, 0.9], size=(m, 1))
    raw = np.where(rng.random((m, 1)) < 0.5, chosen + mixed, mixed)
    raw /= norm(raw, axis=1, keepdims=True)
    return np.asarray(raw * (sizes * constants.svm.norm)[:, None])


def starts_with_margin(case: Case, constants: Margins, rng: np.random.Generator) -> Float64[np.ndarray, "b d"]:
    """Return starts of the needed margin on and beside the ray of p_mm, and the case's start if its margin suffices."""
    least_margin = constants.needed
    least = np.full(len(ASKEW), float(value_of(least_margin) + least_margin.error))
    starts = with_least_margin(constants, beside_the_ray(rng, constants, np.array(ASKEW)), least)
    # Starts far from the ray are left out, because rounding of p would exceed the margin of a long row. The first
    # start, on the ray, is kept.
    near = norm(starts, axis=1) * float(value_of(constants.reach)) <= FARTHEST
    starts = starts[near | (np.arange(len(starts)) == 0)]
    if case.start is not None and bool(constants.margins(exact(case.start)) >= least_margin):
        starts = np.concatenate([case.start[None], starts])
    return starts


def points_with_margin(constants: Margins, rng: np.random.Generator) -> Float64[np.ndarray, "m d"]:
    """Draw points on and beside the ray of p_mm whose margins exceed ``constants.edge`` by little or by much."""
    m = affordable(constants.problem, POINTS)
    sizes = log_uniform(rng, *ASKEW_POINTS, m) * (rng.random(m) < 0.9)
    edge = float(value_of(constants.edge)) * (1 + 8 * EPS)
    targets = edge + log_uniform(rng, LEAST, MOST, m)
    beside = beside_the_ray(rng, constants, sizes)
    # One point in four has equal margins for all tokens, if the rows allow it. Then the token of the largest softmax
    # weight can be another token than that of the largest score gap.
    alike = np.linalg.pinv(value_of(constants.rows)).sum(axis=1)
    beside = np.where(rng.random((m, 1)) < 0.25, targets[:, None] * alike, beside)
    return with_least_margin(constants, beside, targets)
