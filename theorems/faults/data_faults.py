"""Faults in data and step size: the attention gets other data than the statement, or wrong tokens count as chosen."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from generators.case import Case
from reference_attention.loss import Array
from reference_attention.problem import Problem, log_smoothness
from theorems.faults.fault import Faults, Kind
from theorems.faults.softmax import on_keys, on_scores

FAULTS = Faults(Kind.DATA)


@FAULTS.change(
    "step-above-bound",
    "steps of gradient descent are (1 + ε)/L_p; up to 4/L_p would do no harm",
    "lemma-6",
    log_smoothness,
    kind=Kind.STEP,
    size=1e3,
)
def _longer_step(right: float, size: float, problem: Problem) -> float:
    return right - math.log1p(size)


@FAULTS.wrap(
    "tokens-swapped", "the attention gets the first two keys swapped, but not their scores", "lemma-3", on_keys
)
def _swap_first_keys(keys: Array, size: float) -> Array:
    xp = array_namespace(keys)
    return xp.concat([keys[..., 1:2, :], keys[..., :1, :], keys[..., 2:, :]], axis=-2)


def _first_factor(array: Array, axes: int, factor: float) -> Array:
    """Return the array with the first entry along all of its last ``axes`` axes multiplied by ``factor``."""
    xp = array_namespace(array)
    first = xp.ones_like(array[(..., *(slice(0, 1),) * axes)])
    mask = first
    for axis in range(-axes, 0):
        length = array.shape[axis]
        zeros = xp.concat([xp.zeros_like(mask)] * (length - 1), axis=axis) if length > 1 else None
        mask = mask if zeros is None else xp.concat([mask, zeros], axis=axis)
    return array * (1 + mask * (factor - 1))


@FAULTS.wrap(
    "key-off",
    "the attention gets one entry of one key multiplied by 1 + ε",
    "lemma-3",
    on_keys,
    size=1e-6,
)
def _key_off(keys: Array, size: float) -> Array:
    return _first_factor(keys, 3, 1 + size)


@FAULTS.wrap(
    "score-off",
    "the attention gets one score multiplied by 1 + ε",
    "lemma-3",
    on_scores,
    size=1e-6,
)
def _score_off(scores: Array, size: float) -> Array:
    return _first_factor(scores, 2, 1 + size)


@FAULTS.wrap("label-flipped", "the attention gets the first input with the wrong label", "lemma-3", on_scores)
def _label_flipped(scores: Array, size: float) -> Array:
    xp = array_namespace(scores)
    return xp.concat([-scores[..., :1, :], scores[..., 1:, :]], axis=-2)


def _with_tokens(case: Case, alpha: Any) -> Case:
    """Return the case with ``alpha`` in place of its optimal tokens, and of its chosen tokens if it has any."""
    problem = copy(case.problem)
    vars(problem)["optimal"] = alpha
    return case.replace(problem=problem, alpha=None if case.alpha is None else alpha)


@FAULTS.spoil(
    "optimal-by-key-norm", "the token with the longest key is taken for the optimal (or chosen) token", "lemma-4"
)
def _by_key_norm(case: Case) -> Case:
    keys = case.problem.keys
    return _with_tokens(case, np.argmax(np.sum(keys * keys, axis=2), axis=1).astype(np.int64))


@FAULTS.spoil(
    "token-mischosen", "in the first input, the token after the optimal (or chosen) token is taken for it", "lemma-4"
)
def _next_token(case: Case) -> Case:
    alpha = np.array(case.chosen_tokens)
    alpha[0] = (alpha[0] + 1) % case.problem.T
    return _with_tokens(case, alpha)
