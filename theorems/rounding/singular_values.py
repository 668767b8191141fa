"""Singular values with error bounds derived from the residual of a computed singular value decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import norm

from theorems.bounded import Bounded, exact, value_of
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers


def singular_values(matrix: Any) -> Numbers:
    """Return the singular values σ_1 ≥ σ_2 ≥ … of matrices (*b, d, e), shape (*b, min(d, e)).

    Let A = U S Vᵀ + R with the computed U, S and V and the residual R. Then σ_i(A) is within ‖R‖_F of σ_i(U S Vᵀ)
    (Weyl), and σ_i(U S Vᵀ) lies between S_i σ_min(U) σ_min(V) and S_i σ_max(U) σ_max(V) (Ostrowski). The squares of the
    singular values of U and V are within ‖UᵀU − I‖_F and ‖VᵀV − I‖_F of 1.
    """
    U, S, V = np.linalg.svd(value_of(matrix), full_matrices=False)
    if not isinstance(exact(S), Bounded):
        return S
    rest: Any = matrix - np.einsum("...ik,...kj->...ij", exact(U) * S[..., None, :], exact(V))
    identity = np.eye(S.shape[-1])
    askew = [
        norm(np.einsum(formula, exact(X), exact(X)) - identity, axis=(-2, -1))
        for formula, X in (("...ik,...il->...kl", U), ("...ki,...li->...kl", V))
    ]
    missed, turned = norm(rest, axis=(-2, -1)), askew[0] + askew[1]
    # The products σ(U) σ(V) are at most √((1 + a)(1 + b)) ≤ 1 + (a + b)/2 and at least √((1 − a)(1 − b)) ≥ 1 − (a + b),
    # with a = ‖UᵀU − I‖_F and b = ‖VᵀV − I‖_F.
    error = (missed.value + missed.error)[..., None] + S * (turned.value + turned.error)[..., None]
    return approximate(S, error * (1 + 8 * float(np.finfo(float).eps)))


def nuclear_norm(matrix: Any) -> Numbers:
    """Return the nuclear norms Σ σ_i of matrices (*b, d, e), (*b,)."""
    return np.sum(singular_values(matrix), axis=-1)
