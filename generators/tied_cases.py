"""Strategy for problems in which no prompt selects all optimal tokens, because some differences of keys cancel.

References: derived here; Farkas' lemma.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.numbers import STYLES, Style, entries, integers, one_in
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.problem import Problem

TIMES = (1.0, 1.0, 2.0, 0.5)
"""The weights λ with which rows cancel in a sum; products with these weights are exact."""
UNITS = (1.0, 1.0, 1.0, 2.0**-10, 2.0**20)
MOST = (5, 4, 4)
"""The largest number of inputs n, number of tokens T and dimension d."""


@st.composite
def tied_cases(draw: DrawFn) -> Case:
    """Draw a case whose optimal tokens are unique but cannot all be selected; other inputs may be separable.

    Two to four inputs i each have one row g_i = k_iα − k_it such that Σ λ_i g_i = 0 exactly, with weights λ_i > 0. If
    entries are decimals, these are two opposite rows. Otherwise they are arbitrary rows, possibly zero, and the last
    row cancels the weighted sum of the others. All further rows are arbitrary. In most cases the last coordinate is 0
    in the rows that cancel and positive in most other rows, so that the other inputs are separable; in a third of the
    cases the rows that cancel are opposite, and all other rows are separable. Some inputs may occur twice.
    """
    style = draw(STYLES)
    n, tokens, d = draw(st.integers(2, MOST[0])), draw(st.integers(2, MOST[1])), draw(st.integers(1, MOST[2]))
    mirrored = draw(one_in(3))
    opposed = 2 if mirrored or style is Style.DECIMALS else draw(st.integers(2, min(n, 4)))
    rows = draw(entries((n, tokens - 1, d), style, most=(MOST[0], MOST[1] - 1, MOST[2])))
    if d > 1 and (mirrored or not draw(one_in(4))):
        rows[..., -1] = np.abs(rows[..., -1]) + mirrored
        rows[:opposed, 0, -1] = 0.0
    times = np.array([1.0 if mirrored else draw(st.sampled_from(TIMES)) for _ in range(opposed - 1)])
    rows[opposed - 1, 0] = -(times @ rows[: opposed - 1, 0])
    keys = np.concatenate([np.zeros((n, 1, d)), -rows], axis=1)
    if style is not Style.DECIMALS:
        keys = keys + draw(entries((n, 1, d), style, most=(MOST[0], 1, MOST[2])))
    scores = draw(_scores(n, tokens))
    # Append copies of inputs, then permute all inputs.
    inputs = np.append(np.arange(n), draw(st.lists(st.integers(0, n - 1), max_size=MOST[0] - n)))
    inputs = np.array(draw(st.permutations(inputs.astype(np.int64).tolist())))
    order = np.array([draw(st.permutations(range(tokens))) for _ in inputs])
    keys = np.take_along_axis(keys[inputs], order[..., None], axis=1) * draw(st.sampled_from(UNITS))
    scores = np.take_along_axis(scores[inputs], order, axis=1)
    loss = loss_named(draw(st.sampled_from(sorted(DRAWN_LOSSES))))
    return Case(Problem(keys, scores, loss), seed=draw(st.integers(0, 2**32 - 1)), name="generated")


@st.composite
def _scores(draw: DrawFn, n: int, tokens: int) -> Float64[np.ndarray, "n T"]:
    """Draw scores that are highest for token 0 of each input; in half of the cases all other scores are equal."""
    best = draw(integers((n, 1), -2, 4, most=(MOST[0], 1))) / 2
    gaps = draw(integers((n, tokens - 1), 1, 6, most=(MOST[0], MOST[1] - 1))) / 2
    if draw(st.booleans()):
        gaps[:] = gaps[:, :1]
    return np.concatenate([best, best - gaps], axis=1)
