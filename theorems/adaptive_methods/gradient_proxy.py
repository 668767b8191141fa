"""Attention with one score gap per input: ‖∇L‖_* lies between γ and D times a sum Z of softmax weights.

Main result: γZ ≤ ‖∇L‖_* ≤ DZ at every prompt, in every norm and for any number of inputs.

References: derived here; Kim, Song, Yun, *Why Row Normalization Can Beat Adam and Muon*, 2026, Lemma B.8, on linear
data; for linear data steepest-multiclass has bounds of the same form, with D where Lemma B.8 has twice the atom radius.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.problems import cases
from generators.query_cases import query_cases
from generators.steepest_descent.embeddings import embedded_cases, embedded_query_cases, or_embedded
from reference_attention.problem import Problem
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.points import affordable, probe_points
from theorems.core.statement import statement
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.steepest_descent.geometry import certify_margin, norms_tried
from theorems.steepest_descent.margin_claim import NORM_MARGIN

LONG, SHORT = sharper("gradient-is-long"), sharper("gradient-is-short")
ASSUMPTIONS = ("well-behaved-loss", "equal-non-optimal-scores", "separable")
POINTS = 40


def equal_gap_cases() -> SearchStrategy[Case]:
    """Return a strategy for cases with one score gap per input; in a third of them W is trained, in the others p."""
    ordinary = or_embedded(cases(assumptions=ASSUMPTIONS), embedded_cases(equal=True))
    return st.one_of(ordinary, ordinary, or_embedded(query_cases(equal=True), embedded_query_cases(equal=True)))


@statement(
    "gradient-proxy",
    "The gradient's length in any norm, for inputs with one score gap each",
    source="own; Kim, Song, Yun 2026, Lemma B.8, on linear data",
    claims=(NORM_MARGIN, LONG, SHORT),
    assumptions=ASSUMPTIONS,
    cases=equal_gap_cases,
    kernel=SATURATED,
    needs={
        "separable": "there is a largest margin, and it is positive, only if ATT-SVM is feasible",
        "well-behaved-loss": "Z is a sum of |ℓ'|, which does not bound the gradient where slopes ℓ' have both signs",
    },
)
def gradient_proxy(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumptions A and B hold and ATT-SVM be feasible, for any n and any norm; notation as in steepest-one-input.

    With δ_i = Σ_t s_it(γ_i,opt − γ_it) and Z = (1/n) Σ_i |ℓ'_i| s_i,opt δ_i, at every p

        γZ ≤ ‖∇L(p)‖_* ≤ DZ.

    **Derivation.** −∇L = Σ C_it g_it with C_it = |ℓ'_i| s_it(δ_it − δ_i)/n, δ_it = γ_i,opt − γ_it. As Σ_{t≠opt} s_tδ_t
    = δ_i, Σ_{t≠opt} C_it = |ℓ'_i|(δ_i − (1 − s_opt)δ_i)/n: ΣC = Z, whatever the scores. Where all C_it ≥ 0, which means
    δ_i ≤ min_t δ_it, −∇L/Z is a convex combination of rows, whose ‖·‖_* is at least γ (its product with the p of the
    largest margin) and at most D. With equal gaps δ_i = (1 − s_opt)δ_it ≤ δ_it, so all C_it ≥ 0 at every p.

    With unequal gaps the bounds hold where margins are large (steepest-from-a-margin), but not everywhere: with rows
    k_opt − k of 3 and 1 and gaps 0.1 and 1, −∇L(0) < 0, although γ = 1.

    Lemma B.8 of Kim, Song and Yun has twice the largest ‖e_c h_iᵀ‖_* where we have D. In ‖·‖_∞ this number equals D; it
    is up to √2 D in ‖·‖_F and the spectral norm, and up to 2D in ‖·‖_1.
    """
    problem = case.problem
    rng = case.rng()
    points = probe_points(rng, problem, m=affordable(problem, POINTS))
    for norm in norms_tried(case, rng):
        geometry = yield from certify_margin(problem, norm, under_test, case.queried.keys if case.queried else None)
        at = AttentionAt(problem, points)
        length = geometry.dual_length(at.gradient_of(under_test, LONG))
        proxy = attention_proxy(problem, at)
        yield at_least(LONG, Form.EFFECTIVE, length, geometry.margin * proxy)
        yield at_least(SHORT, Form.EFFECTIVE, geometry.reach * proxy, length)


def attention_proxy(problem: Problem, at: AttentionAt) -> Numbers:
    """Return Z = (1/n) Σ_i |ℓ'_i| s_i,opt Σ_t s_it(γ_i,opt − γ_it) at each point, in the gradient's unit."""
    others = np.asarray(np.arange(problem.T) != problem.optimal[:, None])
    gaps: Any = exact(problem.scores.max(axis=1))[:, None] - problem.scores
    slopes: Any = at.log_slopes
    logs = at.log_weights + (slopes + at.log_weight_of(problem.optimal) - at.log_scale[:, None])[..., None]
    # The terms of an input with equal scores are 0.
    moved = others & np.asarray(gaps > 0)
    return np.sum(np.where(moved, np.exp(np.where(moved, logs, 0.0)) * gaps, 0.0), axis=(1, 2)) / problem.n
