"""Directions of lower risk than a direction that is not locally optimal: the exact constructions of Theorem 4's proof.

All computations are over the rationals. So what the proof claims about a constructed direction (its selected tokens,
its margin, its directional neighbours, and that it lies in the cone around the given direction) can be checked without
a tolerance. Below, q is the given direction, p_mm the solution of ATT-SVM, and μ the width of the cone {x : cos(x, q) ≥
1 − μ}.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.2, cases (A1), (A2) and (B).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Bool, Float64, Int64

from reference_attention.directions import Direction, exact_direction, within_cone
from reference_attention.exact import inner, rational, to_float

HALVINGS = 200
"""Largest number of times that the perturbation of a direction is halved to bring the direction into the cone."""
Row = list[fmpq]


def tilted_direction(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, p_mm: list[fmpq], mu: float
) -> Direction | None:
    """Return the direction of case (A1): a weighted sum of the direction q and p_mm, in the cone of width μ around q.

    p_mm itself is tried first. Then its weight in the sum is halved until the sum lies in the cone; if even the
    smallest weight is too large, the result is None. The smallest margin is a concave function on the segment between
    the unit vectors of q and p_mm, and dividing an inner point of this segment by its norm, which is below 1, raises a
    positive margin. So if the margin of q/‖q‖ is below that of p_mm/‖p_mm‖, then the margin of the resulting unit
    vector exceeds that of q/‖q‖.
    """
    # Multiply q by the power of two that makes it about as long as p_mm, so that both vectors count equally in the sum.
    length = (inner(p_mm, p_mm) / direction.norm_squared) if any(x != 0 for x in p_mm) else fmpq(1)
    scale = rational(2.0 ** round(float(np.log2(to_float(length))) / 2))

    def candidates() -> Iterator[list[fmpq]]:
        yield p_mm
        share = fmpq(1)
        for _ in range(HALVINGS):
            yield [scale * a + share * b for a, b in zip(direction.vector, p_mm, strict=True)]
            share /= 2

    return _first_within(keys, direction, candidates(), mu)


def higher_neighbours_direction(
    keys: Float64[np.ndarray, "n T d"],
    direction: Direction,
    scores: Float64[np.ndarray, "n T"],
    alpha: Int64[np.ndarray, "n"],
    mu: float,
) -> Direction | None:
    """Return the direction q + τ w of case (A2), in which neighbours of higher score than α have the least margin.

    The matrix M has the rows k_iα_i − k_it of all directional neighbours (i, t) of q. The vector w is the shortest one
    for which M w is −1 at the neighbours that score higher than α_i and 0 at the others; it exists if M has full row
    rank. So for small τ exactly the neighbours of higher score attain the smallest margin. The number τ starts at half
    of a value up to which all other tokens keep larger margins and the smallest margin stays positive, and is halved
    until the direction lies in the cone. If all neighbours score higher, the result is q itself. The result is None if
    M does not have full row rank, if q selects all tokens, or if no τ is small enough.
    """
    chosen_scores = np.take_along_axis(scores, alpha[:, None], axis=1)
    near, above = direction.neighbours, scores > chosen_scores
    if not (near & ~above).any():
        return direction
    theta = direction.least
    w = _least_norm_preimage(_rows(keys, alpha, near), [fmpq(-int(above[i, t])) for i, t in np.argwhere(near)])
    if w is None or theta is None:
        return None
    most = theta / 2
    for i, t in np.argwhere(~near & ~direction.selected).tolist():
        # The margin of token t, direction.exact + τ row·w, must stay above the smallest margin, direction.least − τ.
        speed = inner(_row(keys, alpha, i, t), w) + 1
        if speed < 0:
            most = min(most, (direction.exact[i][t] - theta) / -speed / 2)
    return _perturbed_direction(keys, direction, w, most, mu)


def best_token_direction(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, alpha: Int64[np.ndarray, "n"], mu: float
) -> Direction | None:
    """Return the direction q + τ w of case (B), which selects only α_i among the tokens that q ties with α_i.

    The matrix M has the rows k_iα_i − k_it of the tokens t tied with α_i, so M q = 0. The vector w is the shortest one
    with M w = 1, so tied tokens get the margin τ, and all other tokens keep most of their margins. The number τ starts
    at half of the value at which the margin of some other token falls to τ (at most about ‖q‖), and is halved until the
    direction lies in the cone. The result is None if M does not have full row rank, or if no τ is small enough.
    """
    others = direction.selected & (np.arange(keys.shape[1]) != alpha[:, None])
    w = _least_norm_preimage(_rows(keys, alpha, others), [fmpq(1)] * int(others.sum()))
    if w is None:
        return None
    most = rational(2.0 ** round(float(np.log2(direction.norm))))
    for i, t in np.argwhere(~direction.selected).tolist():
        # The margin of token t, direction.exact + τ row·w, must stay above τ, the margin of the tied tokens.
        speed = 1 - inner(_row(keys, alpha, i, t), w)
        if speed > 0:
            most = min(most, direction.exact[i][t] / speed / 2)
    return _perturbed_direction(keys, direction, w, most, mu)


def _perturbed_direction(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, w: Row, most: fmpq, mu: float
) -> Direction | None:
    """Return the direction q + τ w for the largest τ = most/2^k that keeps it in the cone; None if no τ does."""

    def candidates() -> Iterator[list[fmpq]]:
        step = most
        for _ in range(HALVINGS):
            yield [a + step * b for a, b in zip(direction.vector, w, strict=True)]
            step /= 2

    return _first_within(keys, direction, candidates(), mu)


def _first_within(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, tries: Iterator[list[fmpq]], mu: float
) -> Direction | None:
    """Return the direction of the first vector that lies in the cone of width ``mu`` around ``direction``, if any."""
    inside: Callable[[list[fmpq]], bool] = lambda x: within_cone(x, direction.vector, mu)  # noqa: E731
    best = next((x for x in tries if inside(x)), None)
    return None if best is None else exact_direction(keys, best)


def _row(keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"], i: int, t: int) -> Row:
    """Return k_iα_i − k_it over the rationals."""
    return [rational(a) - rational(b) for a, b in zip(keys[i, alpha[i]].tolist(), keys[i, t].tolist(), strict=True)]


def _rows(
    keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"], mask: Bool[np.ndarray, "n T"]
) -> list[Row]:
    """Return k_iα_i − k_it over the rationals, for all (i, t) in the mask."""
    return [_row(keys, alpha, int(i), int(t)) for i, t in np.argwhere(mask)]


def _least_norm_preimage(rows: list[Row], values: list[fmpq]) -> Row | None:
    """Return the shortest x with M x = ``values``, M the matrix of the rows; None if its rows are dependent."""
    matrix = fmpq_mat(len(rows), len(rows[0]), [x for row in rows for x in row])
    try:
        solved = (matrix * matrix.transpose()).solve(fmpq_mat(len(values), 1, values))
    except ZeroDivisionError:
        return None
    return list((matrix.transpose() * solved).entries())
