"""Strategies for cases with a direction q whose selected tokens, neighbours and ties are given by construction.

The keys, and their distances along q, are drawn in :mod:`generators.direction_keys`; scores are drawn after the keys.

One case in five has data as users have them: in the directions orthogonal to q, keys are features of few bits, and
scores may have few distinct values. General position excludes constant coordinates and copies. Where keys need not be
in general position, a support (token with a positive dual) may be copied, and the copy moved in a coordinate in which q
and p_mm are zero, unless this would change the kind of the case.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 3, Lemmas 8–10, Theorem 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from generators.direction_keys import direction_levels, keys_of_levels
from generators.general_position import matrices
from generators.idle_neighbours import solver, with_idle_neighbour
from generators.keys import key_directions
from generators.numbers import Frame, Large, one_in
from generators.realistic_numbers import is_realistic
from reference_attention.directions import direction, exact_direction, margin_difference, margin_sign
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin

Kind = Literal["lower", "higher", "mixed", "tied", "near"]
"""Kinds of cases: all directional neighbours of q score lower than the selected tokens ("lower"); all score higher
("higher"); at least one scores higher ("mixed"); q selects several tokens of an input ("tied"); q is near a locally
max-margin (LMM) direction."""

LARGEST = (3, 4, 4)
"""The largest number of inputs n, number of tokens T and dimension d."""
MOST_MATRICES_DRAWN = 1_200
"""The largest number of matrices that the check of general position enumerates per drawn case."""
LADDER = (1.0, 2.0, 0.5, 3.0, 0.125, 2.0**-20)
"""The distances between scores that are drawn."""
IDLE = ("higher", "mixed", "near")
"""The kinds that do not change if a token is replaced by a copy of another token."""
NEAR = (2.0**-20, 2.0**-10, 2.0**-30)
"""Relative distances of q from a locally max-margin direction in "near" cases; a failing case shrinks to the first."""
DISCERNIBLE = 2.0**-42
"""The least difference of two directions' margins, in units of max ‖k_iα − k_it‖, that a check in float64 resolves.

The check uses prompts whose norms are a few times the reciprocal of the difference; their logits have a relative error
of 2⁻⁵² (d + 8).
"""


@cache
def _shapes(smallest_d: int) -> tuple[tuple[int, int, int], ...]:
    ranges = (range(1, LARGEST[0] + 1), range(2, LARGEST[1] + 1), range(smallest_d, LARGEST[2] + 1))
    return tuple(s for s in product(*ranges) if matrices(*s) <= MOST_MATRICES_DRAWN)


@cache
def _wide_shapes(large: Large) -> tuple[tuple[int, int, int], ...]:
    """Return the shapes (n, T, d) of the sizes ``large`` at which few enough matrices have to be checked."""
    every = product(range(1, large.n[1] + 1), large.tokens, large.d)
    return tuple(s for s in every if s[0] * s[1] * s[2] <= large.entries and matrices(*s) <= MOST_MATRICES_DRAWN)


@st.composite
def _scores(
    draw: DrawFn,
    frame: Frame,
    alpha: Int64[np.ndarray, "n"],
    below: Bool[np.ndarray, "n T"],
    above: Bool[np.ndarray, "n T"],
    *,
    distinct: bool,
    few: bool = False,
) -> Float64[np.ndarray, "n T"]:
    """Draw scores: lower than that of α_i where ``below`` is True, higher where ``above`` is True, any elsewhere.

    Scores may be equal unless ``distinct``. With ``few``, all scores are multiples of u = 1 or 4; unless
    ``distinct``, they are −u, 0 or u.
    """
    n = frame.n
    gaps = draw(frame.values("nT", st.sampled_from(LADDER[:1] if few else LADDER)))
    if distinct:
        order = np.argsort(draw(frame.values("nT", st.integers(0, 9))), axis=1, kind="stable")
        gaps = np.take_along_axis(np.cumsum(gaps, axis=1), order, axis=1)
    signs = draw(frame.values("nT", st.sampled_from((1.0, -1.0) if distinct else (1.0, -1.0, 0.0))))
    signs = np.where(below, -1.0, np.where(above, 1.0, signs))
    signs[np.arange(n), alpha] = 0.0
    bases = np.zeros(n) if few else draw(frame.values("n", st.integers(-2, 2).map(float)))
    scores = bases[:, None] + signs * gaps
    return np.asarray(scores * (4.0 if draw(one_in(8)) else 1.0))


@st.composite
def direction_cases(
    draw: DrawFn,
    *,
    kinds: Collection[Kind] = ("lower", "mixed", "tied", "near", "higher"),
    general: bool = True,
    losses: Collection[str] = DRAWN_LOSSES,
    large: Large | None = None,
) -> Case:
    """Draw a case with a direction ``q`` and the cone of Theorem 4 (``cone_mu``, ``cone_radius``).

    Args:
        draw: the function that Hypothesis passes.
        kinds: the kinds of cases; "lower" and "near" become "higher" in dimension one, where every neighbour-optimal
            direction is max-margin.
        general: whether scores are distinct and keys in general position.
        losses: the names of the losses to draw from.
        large: the ranges of sizes of one case in five; only sizes are drawn at which general position can be decided.
    """
    users = draw(is_realistic())
    kind = draw(st.sampled_from(tuple(kinds)))
    wide = large is not None and draw(one_in(5))
    shapes = _wide_shapes(large) if large and wide else _shapes(2 if kind in ("lower", "near", "tied") else 1)
    shape = draw(st.sampled_from(shapes))
    frame = Frame(*shape, shape)
    alpha = np.array(draw(frame.values("n", st.integers(0, frame.tokens - 1))), dtype=np.int64)
    q, pivot = draw(key_directions(frame))
    levels = draw(direction_levels(frame, alpha, ties=kind == "tied", single=False))
    keys = draw(keys_of_levels(frame, alpha, levels, q, pivot, off_axis=kind == "lower", general=general, users=users))
    if users and not general and kind in IDLE:
        keys = draw(_with_idle_neighbour(keys, alpha, q))
    if kind == "near":
        q = draw(_near_max_margin(keys, alpha))
    exact = direction(keys, q)
    below, above = _constraints(draw, kind, keys, alpha, exact.neighbours, exact.selected)
    few = users and draw(st.booleans())
    scores = draw(_scores(frame, alpha, below, above, distinct=general, few=few))
    unit = 1 / exact.margin if np.isfinite(exact.margin) else 1.0
    arrays = {
        "q": np.asarray(q * draw(st.sampled_from((1.0, 1.0, 3.0, 2.0**-30)))),
        "cone_mu": np.array(draw(st.sampled_from((0.5, 0.125, 2.0**-10, 2.0**-20)))),
        "cone_radius": np.array(unit * draw(st.sampled_from((1.0, 16.0, 256.0)))),
    }
    problem = Problem(keys, scores, loss_named(draw(st.sampled_from(tuple(losses)))))
    case = Case(problem, arrays=MappingProxyType(arrays), seed=draw(st.integers(0, 2**32 - 1)))
    return draw(_in_other_units(case, "q"))


@st.composite
def _with_idle_neighbour(
    draw: DrawFn,
    keys: Float64[np.ndarray, "n T d"],
    alpha: Int64[np.ndarray, "n"],
    q: Float64[np.ndarray, "d"],
) -> Float64[np.ndarray, "n T d"]:
    """Replace a token by a copy of a support, moved in a coordinate in which q is zero, if there is such a coordinate.

    A support is a token with a positive dual. The distances along q of all other tokens do not change.
    """
    axes = np.flatnonzero(q == 0).tolist()
    if not axes or keys.shape[1] < 3:
        return keys
    axis, aside = draw(st.sampled_from(axes)), draw(st.sampled_from((1.0, -1.0, 0.25)))
    return with_idle_neighbour(keys, alpha, axis, float(keys[0, 0, axis]) + aside, solver(alpha), loose=False)


@st.composite
def _in_other_units(draw: DrawFn, case: Case, *directions: str) -> Case:
    """Multiply the keys of one case in four, and the directions of one case in two, by a factor in 1e-120 … 1e120.

    The factor is a power of two: nothing is rounded, so ties and neighbours do not change.
    """
    far = st.integers(-398, 398).map(lambda k: 2.0**k)
    scale = draw(far) if draw(one_in(4)) else 1.0
    arrays = {
        name: np.asarray(value / scale) if name == "cone_radius" else value for name, value in case.arrays.items()
    }
    if draw(one_in(2)):
        arrays |= {name: case.arrays[name] * draw(far) for name in directions}
    return case.replace(problem=case.problem.with_keys_scaled(scale), arrays=MappingProxyType(arrays))


@st.composite
def _near_max_margin(
    draw: DrawFn, keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"]
) -> Float64[np.ndarray, "d"]:
    """Draw a direction near p_mm(α): a unit vector along p_mm(α) plus an orthogonal vector of length 1e-9 to 1e-3.

    The direction still selects α, unless margins differ by orders of magnitude. The margin may change only to second
    order in the length of the orthogonal vector; that vector is lengthened until the margin changes by
    :data:`DISCERNIBLE` or more.
    """
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin), "q separates α by construction"
    d = keys.shape[2]
    j, distance = draw(st.integers(0, d - 1)), draw(st.sampled_from(NEAR))
    axis = np.eye(d)[j] if abs(solution.direction[j]) < 0.9 else np.eye(d)[(j + 1) % d]
    sign = draw(st.sampled_from((1.0, -1.0)))
    best, least = exact_direction(keys, solution.exact.p), DISCERNIBLE * _reach(keys, alpha)
    while True:
        aside = sign * distance * (axis - (axis @ solution.direction) * solution.direction)
        q = np.asarray(solution.direction + aside)
        if distance >= NEAR[1] or margin_difference(best, direction(keys, q)) >= least:
            return q
        distance *= 4


def _reach(keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"]) -> float:
    """Return the largest distance ‖k_iα_i − k_it‖ of a key from the chosen key of the same input."""
    rows = np.take_along_axis(keys, alpha[:, None, None], axis=1) - keys
    return float(np.linalg.norm(rows, axis=2).max())


def _constraints(
    draw: DrawFn,
    kind: Kind,
    keys: Float64[np.ndarray, "n T d"],
    alpha: Int64[np.ndarray, "n"],
    neighbours: Bool[np.ndarray, "n T"],
    selected: Bool[np.ndarray, "n T"],
) -> tuple[Bool[np.ndarray, "n T"], Bool[np.ndarray, "n T"]]:
    """Return two masks: the tokens that must score below the chosen token, and the tokens that must score above it."""
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
    draw: DrawFn, *, kinds: Collection[Kind] = ("lower", "higher"), losses: Collection[str] = DRAWN_LOSSES
) -> Case:
    """Draw a case of Lemma 8: a direction q1, and a q2 of larger margin between q1 and the max-margin direction."""
    users = draw(is_realistic())
    kind = draw(st.sampled_from(tuple(kinds)))
    shape = draw(st.sampled_from(_shapes(2)))
    frame = Frame(*shape, shape)
    alpha = np.array(draw(frame.values("n", st.integers(0, frame.tokens - 1))), dtype=np.int64)
    q, pivot = draw(key_directions(frame))
    levels = draw(direction_levels(frame, alpha, ties=False, single=kind == "higher"))
    keys = draw(keys_of_levels(frame, alpha, levels, q, pivot, off_axis=True, general=False, users=users))
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin), "q separates α by construction"
    share = draw(st.sampled_from((1.0, 0.5, 2.0**-4, 2.0**-10, 2.0**-20)))
    first, least = direction(keys, q), DISCERNIBLE * _reach(keys, alpha)
    wider = (1 - share) * first.unit + share * solution.direction
    while share < 1 and margin_difference(direction(keys, wider), first) < least:
        share *= 4
        wider = (1 - share) * first.unit + share * solution.direction if share < 1 else solution.direction
    if margin_sign(first, direction(keys, wider)) >= 0:
        wider = solution.direction  # rounding has removed the difference between the margins of q1 and q2
    second = direction(keys, wider)
    nothing = np.zeros_like(first.neighbours)
    below = first.neighbours | second.neighbours | solution.neighbours if kind == "lower" else nothing
    above = first.neighbours if kind == "higher" else nothing
    few = users and draw(st.booleans())
    scores = draw(_scores(frame, alpha, below, above, distinct=False, few=few))
    problem = Problem(keys, scores, loss_named(draw(st.sampled_from(tuple(losses)))))
    arrays = MappingProxyType({"q1": np.asarray(q), "q2": np.asarray(wider)})
    return draw(_in_other_units(Case(problem, arrays=arrays, seed=draw(st.integers(0, 2**32 - 1))), "q1", "q2"))


def directions_for(case: Case) -> Iterator[Case]:
    """Yield the case if it has a q, else with seeded random directions, p_mm(α) and one near p_mm(α) as q."""
    if "q" in case.arrays:
        yield case
        return
    rng, problem = case.rng(), case.problem
    tries = [np.round(1024 * rng.standard_normal(problem.d)) / 1024 for _ in range(4)]
    solution = max_margin(problem.keys, case.chosen_tokens)
    if isinstance(solution, MaxMargin):
        tries += [solution.direction + NEAR[0] * rng.standard_normal(problem.d), solution.direction]
    for q in tries:
        if q.any():
            yield case.replace(arrays=MappingProxyType({**case.arrays, "q": q}))


def pairs_for(case: Case) -> Iterator[Case]:
    """Yield the case if it has q1 and q2, else with each q of :func:`directions_for` as q1, and a wider q2."""
    if "q1" in case.arrays and "q2" in case.arrays:
        yield case
        return
    keys = case.problem.keys
    for with_q in directions_for(case):
        first = direction(keys, with_q.arrays["q"])
        solution = max_margin(keys, first.best(case.problem.scores))
        if first.unique and isinstance(solution, MaxMargin):
            pair = {"q1": first.q, "q2": np.asarray((first.unit + solution.direction) / 2)}
            yield case.replace(arrays=MappingProxyType({**case.arrays, **pair}))
