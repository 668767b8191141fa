"""A grid search for the point of lowest risk in a ball, for prompts of one or two dimensions and any loss or head.

The regularization path of :mod:`reference_attention.paths.regularization_path` relies on ℓ' < 0. This module makes no
assumption: it searches a grid over the ball, then finer grids around the best point. A path that is not where a theorem
predicts shows in a point of the ball whose risk is lower than the lowest risk found in the predicted region; that point
is the certificate, whatever the grids missed elsewhere.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 1 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.without.noisy_excess import EXCESS_RISK, Excess
from theorems.without.risks import Risk, difference, linear_risk
from theorems.without.slopes import lasting

Points = Float64[np.ndarray, "m d"]
Where = Callable[[Points, float], Bool[np.ndarray, "m"]]
"""Mask of the points of the ball of radius R that a theorem allows for p̄(R)."""

RHOS = (1e2, 1e4, 1e6)
"""Radii, in units of ‖p_mm‖, or of 1/(size of the keys) where p_mm does not exist."""
ANGLES = 180
FRACTIONS = np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 16), np.linspace(0.55, 1.0, 10)])
"""Norms of the first grid, in units of R."""
BEYOND_LOGS = 1e9
"""Larger than any |log (L − L_α)| at these radii."""
NEAR = 0.25
"""Distance from its limit, in units of R, that a path at radius 10² and more may have."""


@dataclass(frozen=True)
class Lowest:
    """The point of lowest risk that the search found.

    Attributes:
        p: the point, (d,).
        risk: L(p) − L_α there, shape (1,).
    """

    p: Float64[np.ndarray, "d"]
    risk: Excess


def near(*directions: Float64[np.ndarray, "d"]) -> Where:
    """Return the predicate ‖p/R − q̄‖ ≤ 1/4 for one of the directions."""
    units = np.array([q / np.linalg.norm(q) for q in directions])

    def within(points: Points, R: float) -> Bool[np.ndarray, "m"]:
        apart = points[:, None] / R - units
        return np.asarray((np.sum(apart * apart, axis=-1) <= NEAR**2).any(axis=1))

    return within


def far_out(points: Points, R: float) -> Bool[np.ndarray, "m"]:
    """Return the mask of the points with ‖p‖ ≥ R/2, where a path is whose norm grows like R."""
    return np.asarray(np.linalg.norm(points, axis=1) >= R / 2)


def path_claim(name: str, risk: Risk, d: int, unit: float, allowed: Where) -> Iterator[Claim]:
    """Claim that the lowest point of the ball lies in the region ``allowed``.

    The claim is violated if at each radius some point has lower risk than all allowed points. For more than two
    dimensions nothing is claimed.
    """
    if d > 2:
        return
    differences, reason = [], ""
    for R in (rho * unit for rho in RHOS):
        grid = _grid(d, R)
        anywhere = _refine(risk, grid, R, lambda points, _: np.ones(len(points), dtype=bool))
        lowest = _refine(risk, grid, R, allowed)
        differences.append(difference(anywhere.risk, lowest.risk))
        reason = (
            f"at R = {R:g} the lowest point found is {_text(anywhere.p)}, of those the statement allows"
            f" {_text(lowest.p)}"
        )
    slack, error = (np.concatenate(x) for x in zip(*differences, strict=True))
    yield lasting(name, Form.LIMIT, (slack, error), EXCESS_RISK, reason)


def path_diverges(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that the norm of p̄(R) grows with R, as it does where p_mm exists."""
    problem = case.problem
    yield from path_claim("path-diverges", linear_risk(problem, under_test), problem.d, 1 / problem.key_scale, far_out)


def _grid(d: int, R: float) -> Points:
    if d == 1:
        return np.concatenate([-FRACTIONS[::-1, None], FRACTIONS[:, None]]) * R
    angles = np.arange(ANGLES) * (2 * np.pi / ANGLES)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray((FRACTIONS[:, None, None] * circle).reshape(-1, 2) * R)


def _refine(risk: Risk, grid: Points, R: float, allowed: Where) -> Lowest:
    """Return the best allowed point of the grid, then of ever finer ones around it."""
    best = _best(risk, grid[allowed(grid, R)])
    around = np.stack(np.meshgrid(*[np.arange(-4.0, 5.0)] * grid.shape[1]), axis=-1).reshape(-1, grid.shape[1])
    step = R / 16
    while step > R * 1e-9:
        points = best.p + step * around
        points = points[(np.linalg.norm(points, axis=1) <= R) & allowed(points, R)]
        if len(points):
            best = _best(risk, np.concatenate([best.p[None], points]))
        step /= 3
    return best


def _best(risk: Risk, points: Points) -> Lowest:
    excess = risk(points)
    # Larger logarithms are larger risks where L > L_α, smaller ones where L < L_α.
    order = excess.sign * (np.where(np.isfinite(excess.log_size), excess.log_size, -BEYOND_LOGS) + BEYOND_LOGS)
    k = int(np.argmin(order))
    return Lowest(points[k], Excess(*(x[k : k + 1] for x in (excess.sign, excess.log_size, excess.log_noise))))


def _text(p: Float64[np.ndarray, "d"]) -> str:
    return "(" + ", ".join(f"{x:.6g}" for x in p + 0.0) + ")"
