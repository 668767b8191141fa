"""Heads for which Assumption D fails: a token that counts as non-optimal is the better one for ψ.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, Assumption D.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.optimal_sets import head_of
from generators.problems import cases
from reference_attention.floats import EPS
from theorems.rounding.evaluation import Evaluation
from theorems.without.noisy_excess import Excess


@st.composite
def headed_cases(draw: DrawFn) -> Case:
    """One input, two tokens, one linear unit with small features; ATT-SVM' is feasible."""
    case = draw(cases(assumptions=("separable-optimal-sets", "strict-optimum"), n=1, tokens=2, d=1, plain=True))
    features = np.array(draw(st.lists(st.integers(-2, 2), min_size=2, max_size=2)), dtype=np.float64)
    arrays = {
        "head_features": features.reshape(1, 2, 1),
        "head_weights": np.array([draw(st.sampled_from((1.0, -1.0)))]),
        "head_activations": np.zeros(1),
        "head_labels": np.ones(1),
    }
    return case.but(arrays=MappingProxyType(arrays))


def headed_risk(case: Case, points: Float64[np.ndarray, "m d"]) -> Excess:
    """L(p) = (1/n) Σ ℓ(Y_i ψ(X_iᵀs_i)) in plain floats, by sign and logarithm, for linear units.

    Each weight has its relative error, which a sum over T and m terms and the loss (slope at most M1 over the range of
    Y ψ) pass on; the mean and the loss add 8 eps of their size.
    """
    head, problem = head_of(case), case.problem
    at = Evaluation(problem, points)
    outputs = head.outputs(at.weights)
    size = np.abs(head.features) @ np.abs(head.weights)
    relative = np.expm1(at.log_weights_error) + (problem.T + len(head.weights) + 4) * EPS
    off = np.sum(at.weights * size * relative, axis=-1)
    low, high = float((outputs - off).min()), float((outputs + off).max())
    values = np.asarray(problem.loss.value(outputs))
    error = np.mean(math.exp(problem.loss.log_bound(low, high)) * off + 8 * EPS * (1 + np.abs(values)), axis=-1)
    mean = np.mean(values, axis=-1)
    with np.errstate(divide="ignore"):
        return Excess(np.sign(mean), np.log(np.abs(mean)), np.log(error))
