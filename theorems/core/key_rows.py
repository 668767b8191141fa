"""Differences of keys with their rounding: none but that of the difference, also where keys are rounded products."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from reference_attention.problem import Problem
from theorems.rounding.bounded import exact


def key_rows(problem: Problem, token: Int64[np.ndarray, "*b n"]) -> Any:
    """k_i,token_i − k_it, shape (*b, n, T, d)."""
    inputs, factors = np.arange(problem.n), problem.factors
    if factors is None:
        return exact(problem.keys[inputs, token])[..., None, :] - problem.keys
    apart = exact(factors.tokens[inputs, token])[..., None, :] - factors.tokens
    products = apart[..., None] * factors.queries[:, None, None, :]
    return products.reshape(*products.shape[:-2], problem.d)
