"""Faults in the value of the risk, of its logarithmic excess and of L_p: softmax and gradient are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from reference_attention import risk as reference
from reference_attention.loss import Array, Loss
from reference_attention.problem import Problem
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Value = Callable[[Array, Array, Loss, Array, float], Array]
Excess = Callable[[Array, Array, Loss, Array, Array, float], tuple[Array, Array]]


@dataclass(frozen=True)
class OtherRisk:
    """Another risk: (keys, scores, loss, p, size) → its value. Calling it with a size makes the fault."""

    value: Value
    size: float = 0.0

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """As :func:`reference_attention.risk.risk`."""
        return self.value(keys, scores, loss, p, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", risk=OtherRisk(self.value, size).risk)


@dataclass(frozen=True)
class OtherExcess:
    """Another log-excess: (keys, scores, loss, p, alpha, size) → sign and logarithm."""

    value: Excess
    size: float = 0.0

    def log_excess(self, keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        """As :func:`reference_attention.risk.log_excess_risk`."""
        return self.value(keys, scores, loss, p, alpha, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", log_excess_risk=OtherExcess(self.value, size).log_excess)


@dataclass(frozen=True)
class OtherSmoothness:
    """Another L_p: problem → its logarithm."""

    value: Callable[[Problem], float]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", log_smoothness=self.value)


def _larger(keys: Array, scores: Array, loss: Loss, p: Array, size: float) -> Array:
    return (1 + size) * reference.risk(keys, scores, loss, p)


def _sum(keys: Array, scores: Array, loss: Loss, p: Array, size: float) -> Array:
    return keys.shape[-3] * reference.risk(keys, scores, loss, p)


def _drop_first_sign(keys: Array, scores: Array, loss: Loss, p: Array, size: float) -> Array:
    """ℓ(|u|) at the first input."""
    xp = array_namespace(keys, scores, p)
    outputs = reference.predictions(keys, scores, p)
    outputs = xp.concat([xp.abs(outputs[..., :1]), outputs[..., 1:]], axis=-1)
    return xp.mean(loss.value(outputs), axis=-1)


def _scaled_outputs(keys: Array, scores: Array, loss: Loss, p: Array, size: float) -> Array:
    return reference.risk(keys, (1 + size) * scores, loss, p)


def _linearise(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array, size: float) -> tuple[Array, Array]:
    """(1/n) Σ |ℓ'(γ_iα)| δ_i for (1/n) Σ ℓ(γ_iα − δ_i) − ℓ(γ_iα)."""
    return reference.log_excess_risk(keys, scores, _Linear(loss), p, alpha)


class _Linear(Loss):
    """The tangent of a loss: its excess to first order."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.name = loss.name

    def value(self, u: Array) -> Array:
        return self.loss.value(u)

    def log_slope(self, u: Array) -> Array:
        return self.loss.log_slope(u)

    def relative_curvature(self, u: Array) -> Array:
        return 0 * u

    def log_excess(self, u: Array, sign: Array, log_size: Array) -> tuple[Array, Array]:
        return sign, self.loss.log_slope(u) + log_size

    def log_lipschitz(self, low: float, high: float) -> float:
        return self.loss.log_lipschitz(low, high)

    def steepening(self, low: float, high: float) -> float:
        return 0.0

    def log_bound(self, low: float, high: float) -> float:
        return self.loss.log_bound(low, high)

    def log_floor(self, low: float, high: float) -> float:
        return self.loss.log_floor(low, high)


def _sign_lost(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array, size: float) -> tuple[Array, Array]:
    xp = array_namespace(keys, scores, p)
    sign, logs = reference.log_excess_risk(keys, scores, loss, p, alpha)
    return xp.abs(sign), logs


def _excess_of_sum(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array, size: float) -> tuple[Array, Array]:
    sign, logs = reference.log_excess_risk(keys, scores, loss, p, alpha)
    return sign, logs + math.log(keys.shape[-3])


def _excess_larger(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array, size: float) -> tuple[Array, Array]:
    sign, logs = reference.log_excess_risk(keys, scores, loss, p, alpha)
    return sign, logs + math.log1p(size)


def _third(problem: Problem) -> float:
    return problem.log_smoothness - math.log(3)


def _smoothness(problem: Problem, key_power: int, steep: bool, mean: bool = True) -> float:
    """log of (1/n) Σ (M0 ‖γ‖² ‖K‖^power + 3 M1 ‖γ‖ ‖K‖^power), the last term or the mean left out."""
    k = np.linalg.norm(problem.keys, ord=2, axis=(1, 2))
    gamma = np.linalg.norm(problem.scores, axis=1)
    scores = problem.score_range
    with np.errstate(divide="ignore"):
        terms = [problem.loss.log_lipschitz(*scores) + 2 * np.log(gamma) + key_power * np.log(k)]
        if steep:
            terms.append(math.log(3) + problem.loss.log_bound(*scores) + np.log(gamma) + key_power * np.log(k))
    return float(np.logaddexp.reduce(np.concatenate(terms)) - (math.log(problem.n) if mean else 0.0))


def _norms_not_squared(problem: Problem) -> float:
    return _smoothness(problem, 1, True)


def _without_steepness(problem: Problem) -> float:
    return _smoothness(problem, 2, False)


def _of_the_sum(problem: Problem) -> float:
    return _smoothness(problem, 2, True, mean=False)


RISK_FAULTS = (
    Fault(
        "risk-too-large",
        Kind.RISK,
        "(1 + ε) L",
        "lemma-3",
        OtherRisk(_larger),
        0.1,
        "relative error of the risk",
    ),
    Fault("risk-is-a-sum", Kind.RISK, "Σ ℓ for the mean over the inputs", "lemma-3", OtherRisk(_sum)),
    Fault(
        "risk-with-an-unsigned-output", Kind.RISK, "ℓ(|u|) at the first input", "lemma-3", OtherRisk(_drop_first_sign)
    ),
    Fault(
        "risk-of-scaled-outputs",
        Kind.RISK,
        "ℓ((1 + ε) u)",
        "lemma-3",
        OtherRisk(_scaled_outputs),
        1e-6,
        "relative error of the outputs",
    ),
    Fault("excess-linearised", Kind.RISK, "|ℓ'| δ for ℓ(u − δ) − ℓ(u)", "lemma-3", OtherExcess(_linearise)),
    Fault("excess-sign-lost", Kind.RISK, "|L(p) − L_α| for L(p) − L_α", "lemma-3", OtherExcess(_sign_lost)),
    Fault("excess-of-the-sum", Kind.RISK, "n (L(p) − L_α)", "lemma-3", OtherExcess(_excess_of_sum)),
    Fault(
        "excess-too-large",
        Kind.RISK,
        "(1 + ε) (L(p) − L_α)",
        "lemma-3",
        OtherExcess(_excess_larger),
        0.1,
        "relative error of the excess",
    ),
    Fault("smoothness-a-third", Kind.STEP, "L_p/3: steps three times the bound", "lemma-6", OtherSmoothness(_third)),
    Fault(
        "smoothness-of-norms-not-squared",
        Kind.STEP,
        "‖K_i‖ for ‖K_i‖² in L_p",
        "lemma-6",
        OtherSmoothness(_norms_not_squared),
    ),
    Fault(
        "smoothness-without-slope",
        Kind.STEP,
        "the term of M1 left out of L_p",
        "lemma-6",
        OtherSmoothness(_without_steepness),
    ),
    Fault("smoothness-of-the-sum", Kind.STEP, "n L_p: needlessly short steps", "lemma-6", OtherSmoothness(_of_the_sum)),
)
"""Faults in values that elsewhere enter inequalities only."""
