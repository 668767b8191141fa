"""Faults in the keys X Wᵀ and the scores Y X v, which are computed from tokens X."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference_attention.problem import Dataset, KeysAndScores, keys_and_scores
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.DATA)
Right = Callable[..., KeysAndScores]


@FAULTS.plant("keys-of-transposed-weights", "X W in place of X Wᵀ, where W is square", "lemma-11", keys_and_scores)
def _transpose(right: Right, data: Dataset) -> KeysAndScores:
    W = data.key_query
    keys = data.problem.keys if W.shape[0] != W.shape[1] else data.X @ W
    return keys, data.problem.scores


@FAULTS.plant("scores-without-labels", "X v in place of Y X v", "lemma-6", keys_and_scores)
def _ignore_labels(right: Right, data: Dataset) -> KeysAndScores:
    return data.problem.keys, data.Y[:, None] * data.problem.scores


@FAULTS.plant("scores-with-the-first-label", "Y_1 X v in place of Y X v", "lemma-6", keys_and_scores)
def _first_label(right: Right, data: Dataset) -> KeysAndScores:
    return data.problem.keys, data.Y[0] * data.Y[:, None] * data.problem.scores


def in_float32(x: np.ndarray) -> np.ndarray:
    """Return the numbers rounded to float32, as float64."""
    return x.astype(np.float32).astype(np.float64)


@FAULTS.plant("scores-of-float32-head", "scores are computed from X and v in float32", "lemma-6", keys_and_scores)
def _single_head(right: Right, data: Dataset) -> KeysAndScores:
    """Return scores computed from X and v in float32; X is divided by its largest entry, so that nothing overflows."""
    unit = float(np.abs(data.X).max()) or 1.0
    scores = data.Y[:, None] * np.sum(in_float32(data.X / unit) * in_float32(data.v), axis=-1) * unit
    return data.problem.keys, scores


@FAULTS.plant("keys-of-float32-products", "keys X Wᵀ are computed in float32", "lemma-6", keys_and_scores)
def _single_products(right: Right, data: Dataset) -> KeysAndScores:
    unit = float(np.abs(data.X).max()) or 1.0
    weights = float(np.abs(data.key_query).max()) or 1.0
    keys = in_float32(in_float32(data.X / unit) @ in_float32(data.key_query / weights).T) * (unit * weights)
    return keys, data.problem.scores


@FAULTS.plant("keys-are-tokens", "X in place of X Wᵀ, where W is square", "lemma-11", keys_and_scores)
def _tokens_for_keys(right: Right, data: Dataset) -> KeysAndScores:
    same = data.key_query.shape[0] == data.key_query.shape[1]
    return (data.X if same else data.problem.keys), data.problem.scores


@FAULTS.plant("scores-of-keys", "the head is applied to keys, where their lengths agree", "lemma-11", keys_and_scores)
def _score_of_keys(right: Right, data: Dataset) -> KeysAndScores:
    """Return the scores Y v·k in place of Y v·x, if keys have as many entries as v."""
    keys = data.problem.keys
    same = keys.shape[2] == len(data.v)
    return keys, data.Y[:, None] * (keys @ data.v) if same else data.problem.scores
