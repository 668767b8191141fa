"""Directions of lower risk than a direction that is not locally optimal: the exact constructions of Theorem 4's proof.

All computations are over the rationals. So the properties that the proof claims for a constructed direction (its
selected tokens, margin and neighbours, and that it lies in the cone) can be checked without a tolerance.

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
"""Largest number of times that a perturbation is halved until it lies in the cone."""
Row = list[fmpq]


def tilted_direction(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, p_mm: list[fmpq], mu: float
) -> Direction | None:
    """Return the direction of case (A1): a mixture of the given direction q and p_mm, in the cone of width mu around q.

    The share of p_mm is halved until the mixture lies in the cone; the result is None if the mixture of the smallest
    share still lies outside. Margins are concave along the segment from q to p_mm, and normalising a proper mixture of
    two unit vectors raises margins. So if the margin θ(q) is below the margin Θ of p_mm, the margin of the mixture
    exceeds θ(q).
    """
    # Powers of two that bring q and p_mm to comparable length; the mixture is then (nearly) one of unit vectors.
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
    """Return the direction q + τ w of case (A2), where w = −M⁺ 1_{N⁺} points away from the neighbours of higher score.

    M has the rows k_iα_i − k_it of all directional neighbours (i, t) of q, and N⁺ is the set of neighbours of higher
    score. M w is −1 on N⁺ and 0 on the other neighbours (M has full row rank), so for small τ exactly the tokens of N⁺
    attain the smallest margin, θ‖q‖ − τ. τ starts at half of the largest value for which all other tokens have larger
    margins and the smallest margin is positive; then τ is halved until the direction lies in the cone. If N⁺ contains
    all neighbours, the result is q itself.
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
        # The margin of token t must stay above the smallest one: direction.exact + τ row·w > direction.least − τ.
        speed = inner(_row(keys, alpha, i, t), w) + 1
        if speed < 0:
            most = min(most, (direction.exact[i][t] - theta) / -speed / 2)
    return _perturbed_direction(keys, direction, w, most, mu)


def best_token_direction(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, alpha: Int64[np.ndarray, "n"], mu: float
) -> Direction | None:
    """Return the direction q + τ w of case (B), where w = M⁺ 1 favours the best token α_i over tokens tied with it.

    M has the rows k_iα_i − k_it of the tied tokens. M q = 0 and M w = 1, so tied tokens get margin τ, and all other
    tokens keep most of their margins. τ starts at half of the value at which the margin of some other token falls to τ;
    then τ is halved until the direction lies in the cone.
    """
    others = direction.selected & (np.arange(keys.shape[1]) != alpha[:, None])
    w = _least_norm_preimage(_rows(keys, alpha, others), [fmpq(1)] * int(others.sum()))
    if w is None:
        return None
    most = rational(2.0 ** round(float(np.log2(direction.norm))))
    for i, t in np.argwhere(~direction.selected).tolist():
        # The margin of token t must stay above that of the tied tokens: direction.exact + τ row·w > τ.
        speed = 1 - inner(_row(keys, alpha, i, t), w)
        if speed > 0:
            most = min(most, direction.exact[i][t] / speed / 2)
    return _perturbed_direction(keys, direction, w, most, mu)


def _perturbed_direction(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, w: Row, most: fmpq, mu: float
) -> Direction | None:
    """Return the direction q + τ w for the largest τ = most/2^k that keeps it in the cone; None if no such τ does."""

    def candidates() -> Iterator[list[fmpq]]:
        step = most
        for _ in range(HALVINGS):
            yield [a + step * b for a, b in zip(direction.vector, w, strict=True)]
            step /= 2

    return _first_within(keys, direction, candidates(), mu)


def _first_within(
    keys: Float64[np.ndarray, "n T d"], direction: Direction, tries: Iterator[list[fmpq]], mu: float
) -> Direction | None:
    """Return the direction of the first vector that lies in the cone of width mu around the given direction."""
    inside: Callable[[list[fmpq]], bool] = lambda x: within_cone(x, direction.vector, mu)  # noqa: E731
    best = next((x for x in tries if inside(x)), None)
    return None if best is None else exact_direction(keys, best)


def _row(keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"], i: int, t: int) -> Row:
    """Return k_iα_i − k_it, exactly."""
    return [rational(a) - rational(b) for a, b in zip(keys[i, alpha[i]].tolist(), keys[i, t].tolist(), strict=True)]


def _rows(
    keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"], mask: Bool[np.ndarray, "n T"]
) -> list[Row]:
    """Return k_iα_i − k_it of all (i, t) in the mask, exactly."""
    return [_row(keys, alpha, int(i), int(t)) for i, t in np.argwhere(mask)]


def _least_norm_preimage(rows: list[Row], values: list[fmpq]) -> Row | None:
    """Return M⁺ values = Mᵀ(M Mᵀ)⁻¹ values for M of full row rank; None if the rank of M is not full."""
    matrix = fmpq_mat(len(rows), len(rows[0]), [x for row in rows for x in row])
    try:
        solved = (matrix * matrix.transpose()).solve(fmpq_mat(len(values), 1, values))
    except ZeroDivisionError:
        return None
    return list((matrix.transpose() * solved).entries())
