"""Claims that attention weights s⋆ are optimal: their KKT conditions, and the excess loss of any other weights.

They are decided over the rationals from tokens and head, by the gradient of the head at Xᵀs. The formula of the
projection, by which s⋆ is computed, is not used.

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
"""The number of weights per input at which the identity is decided."""


def attention_claim(name: str, data: QueryDataset, lam: fmpq, attention: OptimalAttention) -> Claim:
    """Claim that s⋆ is on the simplex and optimal, by its KKT conditions.

    They are −∇_t h(Xᵀs⋆) + μ = ν_t ≥ 0, zero where s⋆_t > 0; as h is concave, they prove that s⋆ is optimal.
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
                wrong = wrong or f"input {i}: ν of token {t} is {nu[t]}, its weight {s[t]}"
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def quadratic_risk_claim(data: QueryDataset, lam: fmpq, attention: OptimalAttention, rng: np.random.Generator) -> Claim:
    """Claim φ(s) − φ(s⋆) = Σ ν_t s_t + λ‖s − s⋆‖², φ(s) = −h(Xᵀs), at s of sum 1 inside and outside the simplex."""
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
                wrong = wrong or f"input {i}: {left} is lost at {s}, not {right}"
    return Claim(RISK_IS_QUADRATIC, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def _loss(rows: list[Vector], data: QueryDataset, lam: fmpq, s: Vector) -> fmpq:
    """Return φ(s) = −vᵀa + λ‖a‖², where a = Xᵀs."""
    attended = combination(rows, s, len(rows[0]))
    return lam * dot(attended, attended) - dot(exact_vector(data.v), attended)
