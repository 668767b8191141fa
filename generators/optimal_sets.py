"""Decision of Assumption D (mixing hurts) by Lemma 14, for heads ψ with one hidden layer.

Let O_i be the set of optimal tokens of input i, and let unit j of ψ have the weight b_j and the activation φ_j. Suppose
that all tokens of O_i have the same features z*_i, and that feature j of a non-optimal token t is z*_ij + σ_ij g_itj
with g_itj ≥ 0, where σ_ij = −sign(Y_i b_j) is the direction in which unit j lowers Y_i ψ. At the attended token with
softmax weights s_it the feature is z*_ij + σ_ij δ_ij with δ_ij = Σ_{t∉O_i} s_it g_itj, so

    Y_i ψ(X_iᵀs_i) = ν_i − Σ_j |b_j| (change of φ_j over a step δ_ij),   ν_i = Y_i ψ at z*_i.

The change is δ_ij times a secant slope of φ_j, which lies between its least and its largest value over steps up to
max_t g_itj. Let q_i be the weight on non-optimal tokens. Then ν_i − c1 q_i ≤ Y_i ψ ≤ ν_i − c0 q_i with c0 = min_t Σ_j
|b_j| (least secant slope) g_itj and c1 = max_t Σ_j |b_j| (largest slope) g_itj over t ∉ O_i. Lemma 14 applies if c0 >
0. An increasing transform of a linear head is the case of one unit.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption D, Lemma 14.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.finding import Finding, number
from generators.score_assumptions import optimal_sets
from reference_attention.errors import InvalidInput
from reference_attention.heads import Head
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.max_margin_sets import MaxMarginSets, max_margin_sets

HEAD_ARRAYS = ("head_features", "head_weights", "head_activations", "head_labels")
"""Names of the arrays of a case that hold a nonlinear head, see :class:`reference_attention.heads.Head`; labels are +1
if they are not given."""

OUTWARD = 64 * 2.0**-52
"""A bound of the relative rounding error of c0 and c1, by which c0 is reduced and c1 enlarged."""


@dataclass(frozen=True, eq=False)
class LinearMixing:
    """The constants of Lemma 14, and the quantities from which they were computed (symbols: see the module).

    Attributes:
        head: the head ψ.
        optimal: the mask of the sets O_i, shape (n, T).
        mixed: the mask of inputs with a non-optimal token, shape (n,); the loss of other inputs is constant.
        best: z*, the features of the optimal tokens, shape (n, m).
        gaps: g ≥ 0, zero at optimal tokens, shape (n, T, m).
        nu: ν_i, shape (n,).
        c0, c1: the constants of each input, 0 for inputs that are not mixed, shape (n,).
    """

    head: Head
    optimal: Bool[np.ndarray, "n T"]
    mixed: Bool[np.ndarray, "n"]
    best: Float64[np.ndarray, "n m"]
    gaps: Float64[np.ndarray, "n T m"]
    nu: Float64[np.ndarray, "n"]
    c0: Float64[np.ndarray, "n"]
    c1: Float64[np.ndarray, "n"]


def head_of(case: Case) -> Head:
    """Return the head in the arrays of a case; without such arrays, the linear head of the case's scores.

    Raises:
        InvalidInput: arrays that do not define a head for this problem.
    """
    arrays, problem = case.arrays, case.problem
    if "head_features" not in arrays:
        return Head.linear(problem.scores)
    features = np.asarray(arrays["head_features"], dtype=np.float64)
    m = features.shape[-1] if features.ndim == 3 else 1
    codes = np.asarray(arrays.get("head_activations", np.zeros(m)))
    if (np.mod(codes, 1) != 0).any():
        raise InvalidInput(f"head_activations: {codes.tolist()} are no whole numbers; give the activations' numbers.")
    return Head(
        features,
        np.asarray(arrays.get("head_weights", np.ones(m))),
        codes.astype(np.int64),
        np.asarray(arrays.get("head_labels", np.ones(problem.n))),
    )


def linear_mixing(case: Case) -> LinearMixing | Finding:
    """Return the constants of Lemma 14 for O_i = argmax_t γ_it, or the reason why Lemma 14 does not apply."""
    optimal = optimal_sets(case)
    if optimal.all():
        return Finding(False, "all tokens of each input have equal scores, so every token is optimal and L is constant")
    head = head_of(case)
    if head.features.shape[:2] != optimal.shape:
        return Finding(None, f"head_features: shape {head.features.shape}; give (n, T, m) with n, T = {optimal.shape}")
    first = np.argmax(optimal, axis=1)
    best = head.features[np.arange(len(first)), first]
    moved = head.features - best[:, None]
    unequal = optimal[:, :, None] & (moved != 0)
    if unequal.any():
        i, t, j = (int(k) for k in np.argwhere(unequal)[0])
        return Finding(
            None, f"input {i}: optimal tokens {first[i]} and {t} differ in feature {j}, which Lemma 14 does not cover"
        )
    nu = np.asarray(head.labels * np.sum(head.weights * head.units("value", best), axis=-1))
    gaps = head.signs[:, None] * moved
    if (gaps < 0).any():
        i, t, j = (int(k) for k in np.argwhere(gaps < 0)[0])
        return _refutation(case, head, optimal, nu) or Finding(
            None, f"input {i}: feature {j} of the non-optimal token {t} raises Yψ, which Lemma 14 does not cover"
        )
    size = np.abs(head.weights)
    reach = gaps.max(axis=1)
    low = head.units("lowest_secant", best, head.signs, reach)
    high = head.units("highest_slope", best, head.signs, reach)
    mixed = np.asarray(~optimal.all(axis=1))
    least = np.where(optimal, np.inf, np.sum(gaps * (size * low)[:, None], axis=2)).min(axis=1)
    largest = np.sum(gaps * (size * high)[:, None], axis=2).max(axis=1)
    c0 = np.where(mixed, least * (1 - OUTWARD), 0.0)
    c1 = np.where(mixed, largest * (1 + OUTWARD), 0.0)
    if (c0[mixed] <= 0).any():
        i = int(np.flatnonzero(mixed)[np.argmin(c0[mixed])])
        return Finding(None, f"input {i}: weight on some non-optimal token does not lower Yψ to first order, c0 = 0")
    return LinearMixing(head, optimal, mixed, best, gaps, nu, c0, c1)


def _refutation(
    case: Case, head: Head, optimal: Bool[np.ndarray, "n T"], nu: Float64[np.ndarray, "n"]
) -> Finding | None:
    """Refute Assumption D if n = 1 and some non-optimal token, with Yψ above that of optimal tokens, can be selected.

    Let q_max be the weight on non-optimal tokens, and ρ < 0 the constant of Assumption D, which claims L(p) < L(p')
    under a premise on q_max(p) and q_max(p'). Along a ray of prompts that select the non-optimal token q_max → 1, so
    the premise holds for a prompt p' far along the ray and every p with log q_max(p) ≤ 2ρ. Such p exist if ATT-SVM' is
    feasible. But L(p) → ℓ(ν) as q_max(p) → 0, with ν the value Yψ of optimal tokens, and ℓ(ν) is above the loss on the
    ray.
    """
    keys = case.problem.keys
    if len(keys) != 1 or not isinstance(max_margin_sets(keys, optimal), MaxMarginSets):
        return None
    terms = head.weights * head.units("value", head.features[0])
    values, error = head.labels[0] * terms.sum(axis=-1), OUTWARD * np.abs(terms).sum(axis=-1).max()
    for t in np.flatnonzero(~optimal[0] & (values > nu[0] + 2 * error)).tolist():
        if isinstance(max_margin(keys, np.array([t])), MaxMargin):
            violation = f"Y ψ = {number(values[t], nu[0])} at the non-optimal token {t}, which can be selected"
            return Finding(False, f"{violation}, above ν = {number(nu[0], values[t])}")
    return None


def mixing_hurts(case: Case) -> Finding:
    """Decide Assumption D for the optimal sets O_i = argmax_t γ_it by Lemma 14: proven, refuted or not established."""
    mixing = linear_mixing(case)
    if isinstance(mixing, Finding):
        return mixing
    c0, c1 = mixing.c0[mixing.mixed].min(), mixing.c1.max()
    return Finding(True, f"Lemma 14 with c0 = {c0:.6g} and c1 = {c1:.6g}")
