"""Lemma 14: heads whose output decreases linearly in the weight on non-optimal tokens satisfy Assumption D.

Main results: upper and lower bounds of prediction and risk at every p, linear in this weight (called the *sandwich*);
Assumption D itself with an explicit ρ(Δ).

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
from generators.numbers import SOLVABLE_BLOCKS
from generators.optimal_set_cases import optimal_set_cases
from generators.optimal_sets import LinearMixing, linear_mixing
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import max_margin
from reference_attention.svm.max_margin_sets import MaxMarginSets, max_margin_sets
from theorems.bounded import exact, in_floats
from theorems.core.claim import Claim, Form, NotANumber, Undecided, at_least
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.nonlinear_head import HeadedAttention
from theorems.core.points import affordable, climb, points_around, probe_points
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import log_excess
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.weights_under_test import weights_of
from theorems.token_selection.nonlinear_heads.optimal_set_points import log_slope_bounds

MIXING = tolerance(
    "mixing",
    "2 max_i err(log q_i) + 4 eps (n + T + m + 8)(1 + |logs|)",
    "a log-excess risk under test is the logarithm of a sum of weights times slopes and gaps, and its formula may"
    " differ from the statement's; both sides carry all other rounding errors",
)

ABOVE, BELOW = premise("sandwich-above"), premise("sandwich-below")
RISK_BELOW, RISK_ABOVE = sharper("risk-sandwich-below"), sharper("risk-sandwich-above")
MIXING_HURTS = stated_claim("mixing-hurts", when="ATT-SVM' is feasible")

DELTAS = (0.125, 1.0, 8.0)
"""The values of Δ for which Assumption D is claimed."""
FACTOR = 2.0
"""The smallest ratio of L(p') − L_* to L(p) − L_* that is claimed; L_* is the risk if all weight is on optimal tokens.

Assumption D requires only a ratio above 1; ρ(Δ) is chosen so that the ratio is at least 2, far above rounding.
"""
POINTS = 120
"""The number of points at which prediction and risk are bounded; pairs (p, p') also use twice as many other points."""


def _cases() -> SearchStrategy[Case]:
    return optimal_set_cases(separable=False, large=SOLVABLE_BLOCKS)


@statement(
    "lemma-14",
    "Linear label mixing implies that mixing hurts",
    source="Appendix D.2, Lemma 14",
    claims=(ABOVE, BELOW, RISK_BELOW, RISK_ABOVE, MIXING_HURTS),
    assumptions=("well-behaved-loss", "mixing-hurts"),
    cases=_cases,
    kernel=calls("the kernel's prediction, which must lie between two bounds", turn=1, differentiates=False),
)
def lemma_14(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let ν_i − c1_i q_i(p) ≤ Y_i ψ(X_iᵀs_i) ≤ ν_i − c0_i q_i(p) for all p, q_i the weight on the non-optimal tokens.

    Then Assumption D holds, with q_max = max_i q_i: for every Δ > 0 there is a ρ < 0 such that log q_max(p) ≤ min((1+Δ)
    log q_max(p'), ρ) implies L(p) < L(p'). (The lemma has common constants c0, c1; inputs without a non-optimal token
    lose nothing.)

    **Effective.** For heads of the family of :mod:`generators.optimal_sets` the hypothesis holds with the ν, c0, c1
    computed there: the sandwich is claimed at every p. With L_* = (1/n) Σ_i ℓ(ν_i), C0_i = c0_i min|ℓ'| and C1_i = c1_i
    max|ℓ'| over [ν_i − c1_i, ν_i],

        log Σ_i C0_i q_i ≤ log n(L(p) − L_*) ≤ log Σ_i C1_i q_i   (mean value theorem),

    and D holds with ρ(Δ) = −(Λ + log 2)(1 + Δ)/Δ, Λ = log(Σ_i C1_i / min_i C0_i): in fact L(p) − L_* ≤ ½(L(p') − L_*).

    *Derivation of ρ.* Let x = −log q_max(p) ≥ −ρ. By the premise log q_max(p') ≥ −x/(1+Δ), so n(L(p') − L_*) ≥
    min C0 · e^{−x/(1+Δ)}, and n(L(p) − L_*) ≤ Σ C1 · e^{−x}. The logarithms differ by at least xΔ/(1+Δ) − Λ ≥ log 2.

    All constants need |ℓ'| bounded away from 0 on bounded intervals. "Strictly decreasing", the wording of the paper's
    Assumption A, does not imply that: for ℓ(u) = −u³ and an input with ν_i = 0 the lemma is false, and so are Theorems
    1 and 8. Here Assumption A includes ℓ' < 0.
    """
    mixing = linear_mixing(case)
    if isinstance(mixing, Finding):
        raise Undecided(ABOVE, f"mixing-hurts: {mixing.evidence}", Form.EFFECTIVE)
    problem, rng = case.problem, case.rng()
    sets = under_test[max_margin_sets](problem.keys, mixing.optimal, under_test[max_margin])
    axis = sets.solutions[0].p if isinstance(sets, MaxMarginSets) else None
    count = affordable(problem, POINTS)
    points = probe_points(rng, problem, axis, m=count)
    linear = "head_features" not in case.arrays
    headed = under_test if linear else HeadedAttention(problem, mixing, under_test).as_implementation()
    sandwich = Sandwich(problem, mixing, under_test, headed)
    points = climb(rng, points, sandwich.violation, best=4, tries=8, rounds=3)
    yield from sandwich.claims(points)
    if axis is not None:
        size = float(np.linalg.norm(axis))
        points_far_out = points_around(rng, axis, size * np.exp(rng.uniform(0, math.log(3e3), 2 * count)))
        # Points have a positive component along the solution, so that far out q_max is small enough for ρ(Δ).
        points_far_out *= np.where(points_far_out @ axis < 0, -1.0, 1.0)[:, None]
        yield from sandwich.pairs(np.concatenate([points, points_far_out]))


class Sandwich:
    """The lower and upper bounds of the prediction in Lemma 14's hypothesis, and the resulting bounds of the risk.

    The notation is that of :func:`lemma_14`. *Mixed* inputs are the k inputs with a non-optimal token.
    """

    def __init__(
        self, problem: Problem, mixing: LinearMixing, under_test: Implementation, headed: Implementation
    ) -> None:
        """Store the data and the implementations, ``headed`` with the head ψ; compute log C0_i and log C1_i."""
        self.problem, self.mixing, self.under_test, self.headed = problem, mixing, under_test, headed
        low, high = log_slope_bounds(mixing, problem.loss)
        self.log_low, self.log_high = low[mixing.mixed], high[mixing.mixed]

    def at(self, points: Float64[np.ndarray, "m d"]) -> AttentionAt:
        """Return the attention at points, computed with the suite's own softmax."""
        return AttentionAt(self.problem, points, self.under_test.textbook_eps)

    def log_q(self, at: AttentionAt) -> Numbers:
        """Return log q_i, q_i the softmax weight on the non-optimal tokens, for the k mixed inputs, (m, k)."""
        hidden = np.where(self.mixing.optimal, -np.inf, at.log_weights)
        return np.logaddexp.reduce(hidden, axis=-1)[:, self.mixing.mixed]

    def sides(self, at: AttentionAt) -> tuple[Numbers, Numbers, Numbers]:
        """Return the prediction's drop ν − Y ψ and its bounds c0 q and c1 q, for the k mixed inputs, (m, k) each."""
        mixing, head, mixed = self.mixing, self.mixing.head, self.mixing.mixed
        drop = head.outputs_of(exact(mixing.best)) - head.outputs(weights_of(at, self.under_test, ABOVE))
        q = np.exp(self.log_q(at))
        return drop[:, mixed], mixing.c0[mixed] * q, mixing.c1[mixed] * q

    def violation(self, points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        """Return by how much ν − Y ψ violates its bounds at worst, in units of c1 q; negative between the bounds."""
        with in_floats():
            drop, low, high = self.sides(self.at(points))
            return np.max(np.where(high > 0, np.maximum(low - drop, drop - high) / high, -1.0), axis=-1)

    def claims(self, points: Float64[np.ndarray, "m d"]) -> Iterator[Claim]:
        """Yield the claims that the prediction's drop, and the logarithm of L − L_*, lie between their bounds."""
        at = self.at(points)
        drop, low, high = self.sides(at)
        yield at_least(ABOVE, Form.EFFECTIVE, drop, low, points="point and input")
        yield at_least(BELOW, Form.EFFECTIVE, high, drop, points="point and input")
        log_q, excess = self.risks(at)
        total = excess + np.log(exact(self.problem.n))
        low, high = (np.logaddexp.reduce(logs + log_q, axis=-1) for logs in (self.log_low, self.log_high))
        yield at_least(RISK_BELOW, Form.EFFECTIVE, total, low, why=MIXING)
        yield at_least(RISK_ABOVE, Form.EFFECTIVE, high, total, why=MIXING)

    def risks(self, at: AttentionAt) -> tuple[Numbers, Numbers]:
        """Return log q_i, (m, k), and log(L − L_*) under test, (m,), with the tolerance :data:`MIXING` as its error."""
        log_q = self.log_q(at)
        logs = np.abs(np.concatenate([self.log_low, self.log_high])).max() + np.abs(log_q.value).max(axis=-1)
        count = self.problem.n + self.problem.T + self.mixing.gaps.shape[2] + 8
        allowed = 2 * log_q.error.max(axis=-1) + 4 * EPS * count * (1 + logs)
        excess = log_excess(self.headed, self.problem, at.points)
        if np.isnan(excess).any():
            raise NotANumber(RISK_BELOW, "the excess risk under test is negative or NaN")
        # A logarithm of −∞ means that the risk is L_* exactly, which rounding cannot cause, so no error is allowed.
        return log_q, exact(excess).widen(np.where(np.isneginf(excess), 0.0, allowed))

    def pairs(self, points: Float64[np.ndarray, "m d"]) -> Iterator[Claim]:
        """Claim Assumption D for each point p and the p' of least risk for which its premise certainly holds."""
        log_q, excess = self.risks(self.at(points))
        worst, highest = np.max(log_q, axis=-1), excess.value + excess.error
        constant, more = np.logaddexp.reduce(exact(self.log_high)) - self.log_low.min(), np.log(exact(FACTOR))
        for delta in DELTAS:
            low = np.flatnonzero(worst <= -(constant + more) * (1 + delta) / delta)
            others = np.where(worst[low, None] <= (1 + delta) * worst, highest, np.inf)
            first = np.flatnonzero((others < np.inf).any(axis=1))
            left, right = excess[np.argmin(others[first], axis=1)], excess[low[first]] + more
            yield at_least(MIXING_HURTS, Form.EFFECTIVE, left, right, why=MIXING, points=f"pair for Δ = {delta:g}")
