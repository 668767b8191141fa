"""Cases in which the rows k_α − k_t of SVM-neighbours t are linearly dependent, made with the midpoint of two supports.

A support is a token with a positive dual in ATT-SVM; an SVM-neighbour is a token of margin 1. The row k_α − k_t is
linear in k_t. So the midpoint of two supports also has margin 1, the row of the midpoint is the mean of the rows of
both supports, and some of their duals can be moved to the midpoint. If an input has only one support, the midpoint is a
copy of that support.

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
    """Make the rows of SVM-neighbours linearly dependent by replacing a token by the midpoint of two supports.

    The replaced token has a zero dual in ATT-SVM. If no token has a zero dual, return the tokens unchanged.

    Args:
        tokens: shape (n, T, d), separable.
        alpha: the chosen tokens.
        solve: the function that solves ATT-SVM(α) of tokens; it returns None if ATT-SVM is infeasible.
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
        # A rounded midpoint would not have margin 1 exactly; in that case copy a support instead.
        changed[i, spare[0]] = middle if (middle - first == last - middle).all() else first
        return changed
    return tokens
