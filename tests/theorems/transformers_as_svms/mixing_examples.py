"""Data whose best attention, which mixes tokens, is known by hand; one for each distinction made by statements on it.

s⋆ are the best softmax weights, λ is the penalty, ν the duals of tokens of weight 0, W^mm the solution of Gen-SVM,
W_fin the finite part of W, and o the limit of the path's offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.case import Case
from generators.mixing_assumptions import PENALTY
from reference_attention.query_dataset import QueryDataset


def mixing_case(X: Any, queries: Any, v: Any, penalty: float) -> Case:
    """Return a case with the given tokens (n, T, d), queries (n, e), head and penalty λ."""
    data = QueryDataset(np.array(X, dtype=np.float64), queries, np.ones(len(X)), v, "correlation")
    return Case(data.problem, queried=data, arrays={PENALTY: np.array([penalty])}, seed=7)


FOUR = mixing_case([np.eye(4)], [[1.0]], [4, 3, 2, 1], 1.0)
"""The case with scores (4, 3, 2, 1) and λ = 1, for which s⋆ = (3, 1, 0, 0)/4, ν = (0, 0, 1, 3)/2, W^mm = (1, 1, −1,
−1)/2, W_fin = (log 3)/2 · (1, −1, 0, 0) and o = (log 3)/2 · (1, −1, 1, −1).
"""

CASES: dict[str, Case] = {
    "four": FOUR,
    "single": mixing_case([np.eye(3)], [[2.0]], [4, 1, 0], 1.0),
    "two-inputs": mixing_case(
        [np.eye(5)[[0, 1, 2, 3]], np.eye(5)[[4, 2, 1, 0]]], [[1.0, 0.0], [1.0, 2.0]], [3, 2.5, 1, 0, 2], 0.5
    ),
    "two-tokens": mixing_case([np.eye(2)], [[1.0]], [8, 0], 1.0),
    "tied": mixing_case([np.eye(3)], [[1.0]], [2, 2, 0], 1.0),
    "twins": mixing_case([np.eye(3)] * 2, [[1.0]] * 2, [2, 1.5, 0], 0.5),
    "a-short-query": mixing_case([np.eye(3)[[0, 1]], np.eye(3)[[0, 2]]], [[1.0, 1.0], [2.0**-7, 0.0]], [4, 0, 4], 1.0),
    "turned": mixing_case([np.eye(4) - 0.5], [[1.0, -2.0]], [1, 0, -3, 4], 1.25),
}
"""The cases by names that say what is special."""
