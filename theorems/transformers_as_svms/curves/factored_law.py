"""Law of the singular values of (K; Q): beyond the nuclear-norm solution's rank they fall behind σ_1 like ‖W‖^{−g/2}.

Notation: Θ = (K; Q) is the matrix with K above Q. ATT-SVM⋆ asks for the W of least nuclear norm C_⋆ with all margins
⟨G_j, W⟩ ≥ 1. M = Σ λ_j G_j is the dual matrix of ATT-SVM⋆ with ‖M‖_op = 1; r of its singular values are 1 and the next
is 1 − g. N = C_⋆M̂ is the certificate −∇L in the unit of M. S = (0, M; Mᵀ, 0). The time τ is defined by 4⟨N, W⟩ dτ =
d‖Θ‖² and is 0 at a chosen point of the flow; E = ∫‖N − M‖_op dτ from this point on. μ_k is the sum of the k largest
eigenvalues of S, and c_k the cosine at this point between the k leading left singular vectors of Θ and k orthonormal
eigenvectors of S for these eigenvalues. With p_k = σ_1(Θ) ⋯ σ_k(Θ), for all τ ≥ 0

    μ_k τ − kE/(c_k − 2kE) + log c_k ≤ log p_k − log p_k(0) ≤ μ_k τ + kE.

*Derivation.* p_k is the norm of the compound ∧ᵏΘ, whose derivative is the additive compound of S times ∧ᵏΘ. The largest
eigenvalue of this additive compound is μ_k; an error of S changes the compound by at most k times as much. Let w be the
eigenvector for μ_k and y = ∧ᵏΘ/|∧ᵏΘ|, so that ⟨w, y⟩ ≥ c_k at τ = 0. Then d log⟨w, ∧ᵏΘ⟩ ≥ (μ_k − k‖N − M‖/⟨w, y⟩) dτ,
hence ⟨w, y⟩ decreases by at most 2kE.

As μ_r = r and μ_{r+1} = r + 1 − g, the law says that log p_{r+1} − (1 + 1/r) log p_r falls by gτ, up to these errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin
from theorems.bounded import value_of
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints

SAME = 1e-9
"""The distance below which eigenvalues of S (see the module) count as equal; any eigenvectors of them may be used."""


@dataclass(frozen=True)
class Lag:
    """The fall of log p_{r+1} − (1 + 1/r) log p_r between two points of the flow, with the notation of the module.

    Attributes:
        fallen: the observed fall.
        expected: the fall gτ that the law predicts.
        above: an upper bound on ``expected − fallen``.
        below: an upper bound on ``fallen − expected``.
    """

    fallen: float
    expected: float
    above: float
    below: float


def sharpest_lag(
    points: FactoredPoints, svm: NuclearMaxMargin, certificates: Float64[np.ndarray, "r d e"]
) -> Lag | None:
    """Return the lag between an earlier point and the last one, for the earlier point that gives the sharpest bounds.

    Args:
        points: (K, Q) along the flow.
        svm: the solution of ATT-SVM⋆.
        certificates: M̂ = −∇L/Σω at the points.

    Returns:
        The lag with the smallest error bounds relative to gτ; None if the bounds always exceed half of gτ, or if the
        solution has full rank, or no proven rank, gap or face.
    """
    r, gap = svm.rank, svm.gap
    least = min(certificates.shape[1:])
    if r is None or gap is None or svm.face is None or r >= least:
        return None
    M, S = eigenvectors_of(svm)
    K, Q, W = (value_of(x) for x in (points.K, points.Q, points.W))
    N = svm.norm * certificates
    left_vectors, values, _ = np.linalg.svd(np.concatenate([K, Q], axis=1), full_matrices=False)
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log(values), axis=1)
    x = np.log(value_of(points.norm_squared))
    speed = value_of(points.norm_squared) / (4 * np.sum(N * W, axis=(1, 2)))
    deviation = np.linalg.norm(N - M, ord=2, axis=(1, 2))
    pieces = np.diff(x) * (speed[1:] + speed[:-1]) / 2
    missed = float(np.abs(np.diff(x) * np.diff(speed)).sum()) / 2
    off_pieces = pieces * np.maximum(deviation[1:], deviation[:-1])
    best = None
    for k in range(len(x) - 2):
        tau, E = float(pieces[k:].sum()), float(off_pieces[k:].sum())
        cosines = [S.cosine(left_vectors[k], r), S.cosine(left_vectors[k], r + 1)]
        room = [c - 2 * j * E for c, j in zip(cosines, (r, r + 1), strict=True)]
        if min(room) <= 0:
            continue
        share = 1 + 1 / r
        above = (r + 1) * E + share * (r * E / room[0] - np.log(cosines[0]))
        below = (r + 1) * E / room[1] - np.log(cosines[1]) + share * r * E
        log_ratios = logs[:, r] - share * logs[:, r - 1]
        lag = Lag(float(log_ratios[k] - log_ratios[-1]), gap * tau, float(above) + missed, float(below) + missed)
        if best is None or max(lag.above, lag.below) / lag.expected < max(best.above, best.below) / best.expected:
            best = lag
    return best if best is not None and max(best.above, best.below) <= best.expected / 2 else None


@dataclass(frozen=True, eq=False)
class Eigenvectors:
    """Eigenvectors of S = (0, M; Mᵀ, 0) for its largest eigenvalues, with the notation of the module.

    Attributes:
        first: the eigenvectors (U1; V1)/√2 for the eigenvalue 1, with the singular vectors U1, V1 of M; (d + e, r).
        following: the eigenvectors for the next eigenvalue 1 − g, (d + e, s).
    """

    first: Float64[np.ndarray, "k r"]
    following: Float64[np.ndarray, "k s"]

    def cosine(self, vectors: Float64[np.ndarray, "k m"], count: int) -> float:
        """Compute the cosine c_k of the module for k = ``count``, which is r or r + 1.

        For r + 1, the last eigenvector is the one for 1 − g that is nearest to column r of ``vectors``.
        """
        r = self.first.shape[1]
        basis = self.first
        if count > r:
            nearest = self.following @ (self.following.T @ vectors[:, r])
            size = float(np.linalg.norm(nearest))
            basis = np.column_stack([basis, nearest / size]) if size > 0 else np.column_stack([basis, 0 * nearest])
        return min(1.0, abs(float(np.linalg.det(basis.T @ vectors[:, :count]))))


def eigenvectors_of(svm: NuclearMaxMargin) -> tuple[Float64[np.ndarray, "d e"], Eigenvectors]:
    """Return the dual matrix M, (d, e), and the eigenvectors of S = (0, M; Mᵀ, 0)."""
    keys, r = svm.rows.keys, svm.rank
    assert svm.face is not None
    assert r is not None
    apart = keys.tokens[np.arange(len(svm.alpha)), svm.alpha][:, None] - keys.tokens
    M = np.einsum("nd,ne->de", np.einsum("nt,ntd->nd", svm.duals, apart), keys.queries)
    U, values, Vt = np.linalg.svd(M)
    d, e = M.shape
    padded = np.zeros(max(d, e))
    padded[: len(values)] = values
    value = padded[r]
    first = np.concatenate(svm.face, axis=0) / np.sqrt(2)
    if value < SAME:
        null_u, null_v = U[:, r:], Vt[r:].T
        following = np.block([[null_u, np.zeros((d, null_v.shape[1]))], [np.zeros((e, null_u.shape[1])), null_v]])
    else:
        same = [k for k in range(r, len(values)) if values[k] > value - SAME]
        following = np.concatenate([U[:, same], Vt[same].T], axis=0) / np.sqrt(2)
    return M, Eigenvectors(first, following)
