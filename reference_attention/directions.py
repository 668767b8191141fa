"""Directions in which a prompt grows: the tokens that a direction selects, its margins and its neighbours, all exact.

Definition 3 is about a unit vector q, and vectors of floats rarely have length one. But selected tokens, directional
neighbours and neighbour-optimality do not depend on the length of q, and the margins of two directions can be compared
through their squares. So everything is decided over the rational numbers that the floats represent.

Source: *Max-Margin Token Selection in Attention Mechanism*, Definition 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from flint import fmpq, fmpq_mat, fmpz_mat
from jaxtyping import Bool, Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.exact import Dyadic, from_limbs, inner, rational, times_power_of_two, to_float, to_floats
from reference_attention.problem import checked_array


@dataclass(frozen=True, eq=False)
class Direction:
    """A direction q: the tokens that the prompt p = R q/‖q‖ selects as R → ∞, and the margins of the other tokens.

    Attributes:
        q: the direction, a vector of any length, shape (d,); the entries of ``vector`` rounded to floats.
        vector: the direction exactly, d rationals.
        selected: mask of the tokens with the largest logit k_it·q of their input, ties included, shape (n, T).
        exact: the logit of the selected tokens minus that of token t, max_u k_iu·q − k_it·q, n lists of T rationals;
            zero at selected tokens.
        least: the smallest entry of ``exact`` at tokens that are not selected, over all inputs: ‖q‖ times the
            directional margin θ(q); None if every token of every input is selected.
        neighbours: mask of the directional neighbours, the tokens (i, t) at which ``exact`` equals ``least``, shape (n,
            T).
    """

    q: Float64[np.ndarray, "d"]
    vector: tuple[fmpq, ...]
    selected: Bool[np.ndarray, "n T"]
    exact: tuple[tuple[fmpq, ...], ...]
    least: fmpq | None
    neighbours: Bool[np.ndarray, "n T"]

    @cached_property
    def norm_squared(self) -> fmpq:
        """Return ‖q‖²."""
        return inner(self.vector, self.vector)

    @cached_property
    def norm(self) -> float:
        """Return ‖q‖, with an error of at most one unit in the last place."""
        return math.sqrt(to_float(self.norm_squared))

    @property
    def unit(self) -> Float64[np.ndarray, "d"]:
        """Return q/‖q‖, shape (d,)."""
        return np.asarray(self.q / self.norm)

    @property
    def margin(self) -> float:
        """Return the directional margin θ(q), within two units in the last place; +inf if every token is selected."""
        return math.inf if self.least is None else to_float(self.least) / self.norm

    @cached_property
    def margins(self) -> Float64[np.ndarray, "n T"]:
        """Return (k_iα_i − k_it)·q/‖q‖ for selected tokens α_i, each to two units in the last place, shape (n, T)."""
        return np.asarray(np.array([[to_float(x) for x in row] for row in self.exact]) / self.norm)

    @property
    def unique(self) -> bool:
        """Return whether exactly one token is selected in every input."""
        return bool((self.selected.sum(axis=1) == 1).all())

    @property
    def tied_inputs(self) -> Int64[np.ndarray, "k"]:
        """Return the indices of the inputs in which several tokens are selected."""
        return np.asarray(np.flatnonzero(self.selected.sum(axis=1) > 1), dtype=np.int64)

    def best(self, scores: Float64[np.ndarray, "n T"]) -> Int64[np.ndarray, "n"]:
        """Return for each input the selected token of highest score, the first one if several are equal, shape (n,)."""
        return np.asarray(np.argmax(np.where(self.selected, scores, -np.inf), axis=1), dtype=np.int64)


def direction(keys: Float64[np.ndarray, "n T d"], q: Float64[np.ndarray, "e"]) -> Direction:
    """Return the tokens that a vector q selects (Definition 3) and their margins, decided over the rationals.

    Args:
        keys: shape (n, T, d).
        q: any non-zero vector, shape (d,); another length is refused.

    Raises:
        InvalidInput: q has another shape, is zero, or has NaN or infinite entries.
    """
    q = checked_array("q", q, (keys.shape[2],))
    if not q.any():
        raise InvalidInput("q: the zero vector is no direction; give a non-zero one.")
    along = Dyadic.of(q)
    vector = tuple(rational(x) for x in q.tolist())
    return _direction_of_weights(keys, from_limbs(along.limbs()[..., None]), along.exponent, q, vector)


def exact_direction(keys: Float64[np.ndarray, "n T d"], vector: Sequence[fmpq]) -> Direction:
    """Return the tokens that a rational vector (for example p_mm) selects, as in Definition 3, and their margins.

    Raises:
        InvalidInput: the vector is zero, or an entry is beyond the range of float64.
    """
    if not any(x != 0 for x in vector):
        raise InvalidInput("vector: the zero vector is no direction; give a non-zero one.")
    numbers, over = fmpq_mat(len(vector), 1, list(vector)).numer_denom()
    unscaled = _direction_of_weights(keys, numbers, 0, to_floats(vector), tuple(vector))
    scaled = tuple(tuple(x / over for x in row) for row in unscaled.exact)
    return replace(unscaled, exact=scaled, least=None if unscaled.least is None else unscaled.least / over)


@lru_cache(maxsize=2)
def _whole_keys(entries: bytes, shape: tuple[int, int]) -> tuple[fmpz_mat, int]:
    """Return the keys, given as bytes of an array of ``shape``, as integers times a power of two; and its exponent."""
    dyadic = Dyadic.of(np.frombuffer(entries).reshape(shape))
    return from_limbs(dyadic.limbs()), dyadic.exponent


def _direction_of_weights(
    keys: Float64[np.ndarray, "n T d"],
    weights: fmpz_mat,
    exponent: int,
    q: Float64[np.ndarray, "d"],
    vector: tuple[fmpq, ...],
) -> Direction:
    """Return the direction whose vector is 2^exponent times the integers ``weights``, shape (d, 1)."""
    n, count, d = keys.shape
    # A search computes many directions for the same keys, so the integers of the keys are cached.
    integer_keys, unit = _whole_keys(keys.tobytes(), (n * count, d))
    unit += exponent
    logit_entries = (integer_keys * weights).entries()
    logits = [logit_entries[i * count : (i + 1) * count] for i in range(n)]
    rows = [[max(of_input) - x for x in of_input] for of_input in logits]
    least = min((x for row in rows for x in row if x > 0), default=None)
    return Direction(
        q=q,
        vector=vector,
        selected=np.array([[x == 0 for x in row] for row in rows]),
        exact=tuple(tuple(times_power_of_two(fmpq(x), unit) for x in row) for row in rows),
        least=None if least is None else times_power_of_two(fmpq(least), unit),
        neighbours=np.array([[x == least for x in row] for row in rows]),
    )


def not_below(direction: Direction, scores: Float64[np.ndarray, "n T"]) -> list[tuple[int, int]]:
    """Return the directional neighbours (i, t) whose score is at least that of some selected token of input i."""
    lowest = np.min(np.where(direction.selected, scores, np.inf), axis=1, keepdims=True)
    return [(int(i), int(t)) for i, t in np.argwhere(direction.neighbours & (scores >= lowest))]


def neighbour_optimal(direction: Direction, scores: Float64[np.ndarray, "n T"]) -> bool:
    """Return whether every directional neighbour scores less than all selected tokens of its input (Definition 3)."""
    return not not_below(direction, scores)


def margin_sign(first: Direction, second: Direction) -> int:
    """Return the sign of θ(first) − θ(second), θ the directional margin; it is exact because squares are compared."""
    if first.least is None or second.least is None:
        return int(first.least is None) - int(second.least is None)
    gap = first.least**2 * second.norm_squared - second.least**2 * first.norm_squared
    return int(gap > 0) - int(gap < 0)


def margin_difference(first: Direction, second: Direction) -> float:
    """Return θ(first) − θ(second), θ the directional margin, to a few units in the last place of the *difference*."""
    return unit_difference(first.least, first, second.least, second)


def unit_difference(a: fmpq | None, first: Direction, b: fmpq | None, second: Direction) -> float:
    """Return a/‖first‖ − b/‖second‖ for a, b ≥ 0 (None stands for +∞), from exact squares, so that nothing cancels."""
    if a is None or b is None:
        return 0.0 if a is None and b is None else math.inf if a is None else -math.inf
    squares = a**2 / first.norm_squared - b**2 / second.norm_squared
    return 0.0 if squares == 0 else to_float(squares) / (to_float(a) / first.norm + to_float(b) / second.norm)


def parallel(first: Sequence[fmpq], second: Sequence[fmpq]) -> bool:
    """Return whether two vectors have the same direction: first = c·second for some c > 0, decided exactly."""
    return inner(first, second) > 0 and inner(first, second) ** 2 == inner(first, first) * inner(second, second)


def within_cone(x: Sequence[fmpq], q: Sequence[fmpq], mu: float) -> bool:
    """Return whether x lies in the cone of width μ around q, cos(x, q) ≥ 1 − μ, decided exactly by comparing squares.

    Raises:
        InvalidInput: ``mu`` is outside [0, 1].
    """
    if not 0 <= mu <= 1:
        raise InvalidInput(f"mu: {mu:g} makes no cone within a half-space; give 0 ≤ mu ≤ 1.")
    along = inner(x, q)
    return bool(along >= 0 and along**2 >= (1 - rational(mu)) ** 2 * inner(x, x) * inner(q, q))
