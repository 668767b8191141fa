"""SVM-neighbours with dependent rows that can all have a positive dual: the midpoint of two supports.

k_α − k_t is linear in k_t: the midpoint of two tokens of margin 1 has margin 1, its row is the mean of their rows, and
a part of their duals can be moved to it. The two supports may be the same token; then the midpoint is a copy of it.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM), Definition 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.svm.max_margin import MaxMargin

Tokens = Float64[np.ndarray, "n T d"]


def with_dependent_neighbour(
    tokens: Tokens, alpha: Int64[np.ndarray, "n"], solve: Callable[[Tokens], MaxMargin | None]
) -> Tokens:
    """Replace a token without a dual by the midpoint of two supports; make no change if every token has a dual.

    Args:
        tokens: shape (n, T, d), separable.
        alpha: the chosen tokens.
        solve: solves ATT-SVM(α) of tokens; returns None where it is infeasible.
    """
    svm = solve(tokens)
    if svm is None:
        return tokens
    for i in range(len(tokens)):
        supports = np.flatnonzero(svm.duals[i] > 0)
        spare = [t for t in range(tokens.shape[1]) if t != alpha[i] and svm.duals[i, t] == 0]
        if not len(supports) or not spare:
            continue
        first, last = tokens[i, supports[0]], tokens[i, supports[-1]]
        middle = (first + last) / 2
        changed = tokens.copy()
        # A rounded midpoint would not have margin 1.
        changed[i, spare[0]] = middle if (middle - first == last - middle).all() else first
        return changed
    return tokens
