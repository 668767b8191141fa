"""A curve of prompts p with its limit direction, as reports draw it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from max_margin_theorems.papers import papers
from reference_attention.angles import one_minus_cosine

Points = Float64[np.ndarray, "k d"]
Direction = Float64[np.ndarray, "d"]


@dataclass(frozen=True, eq=False)
class Limit:
    """A curve of prompts p and its limit direction.

    Attributes:
        curve, limit: the names of the curve and of the limit direction.
        data: the name of the data set.
        points: the prompts p in the order of the curve, with increasing norms, (k, d).
        direction: the limit direction, a unit vector, (d,).
        predicted: the limit of the distance of p from the ray in the limit direction; None if no formula gives it.
    """

    curve: str
    limit: str
    data: str
    points: Points
    direction: Direction
    predicted: float | None = None

    @property
    def norms(self) -> Float64[np.ndarray, "k"]:
        """The norms ‖p‖ of the points, (k,)."""
        return np.asarray(np.linalg.norm(self.points, axis=1))

    @property
    def across(self) -> Points:
        """The parts of the points p orthogonal to the limit direction, (k, d)."""
        return np.asarray(self.points - (self.points @ self.direction)[:, None] * self.direction)

    @property
    def offset(self) -> Float64[np.ndarray, "k"]:
        """The distances of the points p from the line through 0 in the limit direction, (k,)."""
        return np.asarray(np.linalg.norm(self.across, axis=1))

    @property
    def one_minus_cosine(self) -> float:
        """The number 1 − cos∠(p, limit direction) at the last point."""
        return one_minus_cosine(self.points[-1], self.direction)

    @property
    def plane(self) -> Points:
        """The coordinates of p along the limit, and along the orthogonal direction of largest deviation, (k, 2)."""
        strays = self.across[np.argmax(self.offset)]
        size = np.linalg.norm(strays)
        beside = self.across @ (strays / size) if size > 0 else np.zeros(len(self.points))
        return np.column_stack([self.points @ self.direction, beside])


def limits() -> dict[str, Callable[[], Limit]]:
    """Return the functions of all papers that compute the curves for reports, by the id of the statement."""
    return {id: draw for paper in papers() for id, draw in paper.mapping_at(paper.limits).items()}
