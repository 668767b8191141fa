"""Heads ψ for which Assumption D fails: ψ is larger at a token outside the optimal set than at tokens in it.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, Assumption D.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.optimal_sets import head_of
from generators.problems import cases
from theorems.bounded import exact
from theorems.rounding.attention_at import AttentionAt
from theorems.without.noisy_excess import Excess


@st.composite
def headed_cases(draw: DrawFn) -> Case:
    """Draw one input of two tokens with a feasible ATT-SVM', and a head of one linear unit with small features.

    ATT-SVM' is the max-margin problem of Theorem 8.
    """
    case = draw(cases(assumptions=("separable-optimal-sets", "strict-optimum"), n=1, tokens=2, d=1, plain=True))
    features = np.array(draw(st.lists(st.integers(-2, 2), min_size=2, max_size=2)), dtype=np.float64)
    arrays = {
        "head_features": features.reshape(1, 2, 1),
        "head_weights": np.array([draw(st.sampled_from((1.0, -1.0)))]),
        "head_activations": np.zeros(1),
        "head_labels": np.ones(1),
    }
    return case.replace(arrays=MappingProxyType(arrays))


def headed_risk(case: Case, points: Float64[np.ndarray, "m d"]) -> Excess:
    """Return L(p) = (1/n) Σ ℓ(Y_i ψ(X_iᵀs_i)) by sign and logarithm, for a head ψ of linear units.

    s_i are the softmax weights of input i.
    """
    head, loss = head_of(case), case.problem.loss
    tokens = np.vecdot(exact(head.features), head.weights)
    risk = np.mean(loss.value(head.labels * np.vecdot(AttentionAt(case.problem, points).weights, tokens)), axis=-1)
    with np.errstate(divide="ignore"):
        return Excess(np.sign(risk.value), np.log(np.abs(risk.value)), np.log(risk.error))
