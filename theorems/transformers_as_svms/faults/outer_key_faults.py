"""Planted faults in the keys vec(x zᵀ) of tokens x and queries z."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from reference_attention.problem import KeysAndScores
from reference_attention.query_dataset import QueryDataset, outer_keys_and_scores
from theorems.faults.fault import Faults, Kind
from theorems.faults.token_faults import in_float32

TOKENS = Faults(Kind.DATA)
Right = Callable[..., KeysAndScores]


@TOKENS.plant("outer-keys-transposed", "vec(z xᵀ) instead of vec(x zᵀ)", "tsvm-rank", outer_keys_and_scores)
def _transpose_outer(right: Right, data: QueryDataset) -> KeysAndScores:
    n, T, d = data.X.shape
    keys = data.problem.keys.reshape(n, T, d, -1).swapaxes(2, 3).reshape(n, T, -1)
    return keys, data.problem.scores


@TOKENS.plant(
    "queries-of-the-next-input",
    "an input's keys use the query of another input",
    "tsvm-rank",
    outer_keys_and_scores,
)
def _queries_of_the_next_input(right: Right, data: QueryDataset) -> KeysAndScores:
    return replace(data, queries=np.roll(data.queries, 1, axis=0)).problem.keys, data.problem.scores


@TOKENS.plant("outer-keys-of-float32", "vec(x zᵀ) in float32", "tsvm-rank", outer_keys_and_scores)
def _single_outer(right: Right, data: QueryDataset) -> KeysAndScores:
    """Scale the keys to entries of at most ⅓ and round them to float32, so that precision is lost but not range."""
    unit = float(np.abs(data.problem.keys).max())
    return in_float32(data.problem.keys / unit / 3) * unit * 3, data.problem.scores
