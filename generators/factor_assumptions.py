"""Predicate of the assumption on the initial factors K and Q of W = KQᵀ, decided over the rationals.

References: derived here; see :mod:`theorems.transformers_as_svms.factored_flow`.
"""

from __future__ import annotations

from flint import fmpq_mat

from generators.case import Case
from generators.finding import Finding, fraction
from reference_attention.exact import rational_matrix


def definite_imbalance(case: Case) -> Finding:
    """Check that the initial factors K and Q, arrays ``K0`` and ``Q0``, have K square and KᵀK − QᵀQ positive definite.

    For a case without a start the assumption holds: the statement draws starts that satisfy it.
    """
    if "K0" not in case.arrays or "Q0" not in case.arrays:
        return Finding(True, "no K0 and Q0 are given; starts that satisfy the assumption are drawn")
    K, Q = rational_matrix(case.arrays["K0"]), rational_matrix(case.arrays["Q0"])
    d, m = K.nrows(), K.ncols()
    if d != m:
        return Finding(False, f"K0 has {m} columns for tokens of dimension {d}")
    imbalance = K.transpose() * K - Q.transpose() * Q
    for k in range(1, m + 1):
        minor = fmpq_mat(k, k, [imbalance[i, j] for i in range(k) for j in range(k)]).det()
        if minor <= 0:
            return Finding(False, f"the leading minor of size {k} of K0ᵀK0 − Q0ᵀQ0 is {fraction(minor)}")
    return Finding(True, f"all {m} leading minors of K0ᵀK0 − Q0ᵀQ0 are positive, det = {fraction(imbalance.det())}")
