"""Claims that attention weights s⋆ are optimal: their KKT conditions, and the excess loss of any other weights.

The claims are decided over the rationals from the tokens X and the gradient of the head h at the features Xᵀs. They do
not use the formula of the projection, by which s⋆ is computed.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

import numpy as np
from flint import fmpq

from generators.margin_assumptions import Vector, dot, exact_vector
from reference_attention.exact import combination
from reference_attention.optimal_attention import OptimalAttention
from reference_attention.query_dataset import QueryDataset
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import sharper
from theorems.core.tolerances import EXACT

RISK_IS_QUADRATIC = sharper("risk-is-quadratic")

TRIES = 6
"""The number of weight vectors s per input at which :func:`quadratic_risk_claim` decides its identity."""


def attention_claim(name: str, data: QueryDataset, lam: fmpq, attention: OptimalAttention) -> Claim:
    """Claim that s⋆ is on the simplex and satisfies the KKT conditions, so that it is optimal.

    With μ the multiplier of Σ s = 1, the conditions are ν_t = μ − ∂h(Xᵀs)/∂s_t ≥ 0 at s = s⋆ for every token t, and ν_t
    = 0 where s⋆_t > 0. As h is concave, these conditions prove that s⋆ is optimal.
    """
    wrong = ""
    for i, tokens in enumerate(data.X):
        rows, s, nu = [exact_vector(x) for x in tokens], list(attention.weights[i]), list(attention.multipliers[i])
        attended = combination(rows, s, len(rows[0]))
        away = [v - 2 * lam * a for v, a in zip(exact_vector(data.v), attended, strict=True)]
        if min(s) < 0 or sum(s, fmpq(0)) != 1:
            wrong = wrong or f"input {i}: weights are negative or do not sum to 1"
        for t, row in enumerate(rows):
            if nu[t] < 0 or nu[t] * s[t] != 0 or nu[t] != attention.levels[i] - dot(row, away):
                wrong = wrong or f"input {i}: token {t} with ν = {nu[t]} and weight {s[t]} violates the KKT conditions"
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def quadratic_risk_claim(data: QueryDataset, lam: fmpq, attention: OptimalAttention, rng: np.random.Generator) -> Claim:
    """Claim φ(s) − φ(s⋆) = Σ ν_t s_t + λ‖s − s⋆‖² for the loss φ(s) = −h(Xᵀs).

    Here h(x) = vᵀx − λ‖x‖² is the head, s⋆ the weights that minimise φ over the simplex, and ν_t ≥ 0 their multipliers;
    tokens are orthonormal. The identity is decided at weights s of sum 1, some of them negative.
    """
    wrong = ""
    for i, tokens in enumerate(data.X):
        rows, best, nu = [exact_vector(x) for x in tokens], attention.weights[i], attention.multipliers[i]
        for parts in rng.integers(-8, 16, size=(TRIES, len(rows))).tolist():
            s = [fmpq(part, 16) for part in parts]
            s[0] += 1 - sum(s, fmpq(0))
            left = _loss(rows, data, lam, s) - _loss(rows, data, lam, list(best))
            right = sum((a * b for a, b in zip(nu, s, strict=True)), fmpq(0))
            right += lam * sum(((a - b) ** 2 for a, b in zip(s, best, strict=True)), fmpq(0))
            if left != right:
                wrong = wrong or f"input {i}: φ(s) − φ(s⋆) is {left} at s = {s}, not {right}"
    return Claim(RISK_IS_QUADRATIC, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def _loss(rows: list[Vector], data: QueryDataset, lam: fmpq, s: Vector) -> fmpq:
    """Return the loss φ(s) = −vᵀa + λ‖a‖², where a = Xᵀs."""
    attended = combination(rows, s, len(rows[0]))
    return lam * dot(attended, attended) - dot(exact_vector(data.v), attended)
