"""Keys for a given direction q with prescribed selected tokens, neighbours and ties, exact in float64.

First the *levels* of q are drawn: level_it = (k_iα_i − k_it)·q, which is 0 at α_i and at ties, 1 at directional
neighbours, and larger elsewhere. From them follow the keys k_it = k_iα_i − (level_it·a + e_it) with a·q = 1 and
e_it ⊥ q. As q has small integer entries, one of them ±1, all of this is exact in float64.

General position (:mod:`.general_position`) is about the rows k_iα_i − k_it. For a fixed choice of tokens a row has the
coordinates (level, e) with free e, so that for generic e only the levels can violate general position. d rows are
linearly dependent for every e only if all their levels are 0; d + 1 rows have the all-ones vector in the range of their
matrix for every e only if all their levels are equal. Levels are therefore assigned so that no choice of tokens has
more than d rows of one level (d − 1 of level 0), and e is moved, orthogonally to q, until the keys are in general
position.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 3, Theorem 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64, Int64

from generators.general_position import offending_choice
from generators.keys import NEAR_TIE
from generators.numbers import Frame
from generators.realistic_keys import realistic_tokens
from generators.realistic_numbers import SHORT

HIGHER_LEVELS = (2.0, 1.5, 3.0, NEAR_TIE, 1.0625, 8.0)
DYADIC = st.one_of(
    st.integers(-3, 3).map(float), st.integers(-3, 3).map(float), st.integers(-3072, 3072).map(lambda k: k / 1024)
)


def levels_allowed(levels: Float64[np.ndarray, "n T"], d: int) -> bool:
    """Return whether no choice of tokens has more than d rows of an equal level, or more than d − 1 rows of level 0.

    The level of a row k_is − k_it, for a chosen token s, is the difference of the levels of t and s. NaN stands for a
    level that is not yet assigned.
    """
    differences = levels[:, None, :] - levels[:, :, None]
    itself = np.eye(levels.shape[1], dtype=bool)
    values = np.unique(differences[:, ~itself])
    for value in values[np.isfinite(values)]:
        most = int(((differences == value) & ~itself).sum(axis=2).max(axis=1).sum())
        if most > (d if value != 0 else d - 1):
            return False
    return True


@st.composite
def direction_levels(
    draw: DrawFn, frame: Frame, alpha: Int64[np.ndarray, "n"], *, ties: bool, single: bool
) -> Float64[np.ndarray, "n T"]:
    """Draw levels with a tie if ``ties``, otherwise with a directional neighbour; with exactly one if ``single``."""
    n, tokens, d = frame.shape
    preferred = draw(frame.values("nT", st.sampled_from((1.0, 2.0, 1.0, 0.0) if ties else (1.0, 2.0, 1.0))))
    others = draw(frame.values("nT", st.sampled_from(HIGHER_LEVELS)))
    first = (draw(st.integers(0, n - 1)), draw(st.integers(0, tokens - 2)))
    levels = np.full((n, tokens), np.nan)
    levels[np.arange(n), alpha] = 0.0
    free = [(i, t) for i in range(n) for t in range(tokens) if t != alpha[i]]
    lead = (first[0], int(np.delete(np.arange(tokens), alpha[first[0]])[first[1]]))
    free.remove(lead)
    for at in (lead, *free):
        level = (0.0 if ties else 1.0) if at == lead else float(preferred[at])
        tries = [] if level == 2.0 or (single and at != lead) else [level]
        levels[at] = next(x for x in chain(tries, [float(others[at])], _ladder(others[at])) if _fits(levels, at, x, d))
    return levels


def _fits(levels: Float64[np.ndarray, "n T"], at: tuple[int, int], value: float, d: int) -> bool:
    trial = levels.copy()
    trial[at] = value
    return levels_allowed(trial, d)


def _ladder(start: float) -> Iterator[float]:
    """Yield increasing levels above ``start``, with growing differences, so that few differences are equal."""
    step = 0.25
    while True:
        yield float(start) + step
        step = step * 1.5 if step < 64 else step + 0.625
        step = np.ceil(step * 16) / 16


@st.composite
def keys_of_levels(
    draw: DrawFn,
    frame: Frame,
    alpha: Int64[np.ndarray, "n"],
    levels: Float64[np.ndarray, "n T"],
    q: Float64[np.ndarray, "d"],
    pivot: int,
    *,
    off_axis: bool,
    general: bool,
    users: bool = False,
) -> Float64[np.ndarray, "n T d"]:
    """Draw keys that have the given levels along q.

    With ``off_axis`` all rows k_iα_i − k_it of level 1 have a positive component along one vector orthogonal to q, so
    that q is not a max-margin direction. With ``general`` keys are in general position. With ``users`` the part of the
    rows orthogonal to q consists of features of few bits, as users have them.
    """
    n, _, d = frame.shape
    sideways = draw(realistic_tokens(frame, SHORT, scaled=False) if users else frame.values("nTd", DYADIC))
    bases = draw(frame.values("nd", st.integers(-2, 2).map(float)))
    _make_orthogonal(sideways, q, pivot)
    if off_axis and d > 1:
        j = (pivot + 1) % d
        side = np.eye(d)[j] - q[j] * q[pivot] * np.eye(d)[pivot]
        # A row of level 1 also gets the component q[pivot] along the axis ``pivot``, which adds q[pivot] · side[pivot]
        # to the product of the row with ``side``.
        leaning = sideways @ side + q[pivot] * side[pivot]
        missing = np.maximum(0.0, np.ceil((1.0 - leaning) / (side @ side)))
        sideways += np.where(levels == 1.0, missing, 0.0)[:, :, None] * side
    differences = sideways + levels[:, :, None] * (q[pivot] * np.eye(d)[pivot])
    differences[np.arange(n), alpha] = 0.0
    keys = np.asarray(bases[:, None] - differences)
    return nudge_beside(keys, q, pivot) if general else keys


def _make_orthogonal(rows: Float64[np.ndarray, "*b d"], q: Float64[np.ndarray, "d"], pivot: int) -> None:
    """Make each row orthogonal to q by setting its entry ``pivot``; q[pivot] = ±1, so that nothing is rounded."""
    rows[..., pivot] = 0.0
    rows[..., pivot] = -q[pivot] * (rows @ q)


def nudge_beside(
    keys: Float64[np.ndarray, "n T d"], q: Float64[np.ndarray, "d"], pivot: int
) -> Float64[np.ndarray, "n T d"]:
    """Move the keys orthogonally to q by less than 1/8 per entry until they are in general position.

    Each try draws the moves from a finer grid, so that the share of moves that fail tends to zero. The directional
    margins of q do not change. The product of a row with a vector that has only one nonzero entry, of size at most 2,
    changes by less than 1.
    """
    d = keys.shape[2]
    largest = 2.0 ** -(5 + 2 * (d - 1).bit_length())
    nudged, tries = keys, 0
    while offending_choice(nudged) is not None:
        tries += 1
        steps = np.random.default_rng(tries).integers(-(4**tries), 4**tries + 1, size=keys.shape) * (largest / 4**tries)
        _make_orthogonal(steps, q, pivot)
        nudged = keys + steps
    return np.asarray(nudged)
