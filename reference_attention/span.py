"""The span of the key differences, in which every step of training lies.

Risk and gradient depend on p only through the logit differences (k_it − k_iu)·p, and every gradient is a combination of
the rows k_it − k_iu. So a descent or flow from p(0) stays in the sum of p(0) and the span of these rows, however large
d is. :func:`span_of` gives k coordinates of the span, in which matrices are k × k instead of d × d. Only searches and
integrations use these coordinates; claims about the resulting points are evaluated on the keys themselves, so no claim
depends on a basis.

Source: the update of gradient descent, *Max-Margin Token Selection in Attention Mechanism*, (GD); A. Björck, *Numerical
Methods for Least Squares Problems*, 1996 (Householder's method bounds the error of each column by its own length).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

WIDE = 64
"""Largest d for which d × d matrices cost no more than the function calls themselves, so that coordinates save
nothing."""


@dataclass(frozen=True, eq=False)
class Span:
    """A subspace with orthonormal coordinates: p = Q y + r has the coordinates y if r is orthogonal to Q's columns.

    Attributes:
        basis: Q, whose orthonormal columns span the subspace, (d, k).
    """

    basis: Float64[np.ndarray, "d k"]

    def coordinates(self, points: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b k"]:
        """Return the coordinates Qᵀp of points, (*b, k)."""
        return np.asarray(points @ self.basis)

    def points(self, coordinates: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b d"]:
        """Return the points Q y with the given coordinates y, (*b, d)."""
        return np.asarray(coordinates @ self.basis.T)

    def moved(
        self, start: Float64[np.ndarray, "d"], coordinates: Float64[np.ndarray, "*b k"]
    ) -> Float64[np.ndarray, "*b d"]:
        """Return points (*b, d) with the given coordinates and the part of ``start`` that is orthogonal to the span."""
        return np.asarray(start + self.points(coordinates - self.coordinates(start)))


def span_of(keys: Float64[np.ndarray, "n T d"], *further: Float64[np.ndarray, "d"]) -> Span | None:
    """Return the span of the key differences and of further vectors; None if it is too large to save computation.

    The rank of the rows is not decided. A row that depends on other rows leaves a residual of rounding errors, and the
    column for this residual corrects rounding errors of the other columns. The rows are the edges of a shortest
    spanning tree of each input's keys. So the difference of two nearly equal keys is a sum of edges no longer than the
    difference itself, and keeps its relative precision.

    Args:
        keys: (n, T, d).
        further: vectors that the span has to contain, such as a start or an axis.
    """
    n, tokens, d = keys.shape
    if not is_thin(n * (tokens - 1) + len(further), d):
        return None
    return span_of_rows(np.concatenate([_shortest_edges(keys).reshape(-1, d), *(x[None] for x in further)]))


def span_of_rows(rows: Float64[np.ndarray, "m d"]) -> Span | None:
    """Return the span of the given rows; None if it is too large to save computation (:func:`is_thin`)."""
    if not is_thin(*rows.shape):
        return None
    return Span(np.linalg.qr(_scaled_rows(rows).T)[0])


def differences_to_first(keys: Float64[np.ndarray, "n T d"]) -> Float64[np.ndarray, "m d"]:
    """Return k_it − k_i0 for all i and t > 0, (n (T − 1), d); these rows span all key differences."""
    return np.asarray((keys[:, 1:] - keys[:, :1]).reshape(-1, keys.shape[2]))


def is_thin(m: int, d: int) -> bool:
    """Return whether d is large and at least 2m, so that coordinates in the span of m rows save computation."""
    return d > WIDE and 2 * m <= d


def thin_tangents(
    axis: Float64[np.ndarray, "d"], rows: Float64[np.ndarray, "m d"]
) -> Float64[np.ndarray, "d e"] | None:
    """Return an orthonormal basis of the part of the rows' span orthogonal to a unit vector, and one more column.

    The last column is orthogonal to the rows and to the axis. Quantities that depend only on norms and on products with
    the rows are the same for all such directions, so one of them represents all. The result is None if the span is too
    large to save computation.
    """
    d = axis.size
    if not is_thin(len(rows) + 2, d):
        return None
    basis = np.linalg.qr(np.concatenate([axis[None], _scaled_rows(rows)]).T)[0]
    # The squared norms of the projections of the d coordinate vectors onto the span add up to at most d/2, so the least
    # squared norm is at most 1/2.
    outside = np.eye(1, d, int(np.argmin(np.vecdot(basis, basis))))[0]
    return np.asarray(np.linalg.qr(np.column_stack([basis, outside]))[0][:, 1:])


def tangential(
    vectors: Float64[np.ndarray, "*b d"], axis: Float64[np.ndarray, "d"], basis: Float64[np.ndarray, "d e"]
) -> Float64[np.ndarray, "*b e"]:
    """Return the coordinates in ``basis`` of the parts of vectors that are orthogonal to the unit vector ``axis``.

    The last column of a basis from :func:`thin_tangents` represents all directions outside the rows' span; so the last
    coordinate is the length of the vector's part outside that span.
    """
    coordinates = np.asarray(vectors @ basis)
    if basis.shape[1] < axis.size - 1:
        outside = vectors - (vectors @ axis)[..., None] * axis - coordinates @ basis.T
        coordinates[..., -1] = np.hypot(coordinates[..., -1], np.linalg.norm(outside, axis=-1))
    return coordinates


def _scaled_rows(rows: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "k d"]:
    """Return the non-zero rows, each divided by its largest absolute entry."""
    sizes = np.abs(rows).max(axis=1)
    return np.asarray(rows[sizes > 0] / sizes[sizes > 0, None])


def _shortest_edges(keys: Float64[np.ndarray, "n T d"]) -> Float64[np.ndarray, "n T-1 d"]:
    """Return the edges of a shortest spanning tree of each input's keys, by Prim's algorithm."""
    n, tokens, _ = keys.shape
    each = np.arange(n)
    last = np.zeros(n, dtype=np.int64)
    nearest = np.zeros((n, tokens), dtype=np.int64)
    distance = np.full((n, tokens), np.inf)
    outside = np.ones((n, tokens), dtype=bool)
    edges = np.empty((n, tokens - 1, keys.shape[2]))
    for step in range(tokens - 1):
        outside[each, last] = False
        to_last = np.linalg.norm(keys - keys[each, last][:, None], axis=2)
        closer = to_last < distance
        distance, nearest = np.where(closer, to_last, distance), np.where(closer, last[:, None], nearest)
        last = np.where(outside, distance, np.inf).argmin(axis=1)
        # Distances between keys of size 1e140 overflow to infinity; then any key outside the tree is taken.
        last = np.where(outside[each, last], last, outside.argmax(axis=1))
        edges[:, step] = keys[each, last] - keys[each, nearest[each, last]]
    return edges
