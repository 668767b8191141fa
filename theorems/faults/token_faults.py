"""Faults in what is made of tokens: keys X Wᵀ or vec(x zᵀ), and scores Y Xv."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from reference_attention.problem import Dataset
from reference_attention.query_dataset import QueryDataset
from theorems.core.implementation import REFERENCE, Implementation, KeysAndScores
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True)
class OtherProducts:
    """Keys and scores by another function of the data. Calling it with a size makes the fault."""

    made: Callable[[Dataset], KeysAndScores]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", keys_and_scores=self.made)


def _transpose(data: Dataset) -> KeysAndScores:
    W = data.key_query
    keys = data.problem.keys if W.shape[0] != W.shape[1] else data.X @ W
    return keys, data.problem.scores


def _ignore_labels(data: Dataset) -> KeysAndScores:
    return data.problem.keys, data.Y[:, None] * data.problem.scores


def _first_label(data: Dataset) -> KeysAndScores:
    return data.problem.keys, data.Y[0] * data.Y[:, None] * data.problem.scores


def _single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


def _single_head(data: Dataset) -> KeysAndScores:
    """Units are taken out first: what is lost are digits, not range."""
    unit = float(np.abs(data.X).max()) or 1.0
    scores = data.Y[:, None] * np.sum(_single(data.X / unit) * _single(data.v), axis=-1) * unit
    return data.problem.keys, scores


def _single_products(data: Dataset) -> KeysAndScores:
    unit = float(np.abs(data.X).max()) or 1.0
    weights = float(np.abs(data.key_query).max()) or 1.0
    keys = _single(_single(data.X / unit) @ _single(data.key_query / weights).T) * (unit * weights)
    return keys, data.problem.scores


def _tokens_for_keys(data: Dataset) -> KeysAndScores:
    same = data.key_query.shape[0] == data.key_query.shape[1]
    return (data.X if same else data.problem.keys), data.problem.scores


def _score_of_keys(data: Dataset) -> KeysAndScores:
    """Y v·k for Y v·x, where they have the same length."""
    keys = data.problem.keys
    same = keys.shape[2] == len(data.v)
    return keys, data.Y[:, None] * (keys @ data.v) if same else data.problem.scores


@dataclass(frozen=True)
class OtherOuterProducts:
    """Keys and scores of tokens and queries by another function of the data. Calling it with a size makes the fault."""

    made: Callable[[QueryDataset], KeysAndScores]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", outer_keys_and_scores=self.made)


def _transpose_outer(data: QueryDataset) -> KeysAndScores:
    n, T, d = data.X.shape
    keys = data.problem.keys.reshape(n, T, d, -1).swapaxes(2, 3).reshape(n, T, -1)
    return keys, data.problem.scores


def _queries_of_the_next_input(data: QueryDataset) -> KeysAndScores:
    return replace(data, queries=np.roll(data.queries, 1, axis=0)).problem.keys, data.problem.scores


def _single_outer(data: QueryDataset) -> KeysAndScores:
    """Units are taken out first: what is lost are digits, not range."""
    unit = float(np.abs(data.problem.keys).max())
    return _single(data.problem.keys / unit / 3) * unit * 3, data.problem.scores


TOKEN_FAULTS = (
    Fault(
        "keys-of-transposed-weights",
        Kind.DATA,
        "X W for X Wᵀ, where W is square",
        "lemma-11",
        OtherProducts(_transpose),
    ),
    Fault("keys-are-tokens", Kind.DATA, "X for X Wᵀ, where W is square", "lemma-11", OtherProducts(_tokens_for_keys)),
    Fault("keys-of-float32-products", Kind.DATA, "X Wᵀ in float32", "lemma-6", OtherProducts(_single_products)),
    Fault("scores-without-labels", Kind.DATA, "X v for Y X v", "lemma-6", OtherProducts(_ignore_labels)),
    Fault("scores-with-the-first-label", Kind.DATA, "Y_1 X v for Y X v", "lemma-6", OtherProducts(_first_label)),
    Fault("scores-of-float32-head", Kind.DATA, "X and v in float32", "lemma-6", OtherProducts(_single_head)),
    Fault(
        "scores-of-keys",
        Kind.DATA,
        "the head applied to keys, where it fits",
        "lemma-11",
        OtherProducts(_score_of_keys),
    ),
    Fault(
        "outer-keys-transposed",
        Kind.DATA,
        "vec(z xᵀ) for vec(x zᵀ)",
        "tsvm-rank",
        OtherOuterProducts(_transpose_outer),
    ),
    Fault(
        "queries-of-the-next-input",
        Kind.DATA,
        "the keys of an input with the query of another",
        "tsvm-rank",
        OtherOuterProducts(_queries_of_the_next_input),
    ),
    Fault("outer-keys-of-float32", Kind.DATA, "vec(x zᵀ) in float32", "tsvm-rank", OtherOuterProducts(_single_outer)),
)
"""Faults in keys and scores of a dataset."""
