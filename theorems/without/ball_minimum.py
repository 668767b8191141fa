"""Grid search for the point of lowest risk in a ball, for prompts of one or two dimensions and any loss or head.

The regularization path p̄(R), the prompt of lowest risk with norm at most R, is computed in
:mod:`reference_attention.paths.regularization_path` for losses with ℓ' < 0. This module makes no assumption: it
searches a grid over the ball ‖p‖ ≤ R, then finer grids around the best point. If a point of the ball has a lower risk
than the lowest risk in the region that a theorem predicts, p̄(R) is not in this region.

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
"""Function of points and a radius R; it returns the mask of the points at which a theorem allows p̄(R), the point of
lowest risk, to be."""

RHOS = (1e2, 1e4, 1e6)
"""Radii R of the balls, in units of ‖p_mm‖, or of about 1/(largest |entry| of the keys) if p_mm does not exist."""
ANGLES = 180
FRACTIONS = np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 16), np.linspace(0.55, 1.0, 10)])
"""Norms of the points of the first grid, in units of the ball's radius R."""
BEYOND_LOGS = 1e9
"""Number larger than any |log |L − L_α|| at the radii :data:`RHOS`, where L_α is the risk if the chosen tokens α are
selected."""
NEAR = 0.25
"""Largest distance that is allowed between p̄(R)/R, at the radii R of :data:`RHOS`, and its limit."""


@dataclass(frozen=True)
class Lowest:
    """Point of lowest risk that the search found.

    Attributes:
        p: the point, (d,).
        risk: the risk L(p) at this point minus the risk L_α if the tokens α are selected, shape (1,).
    """

    p: Float64[np.ndarray, "d"]
    risk: Excess


def near(*directions: Float64[np.ndarray, "d"]) -> Where:
    """Return a predicate of points p and a radius R: that ‖p/R − q/‖q‖‖ ≤ 1/4 for at least one of the directions q."""
    units = np.array([q / np.linalg.norm(q) for q in directions])

    def within(points: Points, R: float) -> Bool[np.ndarray, "m"]:
        apart = points[:, None] / R - units
        return np.asarray((np.sum(apart * apart, axis=-1) <= NEAR**2).any(axis=1))

    return within


def far_out(points: Points, R: float) -> Bool[np.ndarray, "m"]:
    """Return the mask of points with norm at least R/2; p̄(R) is such a point at large R if ‖p̄(R)‖ grows like R."""
    return np.asarray(np.linalg.norm(points, axis=1) >= R / 2)


def path_claim(name: str, risk: Risk, d: int, unit: float, allowed: Where) -> Iterator[Claim]:
    """Claim that the point of lowest risk with norm at most R lies in the region ``allowed``.

    The radii R are :data:`RHOS` times ``unit``. The claim is violated if at every radius some point has a lower risk
    than all allowed points. No claim is made in more than two dimensions.
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
            f"at R = {R:g} the point of lowest risk found is {_text(anywhere.p)}; among points that the statement"
            f" allows it is {_text(lowest.p)}"
        )
    slack, error = (np.concatenate(x) for x in zip(*differences, strict=True))
    yield lasting(name, Form.LIMIT, (slack, error), EXCESS_RISK, reason)


def path_diverges(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that ‖p̄(R)‖ grows like R, as it does if p_mm exists (p̄(R): best point with norm ≤ R)."""
    problem = case.problem
    yield from path_claim("path-diverges", linear_risk(problem, under_test), problem.d, 1 / problem.key_scale, far_out)


def _grid(d: int, R: float) -> Points:
    if d == 1:
        return np.concatenate([-FRACTIONS[::-1, None], FRACTIONS[:, None]]) * R
    angles = np.arange(ANGLES) * (2 * np.pi / ANGLES)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray((FRACTIONS[:, None, None] * circle).reshape(-1, 2) * R)


def _refine(risk: Risk, grid: Points, R: float, allowed: Where) -> Lowest:
    """Return the allowed point of lowest risk, on the grid and then on finer and finer grids around the best point."""
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
    # A larger log |L − L_α| means a larger risk where L > L_α, and a smaller risk where L < L_α.
    order = excess.sign * (np.where(np.isfinite(excess.log_size), excess.log_size, -BEYOND_LOGS) + BEYOND_LOGS)
    k = int(np.argmin(order))
    return Lowest(points[k], Excess(*(x[k : k + 1] for x in (excess.sign, excess.log_size, excess.log_noise))))


def _text(p: Float64[np.ndarray, "d"]) -> str:
    return "(" + ", ".join(f"{x:.6g}" for x in p + 0.0) + ")"
