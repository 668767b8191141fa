"""SVM-neighbours without a dual: a copy of a support that differs from it in a coordinate in which p_mm is zero.

In one coordinate all tokens are equal, so that p_mm is zero there. A copy of a support that is moved in this coordinate
has margin 1 like the support, but no dual solution gives it weight, since no other row could cancel its entry in this
coordinate. Tokens of margin above 1 may then have any entry in this coordinate: p_mm is still feasible and still the
same combination of rows, so it is still the solution. Sparse, one-hot and rounded features often have such neighbours.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM), Definition 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.svm.max_margin import MaxMargin, max_margin

Keys = Float64[np.ndarray, "n T d"]

MOST_SOLVED = 2**10
"""The largest number of entries of keys for which ATT-SVM is solved to find a support."""


def can_have_idle_neighbour(shape: tuple[int, ...]) -> bool:
    """Return whether the shape allows a copy and a free coordinate, and is small enough to solve ATT-SVM quickly."""
    n, tokens, d = shape
    return tokens > 2 and d > 1 and n * tokens * d <= MOST_SOLVED


def solver(alpha: Int64[np.ndarray, "n"]) -> Callable[[Keys], MaxMargin | None]:
    """Return a function that solves ATT-SVM(α) of keys and returns None where it is infeasible."""

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
    """Replace a token by such a moved copy of a support, in the first input that has a support.

    Args:
        tokens: shape (n, T, d), T ≥ 3; separable also if all entries on the axis are equal.
        alpha: the chosen tokens.
        axis: the coordinate in which p_mm becomes zero.
        moved_to: the entry of the copy on the axis; all other tokens get the entry of the first token, or 0 if that
            equals ``moved_to``.
        solve: solves ATT-SVM(α) of tokens; returns None if it is infeasible, and then the tokens are not changed.
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
        # Of two equal tokens only one counts as a support, so that in each input a token is replaced at most once.
        if not spare:
            continue
        if loose:
            far = ~svm.neighbours & (np.arange(flat.shape[1]) != alpha[:, None])
            far[i, slot] = False
            flat[far, axis] = tokens[far, axis]
        flat[i, slot, axis] = moved_to
        return flat
    return tokens
