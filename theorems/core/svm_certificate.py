"""Certificate of p_mm: the solution by the implementation under test satisfies the KKT conditions over the rationals.

Statements compare paths, flows and cones with p_mm, its neighbours (tokens of margin exactly 1) and its duals.
Neighbours and duals also decide which claims are made. Without this certificate, an error of an SVM solver would appear
as a violated limit, or not at all.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM), Definition 2 and Theorem 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Int64

from reference_attention.exact import to_float, to_floats
from reference_attention.floats import EPS
from reference_attention.outer_keys import rational_keys
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, locally_optimal
from theorems.bounded import with_rounding
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.key_rows import key_rows
from theorems.core.svm_flags import wrong_flag
from theorems.core.tolerances import EXACT

SVM_IS_OPTIMAL = premise("svm-is-optimal")
LOCAL_OPTIMALITY = premise("locally-optimal-is-definition-2")

Margins = list[list[fmpq]]
"""The exact margin (k_iα_i − k_it)·p of every token t of every input i; 0 for t = α_i."""


def svm_claim(
    problem: Problem,
    alpha: Int64[np.ndarray, "n"],
    svm: MaxMargin,
    *,
    required: Int64[np.ndarray, "n"] | None = None,
    name: str = SVM_IS_OPTIMAL,
) -> Claim:
    """Return the claim that p_mm solves ATT-SVM(α), with exactly the neighbours and duals of ``svm``.

    The claim says: every margin is at least the required one, with equality exactly at the neighbours. Duals are
    nonnegative, and zero except at neighbours; p is the sum of the rows k_iα − k_it times their duals. The solution's
    floats are these rationals rounded (p within two and duals within four eps, margins as accurate as an inner product
    with the rounded p). ``svm`` says correctly whether the neighbours' rows are independent, and whether all neighbours
    can have a positive dual. All but the floats is checked exactly.

    Args:
        problem: keys and scores.
        alpha: the chosen tokens, (n,).
        svm: the solution to be checked.
        required: the required margin of each input, 0 or 1 (p_relax of Theorem 6), shape (n,); 1 for all by default.
        name: the name of the claim.
    """
    margins = np.ones(problem.n, dtype=np.int64) if required is None else required
    wrong = _first_error(problem, alpha, svm, margins)
    tight = int(svm.neighbours.sum())
    detail = wrong or f"{svm.neighbours.size - problem.n} margins, {tight} of them exactly what is required"
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, detail)


def local_optimality_claim(
    problem: Problem, alpha: Int64[np.ndarray, "n"], svm: MaxMargin, under_test: Implementation
) -> Claim:
    """Return the claim that the implementation decides correctly whether α is locally optimal (Definition 2).

    That is, whether all neighbours of p_mm, which must be certified before, score below α_i. The decision is checked
    for the scores γ, for −γ, which turns neighbours of lower score into neighbours of higher score, and for 0, which
    makes all scores equal.
    """
    wrong = ""
    for scores, called in ((problem.scores, "γ"), (-problem.scores, "−γ"), (0 * problem.scores, "0")):
        lower = all(float(scores[i, t]) < float(scores[i, alpha[i]]) for i, t in np.argwhere(svm.neighbours))
        if under_test[locally_optimal](svm, scores) != lower:
            wrong = f"for the scores {called} α is called {'not ' if lower else ''}locally optimal, which is wrong"
    return Claim(LOCAL_OPTIMALITY, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def _first_error(
    problem: Problem, alpha: Int64[np.ndarray, "n"], svm: MaxMargin, required: Int64[np.ndarray, "n"]
) -> str:
    if (svm.alpha != alpha).any():
        return "the solution is for other tokens α than were asked for"
    if (svm.required != required).any():
        return "the solution requires other margins than were asked for"
    keys = rational_keys(problem.exact_keys)
    margins = _exact_margins(problem, keys, alpha, list(svm.exact.p))
    return (
        _wrong_margin(problem, alpha, svm, margins, required)
        or _wrong_dual(problem, keys, alpha, svm)
        or _wrong_float(svm)
        or wrong_flag(problem, keys, alpha, svm)
    )


def _exact_margins(problem: Problem, keys: fmpq_mat, alpha: Int64[np.ndarray, "n"], p: list[fmpq]) -> Margins:
    flat = keys * fmpq_mat(problem.d, 1, p)
    logits = [row[0] for row in flat.tolist()]
    by_input = [logits[i * problem.T : (i + 1) * problem.T] for i in range(problem.n)]
    return [
        [products_of_input[int(a)] - other for other in products_of_input]
        for products_of_input, a in zip(by_input, alpha, strict=True)
    ]


def _wrong_margin(
    problem: Problem,
    alpha: Int64[np.ndarray, "n"],
    svm: MaxMargin,
    margins: Margins,
    required: Int64[np.ndarray, "n"],
) -> str:
    # The reported margins and those computed here both have this error, so they may differ by twice as much.
    error: Any = 2 * np.vecdot(key_rows(problem, alpha), with_rounding(svm.p)).error
    for i, t in np.ndindex(problem.n, problem.T):
        margin, least = margins[i][t], int(required[i])
        if t == alpha[i]:
            continue
        place = f"token {t} of input {i}"
        if margin < least:
            return f"the margin of {place} is {to_float(margin):.17g} < {least}"
        if (margin == least) != bool(svm.neighbours[i, t]):
            reported = "a" if svm.neighbours[i, t] else "no"
            return f"{place} has margin {least} + {to_float(margin - least):.3g}, but is called {reported} neighbour"
        if not abs(float(svm.margins[i, t]) - to_float(margin)) <= error[i, t]:
            return f"the margin of {place} is {to_float(margin):.17g}, but reported as {svm.margins[i, t]:.17g}"
    return ""


def _wrong_dual(problem: Problem, keys: fmpq_mat, alpha: Int64[np.ndarray, "n"], svm: MaxMargin) -> str:
    duals = {pair: weight for pair, weight in svm.exact.duals.items() if weight != 0}
    if any(weight < 0 or not svm.neighbours[pair] for pair, weight in duals.items()):
        return "a dual is negative, or is positive although its token is no neighbour"
    # Compute Σ λ_it (k_iα − k_it) as one combination of keys.
    weights = [fmpq(0)] * (problem.n * problem.T)
    for (i, t), weight in duals.items():
        weights[i * problem.T + int(alpha[i])] += weight
        weights[i * problem.T + t] -= weight
    total = (fmpq_mat(1, len(weights), weights) * keys).entries()
    return "" if total == list(svm.exact.p) else "p_mm is not the sum of the rows times their duals"


def _wrong_float(svm: MaxMargin) -> str:
    if not np.allclose(svm.p, to_floats(svm.exact.p), rtol=2 * EPS, atol=0.0):
        return "the float p_mm is not the rounded exact p_mm"
    ours = np.zeros(svm.duals.shape)
    for pair, weight in svm.exact.duals.items():
        ours[pair] = to_float(weight)
    return (
        "" if np.allclose(svm.duals, ours, rtol=4 * EPS, atol=0.0) else "the float duals are not the rounded exact ones"
    )
