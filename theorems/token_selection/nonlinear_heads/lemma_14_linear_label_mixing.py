"""Lemma 14: heads that lose linearly in the weight on non-optimal tokens satisfy Assumption D.

Main results: the linear sandwich of prediction and risk at every p; Assumption D itself with an explicit ρ(Δ).

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D.2, Lemma 14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.finding import Finding
from generators.optimal_set_cases import optimal_set_cases
from generators.optimal_sets import LinearMixing, linear_mixing
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin_sets import MaxMarginSets
from theorems.core.claim import Claim, Form, Undecided, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import calls
from theorems.core.points import climb, points_around, probe_points
from theorems.core.statement import statement
from theorems.core.survival import POINTS_ONLY, ROOM
from theorems.core.tolerances import tolerance
from theorems.rounding.evaluation import Evaluation
from theorems.rounding.forward_error import UNDERFLOW, relative_error
from theorems.rounding.textbook import sum_error
from theorems.token_selection.global_paths.path_constants import log_excess
from theorems.token_selection.nonlinear_heads.nonlinear_head import HeadedAttention
from theorems.token_selection.nonlinear_heads.set_constants import log_slope_bounds

MIXING = tolerance(
    "mixing",
    "Σ_j |b_j| (max φ'_j (Σ_t s_t g_tj r_t + (T + 4) eps (Σ s|z| + |z*|)) + 8 eps |φ_j|) + c1 q r; in logarithms"
    " max_t err(log s_t) + 4 eps (n + T + m + 8)(1 + |logs|)",
    "Lemma 14: the input of a unit has the errors of its softmax weights, which the steepest slope passes on; q has"
    " the relative error r of its weights; log-excess risks are sums of such terms in logarithms",
)

DELTAS = (0.125, 1.0, 8.0)
"""The Δ of Assumption D."""
FACTOR = 2.0
"""By how much less the excess risk is than Assumption D asks: ρ(Δ) is chosen so that L(p) − L_* is at most half of the
other, which no rounding blurs."""
POINTS = 120
"""Points of the sandwich; the pairs are those of as many more."""


def _cases() -> SearchStrategy[Case]:
    return optimal_set_cases(separable=False)


@statement(
    "lemma-14",
    "Linear label mixing implies that mixing hurts",
    source="Appendix D.2, Lemma 14",
    assumptions=("well-behaved-loss", "mixing-hurts"),
    cases=_cases,
    kernel=calls("the sandwich of its prediction", turn=1),
    survives={
        "score-off": ROOM,
        "svm": POINTS_ONLY,
        "sets": POINTS_ONLY,
    },
)
def lemma_14(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If ν_i − c1_i q_i(p) ≤ Y_i ψ(X_iᵀs_i) ≤ ν_i − c0_i q_i(p) for all p, q_i the weight on the non-optimal tokens,
    then Assumption D holds: for every Δ > 0 there is a ρ < 0 such that log q_max(p) ≤ min((1+Δ) log q_max(p'), ρ)
    implies L(p) < L(p'). (The lemma has common constants c0, c1; inputs without a non-optimal token lose nothing.)

    **Effective.** For heads of the family of :mod:`generators.optimal_sets` the hypothesis holds with the ν, c0, c1
    computed there: the sandwich is claimed at every p. With C0_i = c0_i min|ℓ'| and C1_i = c1_i max|ℓ'| over [ν_i −
    c1_i, ν_i],

        log Σ_i C0_i q_i ≤ log n(L(p) − L_*) ≤ log Σ_i C1_i q_i   (mean value theorem),

    and D holds with ρ(Δ) = −(Λ + log 2)(1 + Δ)/Δ, Λ = log(Σ_i C1_i / min_i C0_i): in fact L(p) − L_* ≤ ½(L(p') − L_*).

    *Derivation of ρ.* Let x = −log q_max(p) ≥ −ρ. By the premise log q_max(p') ≥ −x/(1+Δ), so n(L(p') − L_*) ≥
    min C0 · e^{−x/(1+Δ)}, and n(L(p) − L_*) ≤ Σ C1 · e^{−x}. The logarithms differ by at least xΔ/(1+Δ) − Λ ≥ log 2.

    All constants need |ℓ'| bounded away from 0 on bounded intervals. "Strictly decreasing", which the paper's
    Assumption A says, does not give that: for ℓ(u) = −u³ and an input with ν_i = 0 the lemma is false, and so are
    Theorems 1 and 8. Here Assumption A includes ℓ' < 0.
    """
    mixing = linear_mixing(case)
    if isinstance(mixing, Finding):
        raise Undecided("sandwich-above", f"mixing-hurts: {mixing.evidence}", Form.EFFECTIVE)
    problem, rng = case.problem, case.rng()
    sets = under_test.max_margin_sets(problem.keys, mixing.optimal, under_test.max_margin)
    axis = sets.solutions[0].p if isinstance(sets, MaxMarginSets) else None
    points = probe_points(rng, problem, axis, m=POINTS)
    linear = "head_features" not in case.arrays
    seen = under_test if linear else HeadedAttention(problem, mixing, under_test).as_implementation()
    sandwich = Sandwich(problem, mixing, under_test, seen)
    points = climb(rng, points, sandwich.violation, best=4, tries=8, rounds=3)
    yield from sandwich.claims(points)
    if axis is not None:
        size = float(np.linalg.norm(axis))
        far = points_around(rng, axis, size * np.exp(rng.uniform(0, math.log(3e3), 2 * POINTS)))
        # Towards the solution, never against it: there q_max is small enough for ρ(Δ).
        far *= np.where(far @ axis < 0, -1.0, 1.0)[:, None]
        yield from sandwich.pairs(np.concatenate([points, far]))


class Sandwich:
    """Both sides of Lemma 14's hypothesis at points p."""

    def __init__(
        self, problem: Problem, mixing: LinearMixing, under_test: Implementation, seen: Implementation
    ) -> None:
        self.problem, self.mixing, self.under_test, self.seen = problem, mixing, under_test, seen
        low, high = log_slope_bounds(mixing, problem.loss)
        self.log_low, self.log_high = low[mixing.mixed], high[mixing.mixed]

    def nonoptimality(
        self, points: Float64[np.ndarray, "m d"]
    ) -> tuple[Float64[np.ndarray, "m n"], Float64[np.ndarray, "m n"], Evaluation]:
        """log q_i by the suite's own softmax, its error, and that evaluation; of all inputs."""
        mine = Evaluation(self.problem, points, self.under_test.textbook_eps)
        hidden = np.where(self.mixing.optimal, -np.inf, mine.log_weights)
        error = np.max(np.where(self.mixing.optimal, 0.0, mine.log_weights_error), axis=-1)
        return np.logaddexp.reduce(hidden, axis=-1), error + (self.problem.T + 2) * EPS, mine

    def violation(self, points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        """How far the prediction is from the middle of the sandwich, its width being one."""
        _, lost, low, high, _ = self.predictions(points)
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(high > 0, np.maximum(low - lost, lost - high) / np.where(high > 0, high, 1.0), -1.0)
        return np.max(off, axis=-1)

    def predictions(self, points: Float64[np.ndarray, "m d"]) -> tuple[Float64[np.ndarray, "m k"], ...]:
        """For mixed inputs: Y ψ, ν − Y ψ, c0 q, c1 q, and the error of the difference, each (m, k)."""
        mixing = self.mixing
        head, used = mixing.head, mixing.mixed
        log_q, q_error, mine = self.nonoptimality(points)
        q = np.exp(log_q)
        weights = np.asarray(self.under_test.weights(self.problem.keys, points))
        outputs = head.outputs(weights)
        # Of the features: each term of Σ s_t z_t has the error of its weight, and the sum of the weights that of a sum.
        relative = relative_error(mine.log_weights_error) + 4 * EPS
        off = np.sum((mine.weights * relative + mine.textbook_weights_error)[..., None] * mixing.gaps, axis=-2)
        size = np.sum(mine.weights[..., None] * np.abs(head.features), axis=-2)
        sums = (self.problem.T + 4) * EPS + sum_error(self.problem.T, mine.textbook_eps)
        inputs_error = off + sums * (size + np.abs(mixing.best))
        reach = mixing.gaps.max(axis=1)
        steepest = head.units("highest_slope", mixing.best, head.signs, reach)
        values = np.abs(head.units("value", mixing.best)) + steepest * reach
        error = np.sum(np.abs(head.weights) * (steepest * inputs_error + 8 * EPS * values), axis=-1)
        error = error + mixing.c1 * q * relative_error(q_error)
        kept = (outputs, mixing.nu - outputs, mixing.c0 * q, mixing.c1 * q, error + UNDERFLOW * mixing.c1)
        return tuple(x[:, used] for x in kept)

    def claims(self, points: Float64[np.ndarray, "m d"]) -> Iterator[Claim]:
        """The sandwich of the prediction, and that of the risk in logarithms."""
        _, lost, low, high, error = self.predictions(points)
        scale = self.mixing.c1[self.mixing.mixed]
        yield at_least(
            "sandwich-above",
            Form.EFFECTIVE,
            lost,
            low,
            rounding=error,
            why=MIXING,
            scale=scale,
            points="point and input",
        )
        yield at_least(
            "sandwich-below",
            Form.EFFECTIVE,
            high,
            lost,
            rounding=error,
            why=MIXING,
            scale=scale,
            points="point and input",
        )
        log_q, log_error, excess = self.risks(points)
        log_q = log_q[:, self.mixing.mixed]
        total = excess + math.log(self.problem.n)
        yield at_least(
            "risk-sandwich-below",
            Form.EFFECTIVE,
            total,
            np.logaddexp.reduce(self.log_low + log_q, axis=-1),
            rounding=log_error,
            why=MIXING,
        )
        yield at_least(
            "risk-sandwich-above",
            Form.EFFECTIVE,
            np.logaddexp.reduce(self.log_high + log_q, axis=-1),
            total,
            rounding=log_error,
            why=MIXING,
        )

    def risks(
        self, points: Float64[np.ndarray, "m d"]
    ) -> tuple[Float64[np.ndarray, "m n"], Float64[np.ndarray, "m"], Float64[np.ndarray, "m"]]:
        """log q_i, the error of comparing it with the log-excess risk, and that risk."""
        log_q, error, _ = self.nonoptimality(points)
        excess = log_excess(self.seen, self.problem, points)
        logs = np.abs(np.concatenate([self.log_low, self.log_high])).max() + np.abs(log_q).max(
            axis=-1, initial=0.0, where=np.isfinite(log_q)
        )
        count = self.problem.n + self.problem.T + self.mixing.gaps.shape[2] + 8
        return log_q, np.max(error, axis=-1) + 4 * EPS * count * (1 + logs), excess

    def pairs(self, points: Float64[np.ndarray, "m d"]) -> Iterator[Claim]:
        """Assumption D on all pairs of the points."""
        log_q, error, excess = self.risks(points)
        worst = np.max(log_q, axis=-1)
        constant = float(np.logaddexp.reduce(self.log_high) - self.log_low.min())
        for delta in DELTAS:
            rho = -(constant + math.log(FACTOR)) * (1 + delta) / delta
            # Premises that hold by more than rounding.
            premise = worst + error <= rho
            first, second = np.nonzero(premise[:, None] & ((worst + error)[:, None] <= (1 + delta) * (worst - error)))
            yield at_least(
                "mixing-hurts",
                Form.EFFECTIVE,
                excess[second] - excess[first],
                math.log(FACTOR),
                rounding=error[first] + error[second],
                why=MIXING,
                points=f"pair for Δ = {delta:g}",
            )
