"""Strategies for scores: with ties if allowed, tiny and wide gaps, and locally but not globally optimal tokens.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption B, Definition 2, Theorem 4.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64, Int64

from generators.numbers import Frame, one_in

GAPS = (1.0, 2.0, 0.5, 3.0, 0.1, 2.0**-20)
"""The distances between scores that are drawn; the last distance is tiny, and 0.1 is no dyadic number."""
LEVELS = 3
"""The largest absolute value of the integer that is added to all scores of an input."""
STEP = (1.0,)
"""The distance between consecutive scores if there are few distinct scores, as for grades or counts."""


@st.composite
def free_scores(draw: DrawFn, frame: Frame, *, few: bool = False) -> Float64[np.ndarray, "n T"]:
    """Draw arbitrary scores: small integers, so that ties are frequent; if ``few``, only three values."""
    largest = 1 if few else LEVELS
    return draw(frame.integers("nT", -largest, largest)).astype(np.float64)


@st.composite
def optimal_scores(
    draw: DrawFn,
    frame: Frame,
    *,
    equal: bool = False,
    distinct: bool = False,
    ties: bool = False,
    few: bool = False,
) -> Float64[np.ndarray, "n T"]:
    """Draw scores with one optimal token per input, at any position.

    Args:
        draw: the function that Hypothesis passes.
        frame: the sizes n, T and d.
        equal: whether all other tokens have the same score (Assumption B).
        distinct: whether no two tokens of an input have the same score.
        ties: whether several tokens of an input may have the optimal score; at least one token of input 0 never has.
        few: whether all inputs share few score values: three, or T if scores are distinct.
    """
    n, tokens, _ = frame.shape
    best = draw(frame.integers("n", 0, tokens - 1))
    below = draw(frame.choices("nT", STEP if few and distinct else GAPS[:2] if few else GAPS))
    if equal:
        below[:] = below[:, :1]
    elif distinct:
        below = _ladder(draw, frame, below)
    if ties:
        shared = draw(frame.choices("nT", (False, True)))
        # Input 0 keeps a non-optimal token: the token after the best one.
        shared[0, (best[0] + 1) % tokens] = False
        below[shared] = 0
    below[np.arange(n), best] = 0
    return _spread(draw, _bases(draw, frame, few=few)[:, None] - below)


@st.composite
def locally_optimal_scores(
    draw: DrawFn,
    frame: Frame,
    alpha: Int64[np.ndarray, "n"],
    neighbours: Bool[np.ndarray, "n T"],
    *,
    strict: bool = False,
    equal: bool = False,
    distinct: bool = False,
    few: bool = False,
) -> Float64[np.ndarray, "n T"]:
    """Draw scores that are lower than that of α_i for SVM-neighbours, and arbitrary for all other tokens.

    Often α is not globally optimal.

    Args:
        draw: the function that Hypothesis passes.
        frame: the sizes n, T and d.
        alpha: the chosen tokens.
        neighbours: the mask of the SVM-neighbours of α.
        strict: whether one token per input scores strictly highest.
        equal: whether Assumption B holds; then α_i is optimal in inputs with SVM-neighbours, and in other inputs any
            token may be optimal.
        distinct: whether no two tokens of an input have the same score.
        few: whether all inputs share few score values, usually three.
    """
    n, tokens, _ = frame.shape
    every, chosen = np.arange(n), np.arange(tokens) == alpha[:, None]
    steps = draw(frame.choices("nT", STEP if few else GAPS))
    # The token that has to score highest is α_i or no SVM-neighbour, because SVM-neighbours score below α_i.
    best = draw(frame.integers("n", 0, tokens - 1))
    best = np.where(neighbours.any(axis=1) if equal else neighbours[every, best], alpha, best)
    if equal:
        above = np.zeros((n, tokens))
        above[every, best] = steps[every, best]
        return _spread(draw, _bases(draw, frame, few=few)[:, None] + above)
    if distinct:
        steps = _ladder(draw, frame, steps)
    signs = draw(frame.choices("nT", (-1.0, 1.0) if distinct else (-1.0, 1.0, 0.0)))
    above = np.where(neighbours, -steps, signs * steps)
    above[chosen] = 0.0
    if strict and not distinct:
        alpha_is_best = (best == alpha)[:, None]
        above = np.where(alpha_is_best & ~chosen, -steps, above)
        higher = np.maximum(0.0, above.max(axis=1)) + steps[every, best]
        above[every, best] = np.where(best == alpha, 0.0, higher)
    return _spread(draw, _bases(draw, frame, few=few)[:, None] + above)


def _bases(draw: DrawFn, frame: Frame, *, few: bool) -> Int64[np.ndarray, "n"]:
    """Draw for each input the integer that is added to all scores of the input; if ``few``, return 0 for all inputs."""
    return np.asarray(np.zeros(frame.n, dtype=np.int64) if few else draw(frame.integers("n", -LEVELS, LEVELS)))


def _ladder(draw: DrawFn, frame: Frame, gaps: Float64[np.ndarray, "n T"]) -> Float64[np.ndarray, "n T"]:
    """Return, for each row, the cumulative sums of the gaps, which are distinct positive numbers, in a drawn order."""
    order = np.argsort(draw(frame.integers("nT", 0, 9)), axis=1, kind="stable")
    return np.take_along_axis(np.cumsum(gaps, axis=1), order, axis=1)


def _spread(draw: DrawFn, scores: Float64[np.ndarray, "n T"]) -> Float64[np.ndarray, "n T"]:
    """Multiply the scores of one case in eight by a power of two, which keeps their order and ties."""
    return np.asarray(scores * draw(st.sampled_from((0.25, 4.0))) if draw(one_in(8)) else scores)
