"""Strategies for tokens as users have them: arbitrary, or separable because of one coordinate, the pivot.

Coordinates are increasing functions of integer levels (:mod:`.realistic_numbers`). In the pivot the level of each
input's chosen token is above (or below) that of every other constrained token of the input, so that the axis ± e_pivot
separates; the other coordinates, and p_mm, are arbitrary. Then more features of users' data are added: nearly equal
tokens, a constant coordinate, an SVM-neighbour with a zero dual.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM); issue reports.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64, Int64

from generators.idle_neighbours import can_have_idle_neighbour, solver, with_idle_neighbour
from generators.numbers import Frame, one_in
from generators.realistic_numbers import EVERY, Grid, Kind, grids, levels

Levels = Int64[np.ndarray, "n T d"]
Keys = Float64[np.ndarray, "n T d"]
Chosen = Int64[np.ndarray, "n"]


@st.composite
def realistic_tokens(draw: DrawFn, frame: Frame, kinds: tuple[Kind, ...] = EVERY, *, scaled: bool = True) -> Keys:
    """Draw tokens as users have them, separable or not."""
    grid = draw(grids(frame.d, kinds, scaled=scaled))
    token_levels = draw(levels(frame, grid))
    if draw(one_in(3)):
        token_levels = _all_but_equal(draw, token_levels, grid, None, None)
    tokens = _keys_of_levels(grid, token_levels)
    if frame.d > 1 and draw(one_in(3)):
        axis = draw(st.integers(0, frame.d - 1))
        tokens[:, :, axis] = tokens[0, 0, axis]
    return tokens


@st.composite
def realistic_keys(
    draw: DrawFn,
    frame: Frame,
    alpha: Chosen,
    constrained: Bool[np.ndarray, "n T"],
    repeats: Int64[np.ndarray, "n"],
    kinds: tuple[Kind, ...] = EVERY,
) -> Keys:
    """Draw keys as users have them for which some direction separates α_i from every constrained token of each input.

    Args:
        draw: the function that Hypothesis passes.
        frame: the sizes n, T and d.
        alpha: the chosen tokens.
        constrained: a mask, (n, T), of the tokens from which α_i is separated; the other tokens are arbitrary.
        repeats: for each input the index of the input that it repeats, usually its own; the repeated input must have
            the same chosen and constrained tokens.
        kinds: the kinds of numbers to draw from.
    """
    n, tokens, d = frame.shape
    grid = draw(grids(d, kinds))
    token_levels = draw(levels(frame, grid))
    pivot = draw(st.integers(0, d - 1))
    # With one-hot flags or normalised counts no level is below 0 and other tokens get level 0, so raise the chosen
    # token.
    upwards = grid.kind is Kind.ONE_HOT or grid.unit_norm or draw(st.booleans())
    free = constrained & (np.arange(tokens) != alpha[:, None])
    gain = _gains(draw, frame, grid)
    _set_apart(token_levels[:, :, pivot], alpha, free, gain, grid, up=upwards)
    if draw(one_in(3)) and not grid.unit_norm:
        token_levels = _all_but_equal(draw, token_levels, grid, (pivot, -1 if upwards else 1), (alpha, free))
    keys = _keys_of_levels(grid, token_levels)
    if d == 1:
        return keys[repeats]
    axis = (pivot + draw(st.integers(1, d - 1))) % d
    every = bool((free | (np.arange(tokens) == alpha[:, None])).all())
    if every and can_have_idle_neighbour(frame.shape) and draw(st.integers(0, 3)):
        moved = grid.values(np.full(d, _other_level(draw, grid)))[axis]
        # Solve ATT-SVM without repeated inputs: they only repeat constraints, so that p_mm does not depend on them.
        distinct = np.flatnonzero(repeats == np.arange(n))
        keys[distinct] = with_idle_neighbour(
            keys[distinct], alpha[distinct], axis, float(moved), solver(alpha[distinct])
        )
    elif draw(one_in(3)):
        keys[:, :, axis] = keys[0, 0, axis]
    return keys[repeats]


def _other_level(draw: DrawFn, grid: Grid) -> int:
    """Draw the level, other than 0, of a copied token in the one coordinate in which it differs from its original."""
    return int(draw(st.sampled_from((grid.unit, grid.high, max(1, grid.unit // 4), grid.least))))


def _gains(draw: DrawFn, frame: Frame, grid: Grid) -> Int64[np.ndarray, "n"]:
    """Draw for each input the number of levels by which the chosen token exceeds others, rarely the least possible."""
    most = (grid.high - grid.low) // 2
    sizes = (grid.unit, 2 * grid.unit, grid.unit // 2, 3 * grid.unit, grid.unit, grid.unit // 4, grid.unit, grid.least)
    gains = np.asarray(draw(frame.choices("n", tuple(max(grid.least, min(x, most)) for x in sizes))))
    if draw(one_in(3)):
        # Give an input the largest number, so that it usually has no SVM-neighbour.
        gains[draw(st.integers(0, frame.n - 1))] = grid.high - grid.low
    return gains


def _set_apart(
    column: Int64[np.ndarray, "n T"],
    alpha: Chosen,
    free: Bool[np.ndarray, "n T"],
    gain: Int64[np.ndarray, "n"],
    grid: Grid,
    *,
    up: bool,
) -> None:
    """Change the levels of a coordinate in place, so that α_i exceeds the free tokens of input i by ``gain[i]``."""
    n = len(alpha)
    sign = 1 if up else -1
    top = grid.high if up else -grid.low
    signed = sign * column
    if grid.unit_norm:
        # Tokens are normalised later, which does not change entries of level 0.
        signed[free] = 0
    signed = np.where(free, np.minimum(signed, (top - gain)[:, None]), signed)
    highest = np.where(free, signed, np.iinfo(np.int64).min // 2).max(axis=1)
    chosen = signed[np.arange(n), alpha]
    signed[np.arange(n), alpha] = np.maximum(chosen, highest + gain)
    column[:] = sign * signed


def _all_but_equal(
    draw: DrawFn,
    token_levels: Levels,
    grid: Grid,
    pivot: tuple[int, int] | None,
    constraint: tuple[Chosen, Bool[np.ndarray, "n T"]] | None,
) -> Levels:
    """Replace a token by a copy of another token, moved by the least step in one coordinate.

    One copy in four is a copy of the chosen token, and moves along the pivot. A copy that moves along the pivot moves
    away from the chosen token. If the step would leave the grid, the copy is exact, or nothing is replaced.
    """
    n, tokens, d = token_levels.shape
    i = draw(st.integers(0, n - 1))
    first, slot = (draw(st.integers(0, tokens - 1)) for _ in range(2))
    axis, step = draw(st.integers(0, d - 1)), grid.least * draw(st.sampled_from((1, -1)))
    changed = token_levels.copy()
    if constraint is not None and pivot is not None:
        alpha, free = int(constraint[0][i]), constraint[1][i]
        if not free.any():
            return token_levels
        others = np.flatnonzero(free)
        slot = int(others[slot % len(others)])
        first = alpha if draw(one_in(4)) else int(others[first % len(others)])
        if first == alpha:
            axis = pivot[0]
        if axis == pivot[0]:
            step = grid.least * pivot[1]
        if first == alpha and not grid.low <= changed[i, alpha, axis] + step <= grid.high:
            return token_levels
    changed[i, slot] = changed[i, first]
    if slot != first and grid.low <= changed[i, slot, axis] + step <= grid.high:
        changed[i, slot, axis] += step
    return changed


def _keys_of_levels(grid: Grid, token_levels: Levels) -> Keys:
    """Return the tokens with the given levels, scaled to norm 1 if the grid demands this and they are not 0."""
    tokens = grid.values(token_levels)
    if not grid.unit_norm:
        return tokens
    norms = np.sqrt(np.sum(tokens**2, axis=2, keepdims=True))
    return np.asarray(tokens / np.where(norms > 0, norms, 1.0))
