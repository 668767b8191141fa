"""Faults in the value of the risk, in L(p) − L_α and in the smoothness constant L_p; softmax and gradient are right."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from reference_attention import risk as reference
from reference_attention.loss import Array, Loss
from reference_attention.problem import Problem, log_smoothness
from reference_attention.risk import log_excess_risk, risk
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.RISK)
RISK = ("lemma-3", risk)
EXCESS = ("lemma-3", log_excess_risk)
STEP = ("lemma-6", log_smoothness)
Excess = tuple[Array, Array]
"""The sign of L(p) − L_α, and the logarithm of its absolute value."""


@FAULTS.change("risk-too-large", "(1 + ε) L in place of L", *RISK, size=0.1)
def _larger(value: Array, size: float, *arguments: Any) -> Array:
    return (1 + size) * value


@FAULTS.change("risk-is-a-sum", "the sum of ℓ over the inputs in place of the mean", *RISK)
def _sum(value: Array, keys: Array, *arguments: Any) -> Array:
    return keys.shape[-3] * value


@FAULTS.plant("risk-with-an-unsigned-output", "ℓ(|u|) in place of ℓ(u) at the first input", *RISK)
def _drop_first_sign(right: Any, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
    xp = array_namespace(keys, scores, p)
    outputs = reference.predictions(keys, scores, p)
    outputs = xp.concat([xp.abs(outputs[..., :1]), outputs[..., 1:]], axis=-1)
    return xp.mean(loss.value(outputs), axis=-1)


@FAULTS.plant("risk-of-scaled-outputs", "ℓ((1 + ε) u) in place of ℓ(u)", *RISK, size=1e-6)
def _scale_outputs(right: Any, size: float, keys: Array, scores: Array, loss: Loss, p: Array) -> Any:
    return right(keys, (1 + size) * scores, loss, p)


@FAULTS.plant("excess-linearised", "|ℓ'| δ in place of ℓ(u − δ) − ℓ(u)", *EXCESS)
def _linearise(right: Any, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> Any:
    tangent = copy(loss)
    vars(tangent)["log_excess"] = lambda u, sign, log_size: (sign, loss.log_slope(u) + log_size)
    return right(keys, scores, tangent, p, alpha)


@FAULTS.change("excess-sign-lost", "|L(p) − L_α| in place of L(p) − L_α", *EXCESS)
def _lose_sign(excess: Excess, *arguments: Any) -> Excess:
    sign, logs = excess
    return array_namespace(sign).abs(sign), logs


@FAULTS.change("excess-of-the-sum", "n (L(p) − L_α) in place of L(p) − L_α", *EXCESS)
def _excess_of_sum(excess: Excess, keys: Array, *arguments: Any) -> Excess:
    sign, logs = excess
    return sign, logs + math.log(keys.shape[-3])


@FAULTS.change(
    "excess-too-large",
    "(1 + ε) (L(p) − L_α) in place of L(p) − L_α",
    *EXCESS,
    size=0.1,
)
def _enlarge_excess(excess: Excess, size: float, *arguments: Any) -> Excess:
    sign, logs = excess
    return sign, logs + math.log1p(size)


@FAULTS.change("smoothness-a-third", "L_p/3 in place of L_p: steps are three times as long", *STEP, kind=Kind.STEP)
def _third(right: float, problem: Problem) -> float:
    return right - math.log(3)


def _smoothness(problem: Problem, key_power: int, steep: bool, mean: bool = True) -> float:
    """Return log (1/n) Σ_i (M0 ‖γ_i‖² ‖K_i‖^power + 3 M1 ‖γ_i‖ ‖K_i‖^power), L_p for power = ``key_power`` = 2.

    K_i are the keys of input i, M0 is the Lipschitz constant of ℓ', and M1 is the largest |ℓ'|. The term of M1 is left
    out unless ``steep``, the factor 1/n unless ``mean``.
    """
    k = np.linalg.norm(problem.keys, ord=2, axis=(1, 2))
    gamma = np.linalg.norm(problem.scores, axis=1)
    scores = problem.score_range
    with np.errstate(divide="ignore"):
        terms = [problem.loss.log_lipschitz(*scores) + 2 * np.log(gamma) + key_power * np.log(k)]
        if steep:
            terms.append(math.log(3) + problem.loss.log_bound(*scores) + np.log(gamma) + key_power * np.log(k))
    return float(np.logaddexp.reduce(np.concatenate(terms)) - (math.log(problem.n) if mean else 0.0))


@FAULTS.plant("smoothness-of-norms-not-squared", "‖K_i‖ in place of ‖K_i‖² in L_p", *STEP, kind=Kind.STEP)
def _norms_not_squared(right: Any, problem: Problem) -> float:
    return _smoothness(problem, 1, True)


@FAULTS.plant("smoothness-without-slope", "L_p without its term of M1", *STEP, kind=Kind.STEP)
def _without_steepness(right: Any, problem: Problem) -> float:
    return _smoothness(problem, 2, False)


@FAULTS.plant("smoothness-of-the-sum", "n L_p in place of L_p: steps are needlessly short", *STEP, kind=Kind.STEP)
def _of_the_sum(right: Any, problem: Problem) -> float:
    return _smoothness(problem, 2, True, mean=False)
