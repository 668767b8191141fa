"""Changes that make tokens of joint training like users' data (realistic), as far as Assumption C allows.

The chosen tokens, whose entries are small dyadic multiples of the label margin Γ, are not changed, because their
weighted sum has to vanish exactly. Other tokens may lie anywhere inside the convex hull of the ball of radius Γ and the
chosen token of their input. The tokens c x_iα + e of :mod:`generators.joint_cases` keep a distance of Γ (1 − c)/8 from
the boundary of this hull. So they may be rounded to three digits or to float16, a token may be replaced by one that
differs from another by a thousandth, or by an SVM-neighbour with a zero dual: a copy of a token with a positive dual,
moved by 0.014 Γ in a coordinate that is 0 in all others. In four dimensions W drops e_0. Tokens are not rotated.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption C.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64, Int64

from generators.idle_neighbours import can_have_idle_neighbour, solver, with_idle_neighbour
from generators.numbers import one_in

Tokens = Float64[np.ndarray, "n T d"]

STEP = 0.001
"""The difference between nearly equal tokens, in one coordinate."""
ASIDE = 0.014
"""The distance of a moved copy from the copied token, in units of Γ; less than a quarter of the least 1 − c."""


@st.composite
def realistic_joint_tokens(
    draw: DrawFn, X: Tokens, alpha: Int64[np.ndarray, "n"], gamma: float
) -> tuple[Tokens, Float64[np.ndarray, "k d"] | None]:
    """Make the tokens of :func:`generators.joint_cases.joint_cases` realistic, and choose W.

    All tokens except the chosen ones are rounded. Some data also have two nearly equal tokens, a constant coordinate,
    or a token that differs from another one in a single coordinate.

    Args:
        draw: the function that Hypothesis passes.
        X: the tokens before any rotation, so that the axis e_1 separates the chosen tokens.
        alpha: the chosen tokens.
        gamma: the label margin Γ, at least 1/2.
    """
    n, T, d = X.shape
    free = np.arange(T) != alpha[:, None]
    rounded = np.round(X, 3) if draw(st.booleans()) else X.astype(np.float16).astype(np.float64)
    tokens = np.where(free[:, :, None], rounded, X)
    if T > 2 and draw(one_in(3)):
        i, axis = draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))
        first, second = np.flatnonzero(free[i])[:2]
        tokens[i, second] = tokens[i, first]
        # Move downwards, as upwards along e_1 the token might pass the chosen token.
        tokens[i, second, axis] -= STEP
    if d < 3:
        return tokens, None
    axis = draw(st.integers(2, d - 1))
    in_keys = np.ones(d, dtype=bool)
    if d > 3:
        # Keys have a third coordinate besides e_1 and the axis; with only these two, p_mm would be along e_1.
        in_keys[0] = False
    W = None if in_keys.all() else np.eye(d)[in_keys]
    if can_have_idle_neighbour(tokens.shape) and draw(st.integers(0, 3)):
        tokens[:, :, axis] = 0.0
        solve = solver(alpha)
        return with_idle_neighbour(tokens, alpha, axis, ASIDE * gamma, lambda flat: solve(flat[:, :, in_keys])), W
    if draw(one_in(3)):
        tokens[:, :, axis] = 0.0
    return tokens, W


@st.composite
def repeated_joint_inputs(draw: DrawFn, n: int, most: int) -> Int64[np.ndarray, "m"]:
    """Draw the indices of n inputs; one time in three an input occurs twice, if n is less than ``most``.

    Both copies share the dual of the input, so that the max-margin head does not change.
    """
    every = np.arange(n)
    if n < most and draw(one_in(3)):
        return np.append(every, draw(st.integers(0, n - 1)))
    return every
