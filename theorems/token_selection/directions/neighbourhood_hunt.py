"""A search for points of low risk at given radii in a neighbourhood D_δ(q) = {x : ‖x‖ = 1, ‖x − q̄‖ ≤ δ}.

All radii are searched in one batch: the search tries random and given tangents, on the boundary of the neighbourhood
and inside, then moves towards the best points.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.local_path import Excess, order
from reference_attention.span import thin_tangents

SCATTERED, KEPT, TRIES, ROUNDS = 24, 4, 6, 3


def lowest_in_neighbourhood(
    excess: Excess,
    axis: Float64[np.ndarray, "d"],
    delta: float,
    radii: Float64[np.ndarray, "r"],
    hints: Float64[np.ndarray, "h d"],
    rng: np.random.Generator,
) -> Float64[np.ndarray, "r m d"]:
    """Search for the points R x, x ∈ D_δ(q), of lowest risk at each radius R; return all points tried, R q̄ first.

    Args:
        excess: the function that maps points, (r, m, d), to sign and logarithm of L − L_α, where L_α is the reference
            risk.
        axis: the unit vector q̄, (d,).
        delta: the radius δ of the neighbourhood.
        radii: the radii R, (r,).
        hints: vectors whose parts orthogonal to q̄ are tried, with either sign: key differences, better directions, (h,
            d).
        rng: the generator of the random directions.
    """
    d, r = axis.size, radii.size
    if d == 1:
        return np.asarray(radii[:, None, None] * axis)
    basis = thin_tangents(axis, hints)
    if basis is None:
        basis = np.linalg.qr(np.column_stack([axis, np.eye(d)]))[0][:, 1:d]
    e = basis.shape[1]

    def points(z: Float64[np.ndarray, "r m k"]) -> Float64[np.ndarray, "r m d"]:
        raw = axis + delta * (z @ basis.T)
        return np.asarray(radii[:, None, None] * raw / np.linalg.norm(raw, axis=-1, keepdims=True))

    def clip(z: Float64[np.ndarray, "... k"]) -> Float64[np.ndarray, "... k"]:
        return np.asarray(z / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), 1.0))

    tangents = np.concatenate([rng.standard_normal((SCATTERED, e)), hints @ basis, -hints @ basis])
    sizes = np.linalg.norm(tangents, axis=1)
    tangents = tangents[sizes > 0] / sizes[sizes > 0, None]
    inner = tangents * rng.uniform(0, 1, (len(tangents), 1))
    z = np.concatenate([np.zeros((1, e)), tangents, inner])
    coordinates = np.broadcast_to(z, (r, *z.shape))
    for round in range(ROUNDS):
        rank = order(*excess(points(coordinates)))
        best = np.take_along_axis(coordinates, np.argsort(rank, axis=1, kind="stable")[:, :KEPT, None], axis=1)
        noise = rng.standard_normal((r, KEPT * TRIES, e)) * 0.5 ** (2 * round + 1)
        perturbed = clip(np.repeat(best, TRIES, axis=1) + noise)
        coordinates = np.concatenate([coordinates, perturbed], axis=1)
    return points(coordinates)
