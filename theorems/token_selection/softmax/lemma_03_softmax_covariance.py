"""Lemma 3: the covariance of keys and scores under the softmax weights, to first order in 1 − (weight of one token).

Main results: the inequality of the paper's Key Lemma, the identity from which it follows, and that the weights,
gradient and risk under test are those of softmax attention.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix A.1, Lemma 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import fmpq
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.numbers import BLOCKS
from generators.problems import cases
from reference_attention.exact import rational
from reference_attention.problem import Problem
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.points import affordable, directions, probe_points
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.weights_under_test import total_of, weights_of
from theorems.token_selection.softmax.risk_values import RISK_VALUES, risk_values

NON_NEGATIVE = premise("weights-are-non-negative")
SUM_TO_ONE = premise("weights-sum-to-one")
EXPONENTIALS = premise("weights-are-exponentials-of-logits")
IDENTITY = sharper("covariance-identity")
INEQUALITY = stated_claim("covariance-inequality")
IS_THE_COVARIANCE = premise("gradient-is-the-covariance")

POINTS = 150
EXACT_POINTS = 3
"""The number of points at which the lemma's identity and inequality are decided over the rationals."""


LARGE_SCORES = 2.0**12
"""The factor by which the scores of some cases are multiplied; not with the exponential loss, which would overflow."""


@st.composite
def _cases(draw: DrawFn) -> Case:
    """Draw cases; in many, scores are multiplied by :data:`LARGE_SCORES`, so that gradients are some thousands."""
    case = draw(cases(large=BLOCKS))
    problem = case.problem
    if problem.loss.name == "exponential" or not draw(st.booleans()):
        return case
    return case.replace(problem=Problem(problem.keys, LARGE_SCORES * problem.scores, problem.loss))


@statement(
    "lemma-3",
    "Softmax covariance (key lemma)",
    source="Appendix A.1, Lemma 3",
    claims=(
        NON_NEGATIVE,
        SUM_TO_ONE,
        EXPONENTIALS,
        IDENTITY,
        INEQUALITY,
        IS_THE_COVARIANCE,
        *RISK_VALUES,
    ),
    assumptions=(),
    cases=_cases,
    kernel=calls("the kernel's weights, against the softmax of k·p, and its gradient, against the covariance", turn=0),
)
def lemma_3(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a = Kq, s = softmax(Kp), r any reference token, Γ = max |γ_t − γ_u| and A = max ‖k_t‖ ‖q‖.

    Then

        | aᵀ(diag(s) − s sᵀ)γ − Σ_{t≠r} (a_r − a_t) s_t (γ_r − γ_t) | ≤ 2ΓA(1 − s_r)².

    Derivation. Let δ denote the difference from token r. The covariance of a and γ under s does not change when
    constants are subtracted: aᵀ(diag(s) − s sᵀ)γ = E[δa δγ] − E[δa] E[δγ], and E[δa δγ] is the sum on the left. The
    difference is |E[δa]| |E[δγ]|, in which only tokens other than r count: ≤ 2A(1 − s_r) · Γ(1 − s_r). The proof does
    not use that s is a softmax: it holds for every probability vector, so identity and inequality are decided over the
    rationals with the weights that the implementation returns, divided exactly by their exact sum.

    The relation to attention is s_t ∝ e^{k_t·p}, and ∇L(p) = (1/n) Σ_i ℓ'_i K_iᵀ(diag(s_i) − s_i s_iᵀ)γ_i. Weights and
    gradient under test are compared with the suite's own evaluation, in units of the largest term of the gradient, so
    that the comparison is as strict at ‖p‖ = 1e4 as at 0. L itself and its excess over L_α, the risk of selecting
    tokens α, which other statements take for granted, are compared likewise (:func:`.risk_values.risk_values`).
    """
    problem = case.problem
    rng = case.rng()
    points = probe_points(rng, problem, m=affordable(problem, POINTS))
    at = AttentionAt(problem, points, under_test.textbook_eps)
    weights = weights_of(at, under_test, NON_NEGATIVE, Form.EXACT)
    yield at_least(NON_NEGATIVE, Form.EXACT, weights.value, 0.0, rounding=0.0, why=EXACT)
    yield equal(SUM_TO_ONE, total_of(at, weights), 1.0)
    yield equal(EXPONENTIALS, weights, at.weights, points="weight")
    yield from _key_lemma(problem, rng, weights.value)
    gradient = at.gradient_of(under_test, IS_THE_COVARIANCE, Form.EXACT)
    yield equal(IS_THE_COVARIANCE, gradient, at.gradient, points="coordinate")
    yield from premises(risk_values(case, at, under_test, rng))


def _key_lemma(problem: Problem, rng: np.random.Generator, weights: Float64[np.ndarray, "b n T"]) -> Iterator[Claim]:
    """Yield the claims of the lemma's identity and inequality at some points, decided over the rationals."""
    chosen = rng.choice(len(weights), size=min(EXACT_POINTS, len(weights)), replace=False)
    q = directions(rng, len(chosen), problem.d)
    identity, inequality = [], []
    for b, direction in zip(chosen.tolist(), q, strict=True):
        i = int(rng.integers(problem.n))
        if not (np.isfinite(weights[b, i]).all() and (weights[b, i] >= 0).all() and weights[b, i].any()):
            continue
        for r in {int(np.argmax(weights[b, i])), int(rng.integers(problem.T))}:
            identity_error, room = _sides(problem.keys[i], problem.scores[i], weights[b, i], direction, r)
            identity.append(-abs(_sign(identity_error)))
            inequality.append(_sign(room))
    for name, values in ((IDENTITY, identity), (INEQUALITY, inequality)):
        yield at_least(name, Form.EXACT, values, 0.0, rounding=0.0, why=EXACT, points="exact point")


def _sides(
    keys: Float64[np.ndarray, "T d"],
    scores: Float64[np.ndarray, "T"],
    weights: Float64[np.ndarray, "T"],
    q: Float64[np.ndarray, "d"],
    r: int,
) -> tuple[fmpq, fmpq]:
    """Return the rational numbers by which the identity fails (0 if it holds) and the squared inequality is satisfied.

    These numbers are covariance − (E[δa δγ] − E[δa]E[δγ]) and (2ΓA(1 − s_r)²)² − (the lemma's left side)², in the
    notation of :func:`lemma_3`.
    """
    direction = [rational(x) for x in q.tolist()]
    a = [sum((rational(k) * x for k, x in zip(row, direction, strict=True)), fmpq(0)) for row in keys.tolist()]
    g = [rational(x) for x in scores.tolist()]
    raw = [rational(x) for x in weights.tolist()]
    total = sum(raw, fmpq(0))
    s = [x / total for x in raw]
    zero = fmpq(0)
    covariance = sum((w * x * y for w, x, y in zip(s, a, g, strict=True)), zero) - sum(
        (w * x for w, x in zip(s, a, strict=True)), zero
    ) * sum((w * y for w, y in zip(s, g, strict=True)), zero)
    product = sum((w * (a[r] - x) * (g[r] - y) for w, x, y in zip(s, a, g, strict=True)), zero)
    mean_a = sum((w * (a[r] - x) for w, x in zip(s, a, strict=True)), zero)
    mean_g = sum((w * (g[r] - y) for w, y in zip(s, g, strict=True)), zero)
    width = max(g) - min(g)
    reach = max(sum((rational(k) ** 2 for k in row), zero) for row in keys.tolist())
    length = sum((x * x for x in direction), zero)
    bound = 4 * width**2 * reach * length * (1 - s[r]) ** 4
    return covariance - (product - mean_a * mean_g), bound - (covariance - product) ** 2


def _sign(x: fmpq) -> float:
    """Return the sign of a rational number as a float."""
    return float((x > 0) - (x < 0))
