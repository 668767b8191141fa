"""Lemma 11 (Lemma 2 of the main text): when the head lies in the range of Wᵀ, ATT-SVM is feasible.

Main result: an explicit feasible p, checked over the rationals; so the SVM solver must find a solution that is no
longer than p.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 2 (Lemma 2) and Appendix B, Lemma 11.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import fmpq, fmpq_mat
from hypothesis.strategies import SearchStrategy
from jaxtyping import Int64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import SOLVABLE_BLOCKS
from generators.problems import cases
from reference_attention.exact import rational, rational_matrix, to_floats
from reference_attention.problem import Dataset, Problem
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.bounded import exact, with_rounding
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.dataset_claims import DATASET_CLAIMS, dataset_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT

AT_LEAST_ONE = stated_claim("margins-at-least-one")
IS_ONE = sharper("smallest-margin-is-one")
EXISTS = premise("gmm-exists")
FEASIBLE = premise("solution-is-feasible")
PROJECTION = premise("solution-is-the-projection")
NO_LONGER = premise("solution-is-no-longer")

ASSUMPTIONS = ("positive-labels", "strict-optimum", "head-in-key-range")


def _cases() -> SearchStrategy[Case]:
    return cases(assumptions=ASSUMPTIONS, large=SOLVABLE_BLOCKS)


@statement(
    "lemma-11",
    "Feasibility of the max-margin problem",
    source="Section 2, Lemma 2; Appendix B, Lemma 11",
    claims=(AT_LEAST_ONE, IS_ONE, EXISTS, FEASIBLE, PROJECTION, NO_LONGER, *DATASET_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    aliases=("lemma-2",),
    kernel=SVM_ONLY,
)
def lemma_11(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let all labels be +1, γ_it < γ_i,opt for t ≠ opt_i, and v ∈ range(Wᵀ).

    v ∈ range(Wᵀ) holds if W has full column rank. Then

        p = (Wᵀ)⁺ v / min_{i, t≠opt} (γ_i,opt − γ_it)

    satisfies (k_i,opt − k_it)·p ≥ 1 for all i and t ≠ opt_i: ATT-SVM(opt) is feasible, so GMM exists.

    Derivation. k_it·p = x_itᵀWᵀp, and Wᵀ(Wᵀ)⁺v = v for v in the range, so (k_i,opt − k_it)·(Wᵀ)⁺v = γ_i,opt
    − γ_it. The smallest margin of p is 1 exactly.

    (·)⁺ is the pseudo-inverse. Everything is computed over the rationals: (Wᵀ)⁺v = W z for any z with WᵀW z = v. The
    problem under test has correctly rounded keys. With m the exact smallest margin of p for the *rounded* keys, p/m is
    feasible for this problem if m > 0. Then the implementation must not report infeasibility, and its solution must
    have margins of at least 1 and be the projection of the origin onto the feasible set: ⟨p_mm, p/m⟩ ≥ ‖p_mm‖² for a
    feasible p/m, which implies ‖p_mm‖ ≤ ‖p‖/m.
    """
    if case.dataset is None:
        yield undecided_claim(AT_LEAST_ONE, "the lemma needs tokens, head and W: give a dataset")
        return
    yield from dataset_claims(case, under_test)
    w = least_norm_preimage(case.dataset)
    if w is None:
        yield undecided_claim(AT_LEAST_ONE, "v is not in the range of Wᵀ")
        return
    problem = case.problem
    gap, margins = _exact_margins(case.dataset, problem.optimal, w)
    if gap <= 0:
        yield undecided_claim(AT_LEAST_ONE, "in exact arithmetic another token has the optimal score")
        return
    excess = [_sign(m / gap - 1) for m in margins]
    yield at_least(AT_LEAST_ONE, Form.EXACT, excess, 0.0, rounding=0.0, why=EXACT, points="margin")
    tight = -abs(_sign(min(margins) / gap - 1))
    yield at_least(IS_ONE, Form.EXACT, tight, 0.0, rounding=0.0, why=EXACT)
    yield from _solution(problem, [x / gap for x in w], under_test)


def _sign(x: fmpq) -> float:
    """Return the sign of a rational number as a float."""
    return float((x > 0) - (x < 0))


def least_norm_preimage(dataset: Dataset) -> list[fmpq] | None:
    """Return (Wᵀ)⁺v, the shortest w with Wᵀw = v, over the rationals; None if v is not in the range of Wᵀ.

    The result has an entry per row of W.
    """
    W = rational_matrix(dataset.key_query)
    d = dataset.X.shape[2]
    gram = W.transpose() * W
    head = [rational(x) for x in dataset.v.tolist()]
    rows = [[gram[a, b] for b in range(d)] + [head[a]] for a in range(d)]
    reduced, rank = fmpq_mat(d, d + 1, [x for row in rows for x in row]).rref()
    z = [fmpq(0)] * d
    for r in range(rank):
        pivot = next(c for c in range(d + 1) if reduced[r, c] != 0)
        if pivot == d:
            return None
        z[pivot] = reduced[r, d]
    product = W * fmpq_mat(d, 1, z)
    return [product[k, 0] for k in range(W.nrows())]


def _exact_margins(dataset: Dataset, optimal: Int64[np.ndarray, "n"], w: list[fmpq]) -> tuple[fmpq, list[fmpq]]:
    """Return the smallest exact score gap, and exact margins (x_opt − x_t)ᵀWᵀw of prompt w for all inputs, t ≠ opt."""
    n, tokens, d = dataset.X.shape
    X = rational_matrix(dataset.X.reshape(n * tokens, d))
    head = rational_matrix(dataset.v[:, None])
    prompt = rational_matrix(dataset.key_query).transpose() * fmpq_mat(len(w), 1, w)
    scores, logits = X * head, X * prompt
    pairs = [(i * tokens + int(optimal[i]), i * tokens + t) for i in range(n) for t in range(tokens) if t != optimal[i]]
    gap = min(scores[a, 0] - scores[b, 0] for a, b in pairs)
    return gap, [logits[a, 0] - logits[b, 0] for a, b in pairs]


def _solution(problem: Problem, p: list[fmpq], under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims that the solution for rounded keys exists, is feasible, and not longer than p/(least margin)."""
    n, tokens, d = problem.keys.shape
    logits = rational_matrix(problem.keys.reshape(n * tokens, d)) * fmpq_mat(d, 1, p)
    opt = problem.optimal
    others = [(i, t) for i in range(n) for t in range(tokens) if t != opt[i]]
    smallest = min(logits[i * tokens + int(opt[i]), 0] - logits[i * tokens + t, 0] for i, t in others)
    if smallest <= 0:
        yield undecided_claim(EXISTS, "p does not separate the rounded keys; give data whose keys are exact in float64")
        return
    solution = under_test[max_margin](problem.exact_keys, opt)
    exists = 0.0 if not isinstance(solution, Infeasible) else -1.0
    yield at_least(EXISTS, Form.EXACT, exists, 0.0, rounding=0.0, why=EXACT)
    if isinstance(solution, Infeasible):
        return
    feasible, p_mm = with_rounding(to_floats([x / smallest for x in p])), with_rounding(solution.p)
    rows = exact([problem.keys[i, opt[i]] for i, _ in others]) - np.array([problem.keys[i, t] for i, t in others])
    yield at_least(FEASIBLE, Form.EXACT, rows @ p_mm, 1.0, points="constraint")
    yield at_least(PROJECTION, Form.EXACT, feasible @ p_mm, p_mm @ p_mm)
    yield at_least(NO_LONGER, Form.EXACT, norm(feasible), norm(p_mm))
