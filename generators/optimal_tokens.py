"""Decision of Assumption C: proof by a cone certificate, or refutation by a prompt.

**Theorem (ice-cream cone).** Let z_it = Y_i x_it be the signed tokens, let v_mm solve (SVM) on z_iα with margin Γ and
direction v̄_mm, and suppose that

(i) for every input i some dual solution (λ ≥ 0, Σ λ = 1, Σ λ_j z_jα = Γ v̄_mm) has λ_i > 0, and
(ii) every other token lies inside the convex hull of the point z_iα and the ball of radius Γ around 0: for some
     c_it ∈ [0, 1), ε_it := ‖z_it − c_it z_iα‖ < Γ (1 − c_it).

Then Assumption C holds for every W, with ν = ρ min_i (λ_i^max min_t (1 − c_it)), where
ρ = min_{i,t} (Γ − ε_it/(1 − c_it)) and λ_i^max is the largest i-th entry of a dual solution.

Proof. By duality the label margin on features z_i^s = Σ_t s_it z_it is m(s) = min over the simplex of ‖Σ λ_i z_i^s‖.
Let q_i = 1 − s_iα and g_i = s_iα + Σ_t s_it c_it, so 1 − g_i = Σ_t s_it (1 − c_it) and z_i^s = g_i z_iα + e_i with
‖e_i‖ ≤ (Γ − ρ)(1 − g_i). If all g_i > 0, take the weights (λ_i/g_i)/Σ_j (λ_j/g_j) for any dual solution λ. With X = Σ_j
λ_j (1 − g_j)/g_j, so Σ_j λ_j/g_j = 1 + X,

    m(s) ≤ (‖Σ λ_i z_iα‖ + Σ (λ_i/g_i) ‖e_i‖)/(1 + X) ≤ (Γ + (Γ − ρ) X)/(1 + X) = Γ − ρ X/(1 + X).

X/(1 + X) ≥ λ_i(1 − g_i)/(g_i + λ_i (1 − g_i)) ≥ λ_i (1 − g_i) for each i, as the denominator is at most 1; and 1 − g_i
≥ q_i min_t (1 − c_it). Choose i with the largest q_i and λ with the largest λ_i. If some g_i = 0, put all weight on
input i: m(s) ≤ ‖e_i‖ ≤ Γ − ρ, the limit of the same bound. ∎

The theorem covers: the paper's example (all z_iα = u*, ‖x_it‖ < ‖u*‖: c = 0, λ_i^max = 1, ν = ‖u*‖ − max ‖x_it‖);
Figure 3(a) (second tokens 0); tokens that are shrunk copies c x_iα, 0 ≤ c < 1; mixtures of these; any number of
supports, dependent or not; rotations; every W. Condition (i) cannot be dropped: if no λ has λ_i > 0, mixing tokens only
at input i costs no margin to first order. c must not be negative: the tokens z = (1, ±10) with copies c z, c = −0.9,
have Γ = 1, but the margin is 9.1 if one token is replaced by its copy.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption C and the example after it, Theorem 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import linprog

from generators.case import Case
from generators.finding import Finding, format_tokens, vector
from reference_attention.exact import rational, to_float
from reference_attention.floats import EPS
from reference_attention.paths.joint_risk import chosen_rows
from reference_attention.risk import softmax_weights
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import Infeasible

SAFETY = 1 - 2.0**-40
"""A factor that reduces ν of the theorem, because λ^max and its products are computed with a few dozen roundings.

A reduced ν is valid, too. The rounding error of ρ, a difference of nearly equal lengths, is subtracted separately.
"""
WITNESS_POINTS = 48
"""The number of prompts that are tried in the search for a refutation."""


@dataclass(frozen=True, eq=False)
class TokenOptimality:
    """The decision on Assumption C over all inputs, or over those that support v_mm.

    Attributes:
        holds: ``True`` if Assumption C is proven, ``False`` if it is refuted, ``None`` if neither.
        nu: a number ν for which Assumption C is proven, else 0.
        evidence: a text with the number that decides.
        witness: a prompt p that refutes Assumption C, because its label margin exceeds Γ.
    """

    holds: bool | None
    nu: float
    evidence: str
    witness: Float64[np.ndarray, "k"] | None = None


def token_optimality(case: Case, *, supports_only: bool = False) -> TokenOptimality:
    """Decide Assumption C for the case's α, over all inputs or over the inputs that support v_mm (Theorem 6).

    Assumption C is proven exactly by the theorem in the module's docstring, or refuted by a prompt whose label margin
    exceeds Γ by more than rounding. Otherwise Assumption C is "not established", because it is about all prompts p.
    """
    data = case.dataset
    if data is None:
        return TokenOptimality(None, 0.0, "the case has keys and scores only; give tokens X and labels Y")
    tokens = data.signed_tokens
    alpha = case.chosen_tokens
    svm = label_svm(chosen_rows(tokens, alpha))
    if isinstance(svm, Infeasible):
        return TokenOptimality(
            False, 0.0, f"no head separates the features of α = {format_tokens(alpha)}: Γ does not exist"
        )
    inputs = svm.support if supports_only else np.ones(len(alpha), dtype=bool)
    if not (inputs & ~svm.support).any():
        proof = _cone_certificate(tokens[inputs], alpha[inputs], svm, svm.duals[inputs])
        if proof.holds:
            return proof
    witness = _witness(tokens[inputs], case.problem.keys[inputs], alpha[inputs], svm.margin, case.rng())
    if witness is not None:
        p, above = witness
        return TokenOptimality(False, 0.0, f"at p = {vector(p)} the label margin exceeds Γ by {above:.3g}", p)
    if (inputs & ~svm.support).any():
        i = int(np.argmax(inputs & ~svm.support))
        return TokenOptimality(None, 0.0, f"input {i} is not a support of v_mm; no refuting p was found")
    return proof


def optimal_tokens(case: Case) -> Finding:
    """Return the decision on Assumption C as a finding."""
    finding = token_optimality(case)
    return Finding(finding.holds, finding.evidence)


def optimal_support_tokens(case: Case) -> Finding:
    """Return the decision on Assumption C over the inputs that support v_mm, as a finding."""
    finding = token_optimality(case, supports_only=True)
    return Finding(finding.holds, finding.evidence)


def _cone_certificate(
    tokens: Float64[np.ndarray, "m T d"],
    alpha: Int64[np.ndarray, "m"],
    svm: LabelSvm,
    duals: Float64[np.ndarray, "m"],
) -> TokenOptimality:
    """Decide conditions (i) and (ii) of the module's theorem over the rationals, for inputs that all support v_mm."""
    chosen = chosen_rows(tokens, alpha)
    largest = _largest_duals(chosen, svm, duals)
    if not (largest > 0).all():
        i = int(np.argmin(largest))
        return TokenOptimality(None, 0.0, f"support input {i} has no positive dual, so the cone does not prove C")
    v = _exact_head(chosen)
    gamma_squared = 1 / sum((x * x for x in v), fmpq(0))
    rho, shares = math.inf, [1.0] * len(alpha)
    for i, t in np.ndindex(*tokens.shape[:2]):
        if t == alpha[i]:
            continue
        c = _mixing(tokens[i, t], chosen[i], gamma_squared)
        if c is None:
            return TokenOptimality(
                None,
                0.0,
                f"token {t} of support input {i} is outside the cone over the ball of radius Γ and z_iα",
            )
        rho = min(rho, svm.margin * (1 - 8 * EPS) - _distance(tokens[i, t], c, chosen[i]) / (1 - c))
        shares[i] = min(float(shares[i]), 1 - float(c))
    nu = rho * float(np.min(largest * np.array(shares))) * SAFETY
    if not nu > svm.margin * 2.0**-30:
        # Condition (ii) holds exactly, but the two sides of its inequality differ by too little to compute ν in floats.
        return TokenOptimality(
            None, 0.0, f"ν = {nu:.3g} is so small compared with Γ = {svm.margin:.6g} that it may be a rounding error"
        )
    return TokenOptimality(True, nu, f"Γ = {svm.margin:.6g}, ν = {nu:.6g} from the cone certificate")


def _exact_head(chosen: Float64[np.ndarray, "m d"]) -> list[fmpq]:
    """Return v_mm for the signed chosen tokens of the inputs that support v_mm, over the rationals."""
    from reference_attention.svm.max_margin import MaxMargin, max_margin

    keys = np.stack([chosen, np.zeros_like(chosen)], axis=1)
    solution = max_margin(keys, np.zeros(len(chosen), dtype=np.int64))
    assert isinstance(solution, MaxMargin)
    return list(solution.exact.p)


def _mixing(token: Float64[np.ndarray, "d"], chosen: Float64[np.ndarray, "d"], gamma_squared: fmpq) -> float | None:
    """Return a float c ∈ [0, 1) with ‖token − c·chosen‖ < Γ (1 − c), or ``None`` if 0 and the best c fail.

    The function f(c) = ‖token − c·chosen‖² − Γ²(1 − c)², negative at such c, is quadratic with leading coefficient
    ‖chosen‖² − Γ² ≥ 0; the best c minimises f.
    """
    a = [rational(x) for x in token.tolist()]
    b = [rational(x) for x in chosen.tolist()]
    aa, ab, bb = _dot(a, a), _dot(a, b), _dot(b, b)
    lead = bb - gamma_squared
    tries = [0.0]
    if lead > 0:
        tries.append(min(max(to_float((ab - gamma_squared) / lead), 0.0), 1 - 2.0**-30))
    best: tuple[float, float] | None = None
    for c in tries:
        q = rational(c)
        value = aa - 2 * q * ab + q * q * bb - gamma_squared * (1 - q) * (1 - q)
        if value < 0:
            room = math.sqrt(to_float(gamma_squared)) * (1 - c) - float(np.linalg.norm(token - c * chosen))
            if best is None or room > best[0]:
                best = (room, c)
    return None if best is None else best[1]


def _distance(token: Float64[np.ndarray, "d"], c: float, chosen: Float64[np.ndarray, "d"]) -> float:
    """Return ‖token − c·chosen‖ up to one or two roundings; the differences are exact, as their terms may cancel."""
    apart = [rational(a) - rational(c) * rational(b) for a, b in zip(token.tolist(), chosen.tolist(), strict=True)]
    return math.sqrt(to_float(_dot(apart, apart)))


def _dot(a: list[fmpq], b: list[fmpq]) -> fmpq:
    return sum((x * y for x, y in zip(a, b, strict=True)), fmpq(0))


def _largest_duals(
    chosen: Float64[np.ndarray, "m d"], svm: LabelSvm, duals: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m"]:
    """Return for each input i the largest λ_i of any dual solution, found by a linear program and checked exactly."""
    m = len(chosen)
    best = np.array(duals)
    if np.linalg.matrix_rank(chosen) == m:
        return best * SAFETY
    v = _exact_head(chosen)
    scale = float(np.abs(chosen).max())
    target = np.append(svm.margin * svm.direction / scale, 1.0)
    system = np.vstack([chosen.T / scale, np.ones(m)])
    for i in range(m):
        result = linprog(-np.eye(m)[i], A_eq=system, b_eq=target, bounds=(0, None), method="highs")
        if result.status != 0:
            continue
        support = np.flatnonzero(result.x > 1e-9)
        exact = _solve([[rational(x) for x in chosen[j].tolist()] for j in support], v)
        if exact is not None and i in support:
            best[i] = max(best[i], to_float(exact[int(np.searchsorted(support, i))] / sum(exact, fmpq(0))))
    return best * SAFETY


def _solve(columns: list[list[fmpq]], target: list[fmpq]) -> list[fmpq] | None:
    """Return the exact solution of Σ x_j columns_j = target if it is unique and non-negative, otherwise None."""
    if not columns:
        return None
    system = fmpq_mat([[c[k] for c in columns] + [target[k]] for k in range(len(target))])
    reduced, rank = system.rref()
    entries, m = reduced.tolist(), len(columns)
    if int(rank) != m or any(entries[r][r] != 1 for r in range(m)):
        return None
    values = [entries[r][m] for r in range(m)]
    return values if all(x >= 0 for x in values) else None


def _witness(
    tokens: Float64[np.ndarray, "m T d"],
    keys: Float64[np.ndarray, "m T k"],
    alpha: Int64[np.ndarray, "m"],
    gamma: float,
    rng: np.random.Generator,
) -> tuple[Float64[np.ndarray, "k"], float] | None:
    """Return a prompt whose label margin exceeds Γ by more than rounding, and the excess; None if there is none.

    Only :data:`WITNESS_POINTS` random prompts are tried.
    """
    size = float(np.max(np.linalg.norm(keys - chosen_rows(keys, alpha)[:, None], axis=-1)))
    prompts = rng.normal(size=(WITNESS_POINTS, keys.shape[-1]))
    prompts *= (10.0 ** rng.uniform(-1, 2, WITNESS_POINTS) / max(size, 1e-300) / np.linalg.norm(prompts, axis=1))[
        :, None
    ]
    weights = softmax_weights(keys, prompts)
    features = np.sum(weights[..., None] * tokens, axis=2)
    # The error of Σ_t s_t z_t has two parts: T + 4 roundings of the terms, and the effect of k + 3 roundings of a logit
    # on the weights s.
    largest = float(np.abs(tokens).sum(axis=2).max())
    # Entries so small that the solver would refuse them are far below the rounding errors of other entries.
    features = np.where(np.abs(features) < 1e-100 * largest, 0.0, features)
    relative = 2.0**-50 * (tokens.shape[1] + keys.shape[2] + 8) * (1 + size * np.linalg.norm(prompts, axis=1))
    for p, feature, error in zip(prompts, features, relative, strict=True):
        svm = label_svm(feature)
        if isinstance(svm, Infeasible):
            continue
        # The direction has norm 1 up to rounding, so the margin it attains is a lower bound of the label margin.
        above = float(np.min(feature @ svm.direction)) - gamma - largest * error
        if above > 0:
            return p, above
    return None


def support_of(case: Case) -> Bool[np.ndarray, "n"]:
    """Return the exact mask, (n,), of the inputs that support v_mm for the case's α; all False without v_mm."""
    assert case.dataset is not None
    features = chosen_rows(case.dataset.signed_tokens, case.chosen_tokens)
    svm = label_svm(features)
    return np.zeros(len(features), dtype=bool) if isinstance(svm, Infeasible) else svm.support
