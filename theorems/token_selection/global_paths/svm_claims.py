"""Whether what the implementation calls p_mm is p_mm: its KKT conditions, decided over the rationals.

Theorems 1 and 2 compare paths with p_mm, its neighbours and its duals; an SVM that is wrong in any of them would
otherwise show as a violated limit, or not at all.

References: *Max-Margin Token Selection in Attention Mechanism*, (ATT-SVM) and Definition 2.
"""

from __future__ import annotations

import numpy as np
from flint import fmpq_mat
from jaxtyping import Int64

from reference_attention.exact import rational_matrix, to_float
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.claim import Claim, Form
from theorems.core.svm_flags import wrong_flag
from theorems.core.tolerances import EXACT


def svm_claim(problem: Problem, alpha: Int64[np.ndarray, "n"], svm: MaxMargin) -> Claim:
    """p_mm is the solution of ATT-SVM(α), with exactly these neighbours and duals.

    Exact: every margin is at least 1, and it is 1 at the neighbours and nowhere else. With floats, because they are
    what is used: p is the exact point rounded, λ ≥ 0 vanishes off the neighbours, and p = Σ λ_it (k_iα − k_it).
    And what decides which claims are made: whether the neighbours' rows are independent, whether all can have a dual.
    """
    wrong = _first_error(problem, alpha, svm)
    return Claim("svm-is-optimal", Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def _first_error(problem: Problem, alpha: Int64[np.ndarray, "n"], svm: MaxMargin) -> str:
    if (svm.alpha != alpha).any():
        return "α is not the tokens that were asked for"
    exact = svm.exact.p
    if not np.allclose(svm.p, [to_float(x) for x in exact], rtol=2 * EPS, atol=0):
        return "p is not the exact point rounded"
    point = fmpq_mat(problem.d, 1, exact)
    logits = (rational_matrix(problem.keys.reshape(-1, problem.d)) * point).tolist()
    for i in range(problem.n):
        best = int(alpha[i])
        for t in range(problem.T):
            if t == best:
                continue
            margin = logits[i * problem.T + best][0] - logits[i * problem.T + t][0]
            if margin < 1:
                return f"the margin of token {t} of input {i} is {to_float(margin):.17g} < 1"
            if (margin == 1) != bool(svm.neighbours[i, t]):
                return f"token {t} of input {i} has margin 1 + {to_float(margin - 1):.3g}, yet is it a neighbour?"
    if (svm.duals < 0).any() or (svm.duals[~svm.neighbours] != 0).any():
        return "a dual is negative, or positive off the neighbours"
    best_keys = np.take_along_axis(problem.keys, alpha[:, None, None], axis=1)
    terms = svm.duals[..., None] * (best_keys - problem.keys)
    size = np.sum(np.abs(terms), axis=(0, 1)) + np.abs(svm.p)
    off = np.abs(np.sum(terms, axis=(0, 1)) - svm.p)
    # Each term is a rounded dual times a rounded difference; n T of them are summed.
    if (off > (problem.n * problem.T + 4) * EPS * size).any():
        return f"p differs from Σ λ (k_α − k_t) by {off.max():.3g}"
    return wrong_flag(problem, alpha, svm)
