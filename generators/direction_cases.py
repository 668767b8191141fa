"""Strategies for cases with a direction q, by construction: what q selects, its neighbours, and ties.

Everything starts from the *levels* of q: level_it = (k_iα_i − k_it)·q in units, 0 at α_i and at ties, 1 at
directional neighbours, larger elsewhere. Keys follow as k_it = k_iα_i − (level·a + e) with a·q = 1 and e ⊥ q. As q has
small integer entries, one of them ±1, all of this is exact in float64.

General position. For a fixed choice of tokens the rows are (level, e) with free e, so for generic e all that can go
wrong are the levels: d rows are dependent for every e only if all their levels are 0; d + 1 rows reach the all-ones
vector for every e only if all their levels are equal. Levels are therefore assigned so that no choice of tokens has
more than d rows of one level (d − 1 of level 0), and e is moved, orthogonally to q, until the keys are in general
position.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 3, Lemmas 8–10, Theorem 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain, product
from types import MappingProxyType
from typing import Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64, Int64

from attention.directions import direction, margin_sign
from attention.losses import LOSSES, loss_named
from attention.max_margin import MaxMargin, max_margin
from attention.problem import Problem
from generators.case import Case
from generators.general_position import matrices, offending_choice
from generators.keys import NEAR_TIE, key_directions
from generators.numbers import Frame, one_in

Kind = Literal["lower", "higher", "mixed", "tied", "near"]
"""Directional neighbours score lower, higher, or one of them higher; ties in selection; near an LMM direction."""

LARGEST = (3, 4, 4)
"""The largest (n, T, d)."""
MOST_MATRICES_DRAWN = 1_200
"""Matrices of general position per drawn case."""
HIGHER_LEVELS = (2.0, 1.5, 3.0, NEAR_TIE, 1.0625, 8.0)
LADDER = (1.0, 2.0, 0.5, 3.0, 0.125, 2.0**-20)
"""Distances between scores."""
NEAR = (2.0**-20, 2.0**-10, 2.0**-30)
"""How far, relatively, a nearly locally optimal direction is from one; the first is 1e-6."""
DYADIC = st.one_of(
    st.integers(-3, 3).map(float), st.integers(-3, 3).map(float), st.integers(-3072, 3072).map(lambda k: k / 1024)
)


@cache
def _shapes(smallest_d: int) -> tuple[tuple[int, int, int], ...]:
    ranges = (range(1, LARGEST[0] + 1), range(2, LARGEST[1] + 1), range(smallest_d, LARGEST[2] + 1))
    return tuple(s for s in product(*ranges) if matrices(*s) <= MOST_MATRICES_DRAWN)


def levels_allowed(levels: Float64[np.ndarray, "n T"], d: int) -> bool:
    """Whether no choice of tokens has more than d rows of one level, or d − 1 of level 0 (NaN: not yet assigned)."""
    differences = levels[:, None, :] - levels[:, :, None]
    itself = np.eye(levels.shape[1], dtype=bool)
    values = np.unique(differences[:, ~itself])
    for value in values[np.isfinite(values)]:
        most = int(((differences == value) & ~itself).sum(axis=2).max(axis=1).sum())
        if most > (d if value != 0 else d - 1):
            return False
    return True


@st.composite
def _levels(
    draw: DrawFn, frame: Frame, alpha: Int64[np.ndarray, "n"], *, ties: bool, single: bool
) -> Float64[np.ndarray, "n T"]:
    """Levels of q with at least one directional neighbour (one only if ``single``), or at least one tie."""
    n, tokens, d = frame.shape
    wanted = draw(frame.values("nT", st.sampled_from((1.0, 2.0, 1.0, 0.0) if ties else (1.0, 2.0, 1.0))))
    others = draw(frame.values("nT", st.sampled_from(HIGHER_LEVELS)))
    first = (draw(st.integers(0, n - 1)), draw(st.integers(0, tokens - 2)))
    levels = np.full((n, tokens), np.nan)
    levels[np.arange(n), alpha] = 0.0
    free = [(i, t) for i in range(n) for t in range(tokens) if t != alpha[i]]
    lead = (first[0], int(np.delete(np.arange(tokens), alpha[first[0]])[first[1]]))
    free.remove(lead)
    for at in (lead, *free):
        asked = (0.0 if ties else 1.0) if at == lead else float(wanted[at])
        tries = [] if asked == 2.0 or (single and at != lead) else [asked]
        levels[at] = next(x for x in chain(tries, [float(others[at])], _ladder(others[at])) if _fits(levels, at, x, d))
    return levels


def _fits(levels: Float64[np.ndarray, "n T"], at: tuple[int, int], value: float, d: int) -> bool:
    trial = levels.copy()
    trial[at] = value
    return levels_allowed(trial, d)


def _ladder(start: float) -> Iterator[float]:
    """Ever higher levels, whose differences repeat less and less."""
    step = 0.25
    while True:
        yield float(start) + step
        step = step * 1.5 if step < 64 else step + 0.625
        step = np.ceil(step * 16) / 16


@st.composite
def _keys_of_levels(
    draw: DrawFn,
    frame: Frame,
    alpha: Int64[np.ndarray, "n"],
    levels: Float64[np.ndarray, "n T"],
    q: Float64[np.ndarray, "d"],
    pivot: int,
    *,
    off_axis: bool,
    general: bool,
) -> Float64[np.ndarray, "n T d"]:
    """Keys with those levels of q; ``off_axis``: all rows of level 1 lean to one side, so that q is not max-margin."""
    n, _, d = frame.shape
    sideways = draw(frame.values("nTd", DYADIC))
    bases = draw(frame.values("nd", st.integers(-2, 2).map(float)))
    _make_orthogonal(sideways, q, pivot)
    if off_axis and d > 1:
        j = (pivot + 1) % d
        side = np.eye(d)[j] - q[j] * q[pivot] * np.eye(d)[pivot]
        missing = np.maximum(0.0, np.ceil((1.0 - sideways @ side) / (side @ side)))
        sideways += np.where(levels == 1.0, missing, 0.0)[:, :, None] * side
    differences = sideways + levels[:, :, None] * (q[pivot] * np.eye(d)[pivot])
    differences[np.arange(n), alpha] = 0.0
    keys = np.asarray(bases[:, None] - differences)
    return nudged_beside(keys, q, pivot) if general else keys


def _make_orthogonal(rows: Float64[np.ndarray, "*b d"], q: Float64[np.ndarray, "d"], pivot: int) -> None:
    """Solve for entry ``pivot``; exact because q_pivot = ±1 and all entries are short."""
    rows[..., pivot] = 0.0
    rows[..., pivot] = -q[pivot] * (rows @ q)


def nudged_beside(
    keys: Float64[np.ndarray, "n T d"], q: Float64[np.ndarray, "d"], pivot: int
) -> Float64[np.ndarray, "n T d"]:
    """The keys, moved orthogonally to q by less than 1/8 per entry until they are in general position.

    The grid of moves gets finer with every try, so that the share of bad ones goes to zero. Margins of q stay as they
    are, exactly; the product of a row with a vector of entries −2 … 2, one of them not zero, moves by less than 1.
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


@st.composite
def _scores(
    draw: DrawFn,
    frame: Frame,
    alpha: Int64[np.ndarray, "n"],
    below: Bool[np.ndarray, "n T"],
    above: Bool[np.ndarray, "n T"],
    *,
    distinct: bool,
) -> Float64[np.ndarray, "n T"]:
    """Scores below α's where ``below``, above where ``above``, either elsewhere (also equal unless ``distinct``)."""
    n = frame.n
    gaps = draw(frame.values("nT", st.sampled_from(LADDER)))
    if distinct:
        order = np.argsort(draw(frame.values("nT", st.integers(0, 9))), axis=1, kind="stable")
        gaps = np.take_along_axis(np.cumsum(gaps, axis=1), order, axis=1)
    signs = draw(frame.values("nT", st.sampled_from((1.0, -1.0) if distinct else (1.0, -1.0, 0.0))))
    signs = np.where(below, -1.0, np.where(above, 1.0, signs))
    signs[np.arange(n), alpha] = 0.0
    scores = draw(frame.values("n", st.integers(-2, 2).map(float)))[:, None] + signs * gaps
    return np.asarray(scores * (4.0 if draw(one_in(8)) else 1.0))


@st.composite
def direction_cases(
    draw: DrawFn,
    *,
    kinds: Collection[Kind] = ("lower", "mixed", "tied", "near", "higher"),
    general: bool = True,
    losses: Collection[str] = tuple(LOSSES),
) -> Case:
    """A case with a direction ``q`` and the cone of Theorem 4 (``cone_mu``, ``cone_radius``).

    Args:
        kinds: what the directional neighbours score; "lower" and "near" become "higher" in dimension one, where every
            neighbour-optimal direction is max-margin.
        general: distinct scores and keys in general position.
        losses: names of losses.
    """
    kind = draw(st.sampled_from(tuple(kinds)))
    shape = draw(st.sampled_from(_shapes(2 if kind in ("lower", "near", "tied") else 1)))
    frame = Frame(*shape, shape)
    alpha = np.array(draw(frame.values("n", st.integers(0, frame.tokens - 1))), dtype=np.int64)
    q, pivot = draw(key_directions(frame))
    levels = draw(_levels(frame, alpha, ties=kind == "tied", single=False))
    keys = draw(
        _keys_of_levels(frame, alpha, levels, q, pivot, off_axis=kind == "lower", general=general)
    )
    if kind == "near":
        q = draw(_near_max_margin(keys, alpha))
    found = direction(keys, q)
    below, above = _constraints(draw, kind, keys, alpha, found.neighbours, found.selected)
    scores = draw(_scores(frame, alpha, below, above, distinct=general))
    unit = 1 / found.margin if np.isfinite(found.margin) else 1.0
    arrays = {
        "q": np.asarray(q * draw(st.sampled_from((1.0, 1.0, 3.0, 2.0**-30)))),
        "cone_mu": np.array(draw(st.sampled_from((0.5, 0.125, 2.0**-10, 2.0**-20)))),
        "cone_radius": np.array(unit * draw(st.sampled_from((1.0, 16.0, 256.0)))),
    }
    problem = Problem(keys, scores, loss_named(draw(st.sampled_from(tuple(losses)))))
    return Case(problem, arrays=MappingProxyType(arrays), seed=draw(st.integers(0, 2**32 - 1)))


@st.composite
def _near_max_margin(
    draw: DrawFn, keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"]
) -> Float64[np.ndarray, "d"]:
    """p_mm(α), rounded, moved sideways by 1e-3 to 1e-9 of its length; it selects α still, unless margins are wild."""
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin), "q separates α by construction"
    d = keys.shape[2]
    j, distance = draw(st.integers(0, d - 1)), draw(st.sampled_from(NEAR))
    axis = np.eye(d)[j] if abs(solution.direction[j]) < 0.9 else np.eye(d)[(j + 1) % d]
    sign = draw(st.sampled_from((1.0, -1.0)))
    return np.asarray(solution.direction + sign * distance * (axis - (axis @ solution.direction) * solution.direction))


def _constraints(
    draw: DrawFn,
    kind: Kind,
    keys: Float64[np.ndarray, "n T d"],
    alpha: Int64[np.ndarray, "n"],
    neighbours: Bool[np.ndarray, "n T"],
    selected: Bool[np.ndarray, "n T"],
) -> tuple[Bool[np.ndarray, "n T"], Bool[np.ndarray, "n T"]]:
    """Which tokens must score below α's, and which above."""
    nothing = np.zeros_like(neighbours)
    if kind == "higher":
        return nothing, neighbours
    if kind == "mixed":
        above = nothing.copy()
        pairs = np.argwhere(neighbours)
        above[tuple(pairs[draw(st.integers(0, len(pairs) - 1))])] = True
        return nothing, above
    if kind == "tied":
        return nothing, nothing
    if kind == "near":
        solution = max_margin(keys, alpha)
        assert isinstance(solution, MaxMargin), "q separates α by construction"
        return neighbours | solution.neighbours, nothing
    return neighbours, nothing


@st.composite
def pair_cases(
    draw: DrawFn, *, kinds: Collection[Kind] = ("lower", "higher"), losses: Collection[str] = tuple(LOSSES)
) -> Case:
    """A case of Lemma 8: q1 = q, and q2 between it and the max-margin direction, whose margin is larger."""
    kind = draw(st.sampled_from(tuple(kinds)))
    shape = draw(st.sampled_from(_shapes(2)))
    frame = Frame(*shape, shape)
    alpha = np.array(draw(frame.values("n", st.integers(0, frame.tokens - 1))), dtype=np.int64)
    q, pivot = draw(key_directions(frame))
    levels = draw(_levels(frame, alpha, ties=False, single=kind == "higher"))
    keys = draw(_keys_of_levels(frame, alpha, levels, q, pivot, off_axis=True, general=False))
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin), "q separates α by construction"
    share = draw(st.sampled_from((1.0, 0.5, 2.0**-4, 2.0**-10, 2.0**-20)))
    first = direction(keys, q)
    wider = (1 - share) * first.unit + share * solution.direction
    if margin_sign(first, direction(keys, wider)) >= 0:
        wider = solution.direction  # a share of 2^−20 has been lost to rounding
    second = direction(keys, wider)
    nothing = np.zeros_like(first.neighbours)
    below = first.neighbours | second.neighbours | solution.neighbours if kind == "lower" else nothing
    above = first.neighbours if kind == "higher" else nothing
    scores = draw(_scores(frame, alpha, below, above, distinct=False))
    problem = Problem(keys, scores, loss_named(draw(st.sampled_from(tuple(losses)))))
    arrays = MappingProxyType({"q1": np.asarray(q), "q2": np.asarray(wider)})
    return Case(problem, arrays=arrays, seed=draw(st.integers(0, 2**32 - 1)))


def directions_for(case: Case) -> Iterator[Case]:
    """The case with its own q, or with seeded ones: anywhere, and near p_mm of the chosen tokens."""
    if "q" in case.arrays:
        yield case
        return
    rng, problem = case.rng(), case.problem
    tries = [np.round(1024 * rng.standard_normal(problem.d)) / 1024 for _ in range(4)]
    solution = max_margin(problem.keys, case.chosen)
    if isinstance(solution, MaxMargin):
        tries += [solution.direction + NEAR[0] * rng.standard_normal(problem.d), solution.direction]
    for q in tries:
        if q.any():
            yield case.but(arrays=MappingProxyType({**case.arrays, "q": q}))


def pairs_for(case: Case) -> Iterator[Case]:
    """The case with its own q1 and q2, or with the directions of :func:`directions_for` and wider ones."""
    if "q1" in case.arrays and "q2" in case.arrays:
        yield case
        return
    keys = case.problem.keys
    for one in directions_for(case):
        first = direction(keys, one.arrays["q"])
        solution = max_margin(keys, first.best(case.problem.scores))
        if first.unique and isinstance(solution, MaxMargin):
            pair = {"q1": first.q, "q2": np.asarray((first.unit + solution.direction) / 2)}
            yield case.but(arrays=MappingProxyType({**case.arrays, **pair}))
