"""A second computation of the L_p of Lemma 6: its formula on bounded arrays, with enclosures of the spectral norms.

The step size of every descent is 1/L_p. The inequalities of Lemma 6 show only that L_p is large enough; this
computation shows that L_p has the right value.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 6; Horn and Johnson, *Matrix
Analysis*, Section 6.3 (residual bounds of symmetric eigenvalues).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.loss import Loss
from theorems.bounded import Bounded, exact, hull
from theorems.token_selection.softmax.smoothness import log_constant


def log_smoothness_values(case: Case) -> Any:
    """Return log L_p from keys and scores and, if the case has tokens, also from tokens as in Lemma 6; (1,) or (2,).

    From keys and scores L_p = (1/n) Σ_i (M0 ‖γ_i‖² ‖K_i‖² + 3 M1 ‖γ_i‖ ‖K_i‖²), with M0 the Lipschitz constant of ℓ'
    and M1 the largest |ℓ'|; from tokens ‖v‖‖X_i‖ takes the place of ‖γ_i‖, and ‖W‖‖X_i‖ that of ‖K_i‖.
    """
    problem, data = case.problem, case.dataset
    pairs = [(log_spectral_norms(problem.scores[:, None]), log_spectral_norms(problem.keys))]
    if data is not None:
        tokens, head, weights = (log_spectral_norms(x) for x in (data.X, data.v[None, None], data.key_query[None]))
        pairs.append((head + tokens, weights + tokens))
    return np.stack([_log_smoothness(problem.loss, problem.score_range, *pair) for pair in pairs])


def _log_smoothness(loss: Loss, scores: tuple[float, float], log_gamma: Any, log_k: Any) -> Bounded:
    """Return log((1/n) Σ_i (M0 a_i² b_i² + 3 M1 a_i b_i²)) from log a = ``log_gamma`` and log b = ``log_k``, (n,).

    M0 and M1 are the Lipschitz constant of ℓ' and the largest |ℓ'| on the range ``scores``.
    """
    curved = log_constant(loss.log_lipschitz(*scores)) + 2 * log_gamma + 2 * log_k
    steep = log_constant(loss.log_bound(*scores)) + np.log(exact(3)) + log_gamma + 2 * log_k
    total: Bounded = np.logaddexp.reduce(np.concatenate([curved, steep])) - np.log(exact(len(log_k)))
    return total


def log_spectral_norms(matrices: Float64[np.ndarray, "n m k"]) -> Any:
    """Return bounds of the logarithms of matrices' spectral norms, as bounded arrays, (n,); −inf for A_i = 0.

    The bounds hold for inexact eigenvectors of the Gram matrix G = AᵀA (or AAᵀ), too. Let V be the computed
    eigenvectors of G and Λ the diagonal matrix of its computed eigenvalues. Lower bound: xᵀGx/xᵀx ≤ ‖A‖² for any x,
    here the vector of the largest eigenvalue. Upper bound: with E = GV − VΛ and N = ‖VᵀV − I‖ < 1, every y = Vz has
    |y|² ≥ (1 − N)|z|² and yᵀGy = zᵀVᵀ(VΛ + E)z ≤ (1 + N)(max Λ + ‖E‖)|z|².
    """
    largest = np.max(np.abs(matrices), axis=(1, 2))
    unit = np.where(largest > 0, np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0)))), 1.0)
    scaled = matrices / unit[:, None, None]  # exact: only negligible entries underflow
    if scaled.shape[1] < scaled.shape[2]:
        scaled = np.swapaxes(scaled, 1, 2)
    gram: Any = np.einsum("nmk,nml->nkl", exact(scaled), exact(scaled))
    values, vectors = np.linalg.eigh(gram.value)
    top = np.maximum(values[:, -1], 0.0)
    v: Any = exact(vectors)
    image = np.einsum("nkl,nlm->nkm", gram, v)
    first = v[:, :, -1]
    low = np.sum(first * image[:, :, -1], axis=-1) / np.sum(first * first, axis=-1)
    residual = norm(image - v * values[:, None, :], axis=(1, 2))
    skew = np.einsum("nlk,nlm->nkm", v, v) - np.eye(vectors.shape[-1])
    tilt = norm(skew, axis=(1, 2))
    high = (1 + tilt) * (top + residual) / (1 - tilt)
    zero = largest == 0
    squared = hull(np.log(np.where(zero, 1.0, low)), np.log(np.where(zero, 1.0, high)))
    return np.where(zero, -np.inf, squared / 2 + np.log(exact(unit)))
