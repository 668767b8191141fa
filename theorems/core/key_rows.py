"""Differences of keys with their rounding: none but that of the difference, also where keys are rounded products."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int64

from reference_attention.problem import Problem
from theorems.rounding.bounded import exact
from theorems.rounding.bounded.arithmetic import Arithmetic, current

LARGE = 4096
"""Entries of keys from which on it pays to ask whether points refer to the same tokens."""


def key_rows(problem: Problem, token: Int64[np.ndarray, "*b n"]) -> Any:
    """k_i,token_i − k_it, shape (*b, n, T, d)."""
    if problem.keys.size < LARGE:
        return _rows(problem, token)
    # Far out nearly every point refers to the tokens that are selected.
    distinct, which = np.unique(token.reshape(-1, problem.n), axis=0, return_inverse=True)
    if len(distinct) > 1:
        return _rows(problem, distinct)[which.reshape(token.shape[:-1])]
    rows = _rows_of_one(problem, tuple(distinct[0].tolist()), type(exact(0.0)).__name__, current())
    return np.broadcast_to(rows, (*token.shape, problem.T, problem.d))


@lru_cache(maxsize=4)
def _rows_of_one(problem: Problem, token: tuple[int, ...], kind: str, arithmetic: Arithmetic) -> Any:
    """By kind of number and arithmetic, too: a search asks in plain floats for what a claim asks with its rounding."""
    return _rows(problem, np.array(token, dtype=np.int64))


def _rows(problem: Problem, token: Int64[np.ndarray, "*b n"]) -> Any:
    inputs, factors = np.arange(problem.n), problem.factors
    if factors is None:
        return exact(problem.keys[inputs, token])[..., None, :] - problem.keys
    apart = exact(factors.tokens[inputs, token])[..., None, :] - factors.tokens
    products = apart[..., None] * factors.queries[:, None, None, :]
    return products.reshape(*products.shape[:-2], problem.d)
