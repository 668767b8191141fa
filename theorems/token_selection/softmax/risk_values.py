"""Claims that the values of risk and log-excess risk equal the means that define them, up to rounding.

Other statements would not notice a wrong value: they use risks in inequalities with slack, or only their slopes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.case import Case
from theorems.bounded import exact
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.excess_risk import excess_at, excess_of_at
from theorems.rounding.risk_under_test import risk_of
from theorems.rounding.sized_numbers import Sized, sized_equal

IS_THE_MEAN_LOSS = premise("risk-is-the-mean-loss")
IS_A_DIFFERENCE = premise("excess-is-a-difference-of-risks")
IS_THAT_OF_THE_LOSSES = premise("excess-is-that-of-the-losses")
RISK_VALUES = (IS_THE_MEAN_LOSS, IS_A_DIFFERENCE, IS_THAT_OF_THE_LOSSES)
"""The claims that :func:`risk_values` makes."""


def risk_values(case: Case, at: AttentionAt, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """Claim that the reported L(p) is (1/n) Σ_i ℓ(γ_iᵀ s_i), and the reported log-excess that of L(p) − L_α.

    L_α = (1/n) Σ_i ℓ(γ_iα_i) is the risk of selecting tokens α. The log-excess, log|L(p) − L_α| with a sign, is checked
    for the α of the case and for random tokens, so that L(p) − L_α has either sign. The log-excess is compared with the
    difference of risks, where this difference has correct digits, and with the mean of ℓ(γ_iα_i − δ_i) − ℓ(γ_iα_i), δ_i
    = γ_iα_i − γ_iᵀs_i, computed without cancellation, which has correct digits also where the softmax saturates.
    """
    problem, n = case.problem, case.problem.n
    yield equal(IS_THE_MEAN_LOSS, risk_of(at, under_test, IS_THE_MEAN_LOSS, Form.EXACT), at.risk)
    if under_test.textbook_eps:
        # From the weights of a kernel, L(p) − L_α is all rounding error where the softmax saturates.
        return
    reported, expected, differences = [], [], []
    for alpha in (case.chosen_tokens, rng.integers(problem.T, size=n)):
        reported.append(excess_of_at(under_test, at, alpha, IS_THAT_OF_THE_LOSSES))
        expected.append(excess_at(at, alpha))
        differences.append(at.risk - np.mean(problem.loss.value(exact(problem.scores[np.arange(n), alpha]))))
    yield equal(IS_A_DIFFERENCE, np.stack([x.to(0.0) for x in reported]), np.stack(differences))
    yield sized_equal(IS_THAT_OF_THE_LOSSES, Sized.stack(reported), Sized.stack(expected))
