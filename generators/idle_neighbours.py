"""Idle SVM-neighbours, of margin 1 with a zero dual: copies of supports, moved in a coordinate in which p_mm is zero.

A support is a token with a positive dual in ATT-SVM. First all tokens get the same entry in one coordinate, so that
p_mm is zero in this coordinate. A copy of a support that is moved in this coordinate has margin 1 like the support. The
dual of the copy is zero in every solution, because no other row k_α − k_t could cancel the entry of the copy's row in
this coordinate. Tokens of margin above 1 may have any entry in this coordinate: p_mm remains feasible and a combination
of the same rows, so that p_mm remains the solution. Sparse, one-hot and rounded features often have such neighbours.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM), Definition 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.svm.max_margin import MaxMargin, max_margin

Keys = Float64[np.ndarray, "n T d"]

MOST_SOLVED = 2**10
"""The largest number n T d of entries of keys for which ATT-SVM is solved to find a support."""


def can_have_idle_neighbour(shape: tuple[int, ...]) -> bool:
    """Return whether keys of shape (n, T, d) have T > 2 and d > 1, as a moved copy needs, and few enough entries."""
    n, tokens, d = shape
    return tokens > 2 and d > 1 and n * tokens * d <= MOST_SOLVED


def solver(alpha: Int64[np.ndarray, "n"]) -> Callable[[Keys], MaxMargin | None]:
    """Return a function from keys to the solution of ATT-SVM(α), or to None if ATT-SVM(α) is infeasible."""

    def solve(keys: Keys) -> MaxMargin | None:
        solution = max_margin(keys, alpha)
        return solution if isinstance(solution, MaxMargin) else None

    return solve


def with_idle_neighbour(
    tokens: Keys,
    alpha: Int64[np.ndarray, "n"],
    axis: int,
    moved_to: float,
    solve: Callable[[Keys], MaxMargin | None],
    *,
    loose: bool = True,
) -> Keys:
    """Replace a token by a copy of a support that is moved along ``axis``, in the first input that has a support.

    Args:
        tokens: shape (n, T, d), T ≥ 3; the tokens must still be separable if all entries on the axis are made equal.
        alpha: the chosen tokens.
        axis: the coordinate in which p_mm becomes zero.
        moved_to: the entry of the copy on the axis. All other tokens get the entry of the first token or, if that
            equals ``moved_to``, 0 or 1.
        solve: the function that solves ATT-SVM(α) of tokens; if the function returns None, the tokens are not changed.
        loose: whether tokens of margin above 1 keep their entry on the axis.
    """
    flat = tokens.copy()
    same = float(tokens[0, 0, axis])
    flat[:, :, axis] = same if same != moved_to else 0.0 if moved_to != 0 else 1.0
    while (svm := solve(flat)) is not None:
        i, t = (int(k) for k in np.argwhere(svm.duals > 0)[0])
        others = [k for k in range(flat.shape[1]) if k not in (t, alpha[i])]
        slot = next((k for k in others if svm.duals[i, k] == 0), others[0])
        spare = svm.duals[i, slot] == 0
        flat[i, slot] = flat[i, t]
        # If the replaced token was a support, p_mm may have changed: solve again. The solver gives only one of two
        # equal tokens a positive dual, so that in each input a token is replaced at most once.
        if not spare:
            continue
        if loose:
            far = ~svm.neighbours & (np.arange(flat.shape[1]) != alpha[:, None])
            far[i, slot] = False
            flat[far, axis] = tokens[far, axis]
        flat[i, slot, axis] = moved_to
        return flat
    return tokens
