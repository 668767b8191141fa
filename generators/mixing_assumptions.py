"""Predicates of assumptions under which optimal attention is a known mixture of several tokens, decided exactly.

The tokens that get weight under optimal attention are computed here from the scores, without a solver.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flint import fmpq, fmpq_mat, fmpz
from jaxtyping import Bool

from generators.case import Case
from generators.finding import Finding, fraction, number
from generators.margin_assumptions import Vector, dot, exact_vector
from generators.query_assumptions import NO_QUERIES
from reference_attention.exact import rational
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.general_svm import GeneralSvm, general_svm

PENALTY = "penalty"
"""The name of a case's array that holds the penalty λ of the head vᵀx − λ‖x‖², shape (1,)."""


def penalty_of(case: Case) -> fmpq:
    """Return the penalty λ of the head vᵀx − λ‖x‖²."""
    return rational(float(case.arrays[PENALTY].ravel()[0]))


def exact_scores(data: QueryDataset) -> list[Vector]:
    """Return the scores γ_it = vᵀx_it over the rationals."""
    head = exact_vector(data.v)
    return [[dot(exact_vector(token), head) for token in tokens] for tokens in data.X]


def thresholds(scores: Sequence[fmpq]) -> Vector:
    """Return each token's threshold Σ_u max(γ_u − γ_t, 0): token t gets weight if and only if 2λ is larger.

    This concerns optimal attention to orthonormal tokens with scores γ_t under the head vᵀx − λ‖x‖².
    """
    return [sum((max(other - score, fmpq(0)) for other in scores), fmpq(0)) for score in scores]


def selected_sets(case: Case) -> Bool[np.ndarray, "n T"]:
    """Return the mask, (n, T), of the tokens that get weight under optimal attention, if tokens are orthonormal."""
    assert case.queried is not None
    twice = 2 * penalty_of(case)
    return np.array([[x < twice for x in thresholds(row)] for row in exact_scores(case.queried)], dtype=np.bool_)


def quadratic_head(case: Case) -> Finding:
    """Check that the head is vᵀx − λ‖x‖² with λ > 0, that the loss is ℓ(u) = −u, and that all labels are +1."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    if PENALTY not in case.arrays or case.arrays[PENALTY].size != 1:
        return Finding(None, f"λ is not given; add the array {PENALTY!r} with this one entry")
    if case.queried.loss.name != "correlation" or not (case.queried.Y == 1).all():
        return Finding(False, "the loss is not −u, or a label is −1")
    lam = penalty_of(case)
    return Finding(lam > 0, f"λ = {fraction(lam)}")


def orthonormal_tokens(case: Case) -> Finding:
    """Check that the tokens of every input are orthonormal."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    for i, tokens in enumerate(case.queried.X):
        rows = [exact_vector(token) for token in tokens]
        for t, row in enumerate(rows):
            for u, other in enumerate(rows[: t + 1]):
                if (product := dot(row, other)) != int(t == u):
                    return Finding(False, f"input {i}: tokens {t} and {u} have the inner product {fraction(product)}")
    return Finding(True, f"{len(case.queried.X)} Gram matrices are the identity")


def decided_attention(case: Case) -> Finding:
    """Check that 2λ is not the threshold Σ_u max(γ_u − γ_t, 0) of any token t, for the head vᵀx − λ‖x‖².

    Optimal attention gives token t weight if and only if 2λ exceeds the threshold of t. If 2λ equals the threshold, the
    risk does not grow to first order in the weight of token t.
    """
    finding = quadratic_head(case)
    if not finding.holds or case.queried is None:
        return Finding(None, finding.evidence)
    twice, least = 2 * penalty_of(case), None
    for i, row in enumerate(exact_scores(case.queried)):
        for t, threshold in enumerate(thresholds(row)):
            if threshold == twice:
                return Finding(False, f"2λ = {fraction(twice)} is the threshold of token {t} of input {i}")
            least = min(abs(threshold - twice), least) if least is not None else abs(threshold - twice)
    assert least is not None
    return Finding(True, f"2λ is at least {fraction(least)} away from the threshold of every token")


def attainable_attention(case: Case) -> Finding:
    """Check that some W attains the optimal ratios of the selected tokens' weights, and that Gen-SVM is feasible.

    Let O_i be the selected tokens of input i, α_i the first of them, s⋆ their optimal weights, z_i the query, and E_it
    = (x_iα − x_it) z_iᵀ for t ∈ O_i. The ratios can be attained if and only if Π (s⋆_iα/s⋆_it)^c_it = 1 for all
    coefficients c with Σ c_it E_it = 0, which is decided over the rationals. The solver's W is checked against the
    constraints of Gen-SVM, which gives the tokens of O_i equal logits and separates them from the others.
    """
    finding = quadratic_head(case)
    if not finding.holds or case.queried is None:
        return Finding(None, finding.evidence)
    sets, twice = selected_sets(case), 2 * penalty_of(case)
    if sets.all():
        return Finding(False, "the best attention selects every token: there is nothing to separate")
    level, ratios = [], []
    for i, row in enumerate(exact_scores(case.queried)):
        chosen = np.flatnonzero(sets[i]).tolist()
        mean = (sum((row[t] for t in chosen), fmpq(0)) - twice) / len(chosen)
        tokens, query = [exact_vector(token) for token in case.queried.X[i]], exact_vector(case.queried.queries[i])
        first = chosen[0]
        for t in chosen[1:]:
            level.append([(a - b) * c for a, b in zip(tokens[first], tokens[t], strict=True) for c in query])
            ratios.append((row[first] - mean) / (row[t] - mean))
    if level and not _consistent(level, ratios):
        return Finding(False, "no W has the log-ratios of the best attention: they contradict a dependency of the rows")
    solution = general_svm(case.queried.keys, sets, np.argmax(sets, axis=1).astype(np.int64))
    if not isinstance(solution, GeneralSvm):
        return Finding(False, "no W gives each set equal logits and separates it from the other tokens")
    if any(dot(row, solution.point) != 0 for row in solution.rows.level.values()) or min(solution.margins.values()) < 1:
        return Finding(None, "the solver's W violates a constraint")
    masked = len(solution.margins)
    return Finding(True, f"{masked} tokens get no weight, ‖W^mm‖ = {number(float(solution.norm_squared) ** 0.5)}")


def _consistent(rows: list[Vector], ratios: Vector) -> bool:
    """Return whether Π ratio_j^c_j = 1 for all coefficients c of linear dependencies Σ c_j row_j = 0."""
    kernel, rank = fmpq_mat(rows).transpose().rref()
    m = len(rows)
    pivots = [next(j for j in range(m) if kernel[r, j] != 0) for r in range(int(rank))]
    for free in (j for j in range(m) if j not in pivots):
        # The dependency of row ``free`` on the pivot rows: row_free = Σ_r kernel[r, free] row_pivot(r).
        shares = {p: kernel[r, free] for r, p in enumerate(pivots)} | {free: fmpq(-1)}
        common = fmpz(1)
        for share in shares.values():
            common = common.lcm(share.q)
        product = fmpq(1)
        for j, share in shares.items():
            product *= ratios[j] ** int((share * common).p)
        if product != 1:
            return False
    return True
