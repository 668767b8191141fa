"""Differences of keys with bounds of their rounding error, which include the rounding of the keys themselves.

If W is trained, a key is a product x zᵀ, whose entries are in general not floats. Exact decisions use the factors x and
z. An implementation gets the keys as floats, each entry rounded once, and computes logits, weights and gradient from
them. For nearly equal tokens the difference of rounded keys has a large relative error. The bounds here contain both
the exact and the rounded differences; so all numbers computed from them are correct for either.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int64

from reference_attention.problem import Problem
from theorems.bounded import Bounded, exact
from theorems.bounded.arithmetic import UNIT, Arithmetic, current

LARGE = 4096
"""Number of entries of the keys above which the differences are computed once for all points with the same largest
logits."""


def key_rows(problem: Problem, token: Int64[np.ndarray, "*b n"]) -> Any:
    """Return the differences k_i,token_i − k_it, (*b, n, T, d), with bounds for exact and for rounded keys."""
    if problem.keys.size < LARGE:
        return _rows(problem, token)
    # At large norms of the prompt, nearly every point selects the same tokens.
    distinct, inverse = np.unique(token.reshape(-1, problem.n), axis=0, return_inverse=True)
    if len(distinct) > 1:
        return _rows(problem, distinct)[inverse.reshape(token.shape[:-1])]
    rows = _rows_of_one(problem, tuple(distinct[0].tolist()), type(exact(0.0)).__name__, current())
    return np.broadcast_to(rows, (*token.shape, problem.T, problem.d))


@lru_cache(maxsize=4)
def _rows_of_one(problem: Problem, token: tuple[int, ...], kind: str, arithmetic: Arithmetic) -> Any:
    """Return the differences for one choice of tokens, cached.

    ``kind`` (floats or bounded arrays) and ``arithmetic`` only distinguish the entries of the cache.
    """
    return _rows(problem, np.array(token, dtype=np.int64))


def _rows(problem: Problem, token: Int64[np.ndarray, "*b n"]) -> Any:
    inputs, factors = np.arange(problem.n), problem.factors
    if factors is None:
        return exact(problem.keys[inputs, token])[..., None, :] - problem.keys
    apart = exact(factors.tokens[inputs, token])[..., None, :] - factors.tokens
    products: Any = apart[..., None] * factors.queries[:, None, None, :]
    rows = products.reshape(*products.shape[:-2], problem.d)
    if not isinstance(rows, Bounded):
        return rows
    size = np.abs(problem.keys)
    # Twice the unit roundoff also covers the rounding of this sum. Tokens with the same factors have equal rounded
    # keys, and need no such error.
    keys = 2 * UNIT * (size[inputs, token][..., None, :] + size)
    return rows.widen(np.where(rows.value == 0, 0.0, keys))
