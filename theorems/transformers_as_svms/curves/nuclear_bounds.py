"""Bounds of the distance from a matrix W of large margins to the face of a dual of ATT-SVM⋆, or to the solution.

Notation: the rows are G_j = (x_iα − x_it) z_iᵀ, and their duals λ ≥ 0 are scaled so that M = Σ λ_j G_j has ‖M‖_op = 1,
and C = Σ λ_j ≤ C_⋆ = ‖W_⋆‖_⋆. U1 and V1 are the r leading left and right singular vectors of M, the gap is g = 1 −
σ_{r+1}(M), and the face is F = {U1 P V1ᵀ : P ⪰ 0}. If ‖W‖_⋆ ≤ R and all margins of W are at least a > 0, then R − ⟨M,
W⟩ ≤ e for e = R − Ca. From this, ``tsvm-nuclear-path`` derives dist_⋆(W, F) ≤ 2√(Re/g) if the r leading singular values
are 1.

The r leading singular values need not be 1:
dist_⋆(W, F) ≤ 2√(Re/g) for *every* r with g > 0. *Derivation.* Let the r leading singular values be
Σ1 = I − D, 0 ⪯ D ⪯ I, and u = U1a + U2b, v = V1c + V2d unit vectors. Then ½(|a|² + |c|²) − aᵀΣ1c is ½(a − c)ᵀΣ1(a − c)
+ ½(aᵀDa + cᵀDc) ≥ ½(a − c)ᵀ(Σ1 + D/2)(a − c) ≥ ¼|a − c|², as aᵀDa + cᵀDc ≥ ½(a − c)ᵀD(a − c). And ½(|b|² + |d|²) − bᵀMd
is at least (g/2)(|b|² + |d|²). So 1 − uᵀMv ≥ e_k = ¼|a − c|² + (g/2)(|b|² + |d|²). As g ≤ 1, with μ = ½(a + c)

    ‖uvᵀ − U1 μμᵀ V1ᵀ‖_⋆ ≤ √2 (½|a − c|² + |b|² + |d|²)^½ ≤ 2√(e_k/g).

So the bound holds for every choice of the singular values that count as 1; the choice affects only how sharp it is.

References: *Transformers as Support Vector Machines*, Theorem 2 (KQ-ERM).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin
from theorems.bounded import exact
from theorems.core.key_rows import key_rows
from theorems.core.nuclear_certificate import NuclearCertificate
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import Numbers

NUCLEAR_ROUNDING = tolerance(
    "nuclear-rounding",
    "32 (d + e)² eps R",
    "singular values and vectors computed in floats are exact for a d × e matrix that differs from W by a small"
    " multiple of eps ‖W‖ (d + e), and the nuclear norm sums min(d, e) of them; likewise for Gram matrices of factors",
)
VISIBLE = 1e-6
"""The distance from 1 within which singular values of M count as 1 if the solution has no proven face.

Weak duality leaves an error of about 1e-8 in them. The bounds hold whichever singular values count as 1; a gap smaller
than this distance would make them vacuous.
"""

Matrices = Float64[np.ndarray, "m d e"]


@dataclass(frozen=True, eq=False)
class NuclearBounds:
    """The face F and gap g of one solution W_⋆, and the bounds of distances that follow from F and g (see the module).

    Attributes:
        problem: keys vec(x zᵀ), scores, loss.
        certificate: the certificate of a solution of ATT-SVM⋆(α); a claim has already checked it.
    """

    problem: Problem
    certificate: NuclearCertificate

    @property
    def svm(self) -> NuclearMaxMargin:
        """The solution of ATT-SVM⋆(α), the W of least nuclear norm with margins of at least 1 for the tokens α."""
        return self.certificate.svm

    @cached_property
    def rows(self) -> Numbers:
        """The rows G_j as vectors, (N, d·e), with the rounding errors of the keys."""
        others = np.arange(self.problem.T) != self.svm.alpha[:, None]
        return key_rows(self.problem, self.svm.alpha)[others]

    @cached_property
    def duals(self) -> Float64[np.ndarray, "N"]:
        """The duals λ_j, scaled so that ‖M‖_op = 1."""
        a, z, duals = self.certificate.floats
        return np.asarray(duals / np.linalg.norm((a * duals[:, None]).T @ z, ord=2))

    @cached_property
    def M(self) -> Float64[np.ndarray, "d e"]:
        """The matrix M = Σ λ_j G_j."""
        a, z, _ = self.certificate.floats
        return np.asarray((a * self.duals[:, None]).T @ z)

    @property
    def least(self) -> float:
        """The lower bound C = Σ λ_j of C_⋆, which the duals prove."""
        return self.svm.bounds[0]

    @property
    def most(self) -> float:
        """The upper bound of ‖W_⋆‖_⋆ that the factors K and Q prove."""
        return self.svm.bounds[1]

    @cached_property
    def face(self) -> tuple[Float64[np.ndarray, "d r"], Float64[np.ndarray, "e r"], float]:
        """U1 and V1, which define the face F, and a lower bound of the gap g."""
        if self.svm.face is not None and self.svm.gap is not None:
            return *self.svm.face, self.svm.gap
        u, s, vt = np.linalg.svd(self.M, full_matrices=False)
        r = int(np.sum(s > 1 - VISIBLE))
        following = float(s[r]) if r < len(s) else 0.0
        return u[:, :r], vt[:r].T, 1 - following - 4 * sum(self.M.shape) * EPS

    def margins(self, W: Matrices) -> Numbers:
        """Compute the margins h_j(W) = ⟨G_j, W⟩, (m, N), of m matrices W."""
        return exact(W.reshape(len(W), W.shape[1] * W.shape[2])) @ self.rows.T

    def rounding(self, R: Any) -> Any:
        """Bound the rounding error of the singular values of matrices W with ‖W‖_⋆ ≤ R."""
        return 32 * sum(self.svm.W.shape) ** 2 * EPS * np.asarray(R)

    def face_distance(self, W: Matrices) -> Float64[np.ndarray, "m"]:
        """Compute the nuclear norms of W − U1 (Σ_k σ_k μ_k μ_kᵀ) V1ᵀ, (m,), which bound the distance of W from F.

        Here W = Σ_k σ_k u_k v_kᵀ is the singular value decomposition and μ_k = ½(U1ᵀu_k + V1ᵀv_k).
        """
        U1, V1, _ = self.face
        u, s, vt = np.linalg.svd(W, full_matrices=False)
        mu = (U1.T @ u + V1.T @ vt.mT) / 2
        near = U1 @ ((mu * s[:, None]) @ mu.mT) @ V1.T
        return np.asarray(np.linalg.svd(W - near, compute_uv=False).sum(axis=-1))

    def from_face(self, R: Any, e: Any) -> Any:
        """Return the bound 2√(R e/g) on the distance of W from the face F, with e raised for the rounding of U1 and V1.

        The computed U1 and V1 are exact singular vectors of a matrix within 8 (d + e) eps of M.
        """
        return 2 * np.sqrt(R * (np.maximum(e, 0.0) + 8 * sum(self.M.shape) * EPS * R) / self.face[2])

    def from_solution(self, R: Any, e: Any, beyond: Any) -> Any:
        """Bound ‖W − ρW_⋆‖_F if the solution is unique and all margins of W are at least ρ − b, where b = ``beyond``.

        The bound is B + [(Σ_S ‖G_j‖²)^½ B + e/min_S λ + √s b]/τ with B = 2√(Re/g), S the s rows with λ_j > 0, and τ the
        least singular value of P ↦ (⟨G_j, U1 P V1ᵀ⟩)_S on symmetric matrices.
        """
        tau, B = self.svm.injectivity, self.from_face(R, e)
        a, z, _ = self.certificate.floats
        support = self.duals > 0
        sizes = norm(a[support], axis=1) * norm(z[support], axis=1)
        assert tau is not None
        spread = np.maximum(e, 0.0) / self.duals[support].min() + np.sqrt(support.sum()) * np.maximum(beyond, 0.0)
        return B + (norm(sizes) * B + spread) / tau
