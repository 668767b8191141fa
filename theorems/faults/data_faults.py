"""Faults in the data, and in the step size: attention on other data than the statement's, tokens misread."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from generators.case import Case
from reference_attention.loss import Array
from reference_attention.problem import Problem
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.attention_faults import OnOtherKeys
from theorems.faults.fault import Fault, Kind, right
from theorems.faults.softmax import OtherData


@dataclass(frozen=True)
class OnOtherScores:
    """Size → the reference attention on changed scores."""

    change: Callable[[Array, float], Array]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return OtherData(scores_to=self.change, size=size).implementation


@dataclass(frozen=True)
class LongerStep:
    """Steps of gradient descent (1 + size) times the bound."""

    size: float = 0.0

    def log_smoothness(self, problem: Problem) -> float:
        """log L_p, too small."""
        return problem.log_smoothness - math.log1p(self.size)


def longer_step(size: float) -> Implementation:
    """The reference with steps above 1/L_p."""
    return REFERENCE.replace("", log_smoothness=LongerStep(size).log_smoothness)


def _swap_first_keys(keys: Array, size: float) -> Array:
    xp = array_namespace(keys)
    return xp.concat([keys[..., 1:2, :], keys[..., :1, :], keys[..., 2:, :]], axis=-2)


def _first_factor(array: Array, axes: int, factor: float) -> Array:
    """The first entry along the last axes multiplied."""
    xp = array_namespace(array)
    first = xp.ones_like(array[(..., *(slice(0, 1),) * axes)])
    mask = first
    for axis in range(-axes, 0):
        length = array.shape[axis]
        zeros = xp.concat([xp.zeros_like(mask)] * (length - 1), axis=axis) if length > 1 else None
        mask = mask if zeros is None else xp.concat([mask, zeros], axis=axis)
    return array * (1 + mask * (factor - 1))


def _key_off(keys: Array, size: float) -> Array:
    return _first_factor(keys, 3, 1 + size)


def _score_off(scores: Array, size: float) -> Array:
    return _first_factor(scores, 2, 1 + size)


def _label_flipped(scores: Array, size: float) -> Array:
    xp = array_namespace(scores)
    return xp.concat([-scores[..., :1, :], scores[..., 1:, :]], axis=-2)


def _with_tokens(case: Case, alpha: Any) -> Case:
    """The case with ``alpha`` for its optimal tokens, and for its chosen ones if it has any."""
    problem = copy(case.problem)
    vars(problem)["optimal"] = alpha
    return case.replace(problem=problem, alpha=None if case.alpha is None else alpha)


def _by_key_norm(case: Case) -> Case:
    keys = case.problem.keys
    return _with_tokens(case, np.argmax(np.sum(keys * keys, axis=2), axis=1).astype(np.int64))


def _next_token(case: Case) -> Case:
    alpha = np.array(case.chosen_tokens)
    alpha[0] = (alpha[0] + 1) % case.problem.T
    return _with_tokens(case, alpha)


DATA_FAULTS = (
    Fault(
        "step-above-bound",
        Kind.STEP,
        "steps of gradient descent 1 + ε times 1/L_p, which has room for a factor of four",
        "lemma-6",
        longer_step,
        1e3,
        "relative excess of the step",
        1e-3,
    ),
    Fault(
        "label-flipped",
        Kind.DATA,
        "the attention trains on the first input with the other label",
        "lemma-3",
        OnOtherScores(_label_flipped),
    ),
    Fault(
        "tokens-swapped",
        Kind.DATA,
        "the attention sees the first two keys swapped, not their scores",
        "lemma-3",
        OnOtherKeys(_swap_first_keys),
    ),
    Fault(
        "key-off",
        Kind.DATA,
        "the attention sees one entry of one key off by a factor 1 + ε",
        "lemma-3",
        OnOtherKeys(_key_off),
        1e-6,
        "relative error of an entry",
    ),
    Fault(
        "score-off",
        Kind.DATA,
        "the attention trains on one score off by a factor 1 + ε",
        "lemma-3",
        OnOtherScores(_score_off),
        1e-6,
        "relative error of a score",
    ),
    Fault(
        "optimal-by-key-norm",
        Kind.DATA,
        "the token of the longest key is taken for the optimal (or chosen) one",
        "lemma-4",
        right,
        spoil=_by_key_norm,
    ),
    Fault(
        "token-mischosen",
        Kind.DATA,
        "the next token of the first input is taken for the optimal (or chosen) one",
        "lemma-4",
        right,
        spoil=_next_token,
    ),
)
"""Faults in the data and in the step size."""
