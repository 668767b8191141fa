"""Lemma 2 for the nuclear norm, for choices α whose solution W_⋆ of least nuclear norm is proven to be unique.

References: *Transformers as Support Vector Machines*, Lemma 2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import fmpq_mat
from jaxtyping import Float64

from generators.case import Case
from reference_attention.exact import rational_matrix, to_floats
from reference_attention.floats import EPS
from reference_attention.svm.max_margin import Infeasible
from reference_attention.svm.nuclear_max_margin import nuclear_max_margin
from theorems.core.att_svm import end_as_infeasible
from theorems.core.claim import Claim, Form, at_least, section
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.nuclear_certificate import NuclearCertificate, nuclear_claim
from theorems.core.tolerances import EXACT, tolerance

FACTOR_ROUNDING = tolerance(
    "nuclear-factor-rounding",
    "(e + 4) eps Σ_b |Q_bk||N_b| + 2^−120 max|Q| Σ_b |N_b|",
    "each entry of a factor Q and of a vector N orthogonal to the span is rounded once, and each product and sum in QᵀN"
    " is rounded; entries of Q are enclosed to within 2^−120 of the largest entry",
)

ENCLOSED = 2.0**-120
"""The largest radius of an entry's enclosure, in units of the largest entry: at most 40 of 160 bits may be lost."""

UNIQUE = "the solution of ATT-SVM⋆ is proven the only one"

SVM_IS_OPTIMAL = premise("nuclear-svm-is-optimal")
IN_SPAN_OF_QUERIES = stated_claim("nuclear-rows-in-span-of-queries", when=UNIQUE)
IN_SPAN_OF_DIFFERENCES = sharper("nuclear-columns-in-span-of-differences", when=UNIQUE)
RANK = sharper("nuclear-rank-at-most-supporting-inputs", when=UNIQUE)
TIGHT = sharper("nuclear-rank-by-tight-constraints", when=UNIQUE)

NUCLEAR_RANK_CLAIMS = (SVM_IS_OPTIMAL, IN_SPAN_OF_QUERIES, IN_SPAN_OF_DIFFERENCES, RANK, TIGHT)
"""The names of the claims that :func:`nuclear_rank_claims` yields."""


@section
def nuclear_rank_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims of Lemma 2 for the nuclear norm; :func:`.rank.tsvm_rank` derives them."""
    data, alpha = case.queried, case.chosen_tokens
    assert data is not None
    svm = under_test[nuclear_max_margin](data.keys, alpha)
    if isinstance(svm, Infeasible):
        end_as_infeasible(case.problem, alpha, svm, SVM_IS_OPTIMAL, svm="ATT-SVM⋆")
    yield from premises(nuclear_claim(NuclearCertificate(data, alpha, svm), SVM_IS_OPTIMAL))
    if svm.exact is None:
        return
    pairs = [(int(i), int(t)) for i, t in np.argwhere(svm.duals > 0)]
    inputs = sorted({i for i, _ in pairs})
    tokens = rational_matrix(data.X.reshape(-1, data.X.shape[2])).tolist()
    T = data.X.shape[1]
    differences = [
        [x - y for x, y in zip(tokens[i * T + int(alpha[i])], tokens[i * T + t], strict=True)] for i, t in pairs
    ]
    # W = KQᵀ with Q = MᵀK and K = MQ: the columns of Q span the rows of W, and the columns of K its columns.
    yield _in_span(IN_SPAN_OF_QUERIES, svm.Q, rational_matrix(data.queries[inputs]))
    yield _in_span(IN_SPAN_OF_DIFFERENCES, svm.K, fmpq_mat(differences))
    r = svm.K.shape[1]
    yield _at_most(RANK, r, len(inputs), "supporting inputs")
    yield _at_most(TIGHT, r * (r + 1) // 2, len(pairs), "tight constraints")


def _in_span(name: str, factor: Float64[np.ndarray, "e r"], span: fmpq_mat) -> Claim:
    """Claim that the columns of the factor are linear combinations of the rows of ``span``.

    The columns must be orthogonal to all vectors that are orthogonal to the rows of ``span``.
    """
    beside = _orthogonal_to(span)
    products = np.abs(factor.T @ beside)
    sizes = np.abs(factor) + ENCLOSED / EPS * np.abs(factor).max()
    rounding = (len(factor) + 4) * EPS * (sizes.T @ np.abs(beside))
    scale = max(float(np.abs(factor).max()), 1e-300)
    if products.size == 0:
        return Claim(name, Form.EXACT, 0.0, 0.0, FACTOR_ROUNDING, "all vectors are in the span")
    return at_least(
        name, Form.EXACT, 0.0, products, rounding=rounding, why=FACTOR_ROUNDING, scale=scale, points="column and vector"
    )


def _orthogonal_to(span: fmpq_mat) -> Float64[np.ndarray, "e k"]:
    """Return a basis of the orthogonal complement of the rows of ``span``, computed exactly and then rounded once."""
    reduced, rank = span.rref()
    e = span.ncols()
    pivots = [next(j for j in range(e) if reduced[i, j] != 0) for i in range(rank)]
    free = [j for j in range(e) if j not in pivots]
    basis = np.zeros((e, len(free)))
    for k, j in enumerate(free):
        basis[j, k] = 1.0
        basis[pivots, k] = to_floats([-reduced[i, j] for i in range(rank)])
    return basis


def _at_most(name: str, rank: int, most: int, bound: str) -> Claim:
    return Claim(name, Form.EXACT, float(min(most - rank, 0)), 0.0, EXACT, f"{rank} ≤ {most} {bound}")
