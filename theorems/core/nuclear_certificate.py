"""Certificate for a solution of ATT-SVM⋆ by the implementation under test: bounds of C_⋆ = min ‖W‖_⋆ by weak duality.

The solution gives factors K, Q of W = KQᵀ and duals λ ≥ 0 as floats, hence rationals. Let every margin of KQᵀ be at
least a rational m > 0, and let σ²I − MᵀM be positive definite for a rational σ, M = Σ λ_it (x_iα − x_it) z_iᵀ. Then
Σλ/σ ≤ C_⋆ ≤ ½(‖K‖_F² + ‖Q‖_F²)/m, proven over the rationals for any K, Q and λ. No eigenvalue, no singular value and no
tolerance is needed. The claim that the two bounds meet needs a tolerance, since K, Q and λ are rounded. The numbers
that prove uniqueness (``face``, ``gap``, ``support`` and ``injectivity``, called τ here, see
:class:`reference_attention.svm.nuclear_max_margin.NuclearMaxMargin`) are compared with values computed in floats from M
and W; ``gap`` and τ are bounded from both sides.

References: *Transformers as Support Vector Machines*, (Att-SVM⋆).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64, Int64

from reference_attention.exact import rational, rational_matrix, to_float
from reference_attention.floats import EPS
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin
from theorems.core.claim import Claim, Form
from theorems.core.matrix_norms import CLOSE, spectral_norm_above, squared_norm
from theorems.core.tolerances import tolerance

NUCLEAR_GAP = tolerance(
    "nuclear-duality-gap",
    "2^−44 + 8 (N + d + e) eps (max_j |a_j|ᵀ|K||Q|ᵀ|z_j| + Σ λ_j ‖a_j‖‖z_j‖), relative to C_⋆",
    "each entry of K, Q and λ is rounded once: this moves margins, which are 1, by the first term and ‖M‖_op, which is"
    " 1, by the second term times eps; σ exceeds a float singular value by 2^−46 of it, or by a few times as much",
)
NOT_SEPARATING = "KQᵀ does not separate the tokens α from the others"


@dataclass(frozen=True, eq=False)
class NuclearCertificate:
    """The bounds of C_⋆ that a solution's K, Q and λ prove, for comparison with the bounds that the solution states.

    m, σ and M are those of the module.

    Attributes:
        data: tokens and queries.
        alpha: the chosen tokens, shape (n,).
        svm: the solution under test.
    """

    data: QueryDataset
    alpha: Int64[np.ndarray, "n"]
    svm: NuclearMaxMargin

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The indices (i, t), t ≠ α_i, of the N constraints."""
        n, T, _ = self.data.X.shape
        return [(i, t) for i in range(n) for t in range(T) if t != self.alpha[i]]

    @cached_property
    def rows(self) -> tuple[fmpq_mat, fmpq_mat]:
        """The factors a_j = x_iα − x_it and z_j = z_i of the constraints over the rationals, (N, d) and (N, e)."""
        a = [
            [rational(x) - rational(y) for x, y in zip(self.data.X[i, self.alpha[i]], self.data.X[i, t], strict=True)]
            for i, t in self.pairs
        ]
        return fmpq_mat(a), rational_matrix(self.data.queries[[i for i, _ in self.pairs]])

    @cached_property
    def floats(self) -> tuple[Float64[np.ndarray, "N d"], Float64[np.ndarray, "N e"], Float64[np.ndarray, "N"]]:
        """The factors a_j and z_j of the constraints, each entry rounded once, and the duals λ_j."""
        a, z = (np.array([[to_float(x) for x in row] for row in m.tolist()]) for m in self.rows)
        return a, z, np.array([self.svm.duals[pair] for pair in self.pairs])

    @cached_property
    def upper(self) -> fmpq | None:
        """The upper bound ½(‖K‖_F² + ‖Q‖_F²)/m of C_⋆; None where a margin is not positive."""
        a, z = self.rows
        K, Q = rational_matrix(self.svm.K), rational_matrix(self.svm.Q)
        images = zip((a * K).tolist(), (z * Q).tolist(), strict=True)
        least = min(sum((x * y for x, y in zip(*pair, strict=True)), fmpq(0)) for pair in images)
        return (squared_norm(K) + squared_norm(Q)) / (2 * least) if least > 0 else None

    @cached_property
    def lower(self) -> fmpq:
        """The lower bound Σλ/σ of C_⋆; 0 where no σ is found."""
        exact = [rational(x) for x in self.floats[2].tolist()]
        weighted = [[x * y for y in row] for x, row in zip(exact, self.rows[1].tolist(), strict=True)]
        M = self.rows[0].transpose() * fmpq_mat(weighted)
        sigma = spectral_norm_above(M)
        return fmpq(0) if sigma is None else sum(exact, fmpq(0)) / sigma

    @cached_property
    def sensitivity(self) -> float:
        """The factor max_j |a_j|ᵀ|K||Q|ᵀ|z_j| + Σ λ_j ‖a_j‖‖z_j‖ by which bounds amplify relative rounding errors."""
        a, z, duals = (np.abs(x) for x in self.floats)
        most = np.vecdot(a @ np.abs(self.svm.K), z @ np.abs(self.svm.Q)).max()
        return float(most + duals @ (np.linalg.norm(a, axis=1) * np.linalg.norm(z, axis=1)))

    @cached_property
    def rounding(self) -> float:
        """The largest relative distance between the lower and the upper bound of C_⋆ that rounding can explain."""
        return 4 * CLOSE + 8 * (len(self.pairs) + sum(self.data.shape)) * EPS * self.sensitivity

    def wrong_bounds(self) -> str:
        """Return why the bounds that the solution states are wrong or not proven by K, Q and λ; empty if right."""
        svm, (n, T, d), e = self.svm, self.data.X.shape, self.data.shape[1]
        shapes = (svm.K.shape[0], svm.Q.shape[0], svm.K.shape[1], svm.duals.shape)
        if shapes != (d, e, svm.Q.shape[1], (n, T)) or (svm.alpha != self.alpha).any():
            return "K, Q, duals or α do not fit the data"
        if not all(np.isfinite(x).all() for x in (svm.K, svm.Q, svm.duals)):
            return "K, Q or duals are not finite"
        if (svm.duals < 0).any() or svm.duals[np.arange(n), self.alpha].any():
            return "a dual is negative, or not zero for a chosen token"
        if self.upper is None:
            return NOT_SEPARATING
        low, high = svm.bounds
        least, most = to_float(self.lower), to_float(self.upper)
        room = self.rounding * most
        if not low <= high or low > most + room or high < least - room:
            return f"C_⋆ is between {least:.17g} and {most:.17g}, but stated as {low:.17g} to {high:.17g}"
        if svm.exact is None and (low > least + room or high < most - room):
            return f"the stated bounds of C_⋆ are tighter than K, Q and duals prove: {least:.17g} to {most:.17g}"
        return ""

    def wrong_face(self) -> str:
        """Return the first error in the numbers of a solution stated to be the only one; empty if there is none.

        The numbers are rank, ``face``, ``gap``, ``support`` and ``injectivity``.
        """
        svm, r = self.svm, self.svm.K.shape[1]
        if svm.face is None or svm.gap is None or svm.injectivity is None or svm.support is None or svm.rank != r:
            return "the solution is stated to be unique, but its face, gap, τ, support or rank is missing or wrong"
        a, z, duals = self.floats
        M, (U1, V1) = (a * duals[:, None]).T @ z, svm.face
        off = 8 * (len(duals) + sum(self.data.shape)) * EPS * (1 + self.sensitivity)
        P = U1.T @ svm.W @ V1
        parts = [U1.T @ U1 - np.eye(r), V1.T @ V1 - np.eye(r), M @ V1 - U1, M.T @ U1 - V1]
        parts += [(svm.K @ svm.Q.T - U1 @ P @ V1.T) / svm.norm, (svm.W - svm.K @ svm.Q.T) / svm.norm]
        if not max(float(np.abs(x).max()) for x in parts) <= off or not np.linalg.eigvalsh(P + P.T)[0] > 0:
            return "W is no U1 P V1ᵀ with P ≻ 0 and M V1 = U1"
        values = np.linalg.svd(M, compute_uv=False)
        following = float(values[r]) if r < len(values) else 0.0
        # The stated gap and τ may be too small, by a factor 2 and by rounding, because bounds that use gap and τ are
        # true for smaller values, too.
        if (
            not (1 - following - off) / 2 <= svm.gap <= 1 - following + off
            or not svm.gap > 0
            or not values[0] <= 1 + off
        ):
            return f"the singular values of M are {values}, but its gap is stated as {svm.gap:.17g}"
        positive = duals > 0
        margins = np.array([svm.margins[pair] for pair in self.pairs])
        if (positive != [svm.support[pair] for pair in self.pairs]).any() or (positive != (margins == 1.0)).any():
            return "the support is not the set of tokens with positive dual and margin 1"
        if not (margins[~positive] > 1).all() or not np.abs(margins - np.vecdot(a @ svm.W, z)).max() <= off * svm.norm:
            return "a stated margin is not that of W, or is not above 1 outside the support"
        images = images_of(a[positive] @ U1, z[positive] @ V1)
        least = float(np.linalg.svd(images, compute_uv=False)[-1]) if len(images) >= images.shape[1] else 0.0
        room = off * float(np.linalg.norm(images))
        if not (least - room) / 2 <= svm.injectivity <= least + room or not svm.injectivity > 0:
            return f"τ is {least:.17g}, but stated as {svm.injectivity:.17g}"
        return ""


def images_of(u: Float64[np.ndarray, "s r"], v: Float64[np.ndarray, "s r"]) -> Float64[np.ndarray, "s k"]:
    """Return u_jᵀ P v_j for each j and each P of an orthonormal basis of symmetric matrices, (s, r(r+1)/2)."""
    i, j = np.triu_indices(u.shape[1])
    both = u[:, i] * v[:, j] + u[:, j] * v[:, i]
    return np.asarray(both * np.where(i == j, 0.5, math.sqrt(0.5)))


def nuclear_claim(certificate: NuclearCertificate, name: str = "nuclear-svm-is-optimal") -> Claim:
    """Return the claim that the solution states correct bounds of C_⋆, proven by K, Q and λ.

    If the solution is stated to be the only one, the claim also says that the two bounds meet, and that rank, ``face``,
    ``gap``, ``support`` and ``injectivity`` are right.
    """
    wrong = certificate.wrong_bounds()
    if not wrong and certificate.svm.exact is not None:
        wrong = certificate.wrong_face()
    if wrong == NOT_SEPARATING and certificate.rounding >= 1:
        why = "rounding each entry of K and Q once may change a margin of 1 by more than 1"
        return Claim(name, Form.EXACT, 0.0, 0.0, NUCLEAR_GAP, undecided=f"{wrong}: {why}")
    if wrong:
        return Claim(name, Form.EXACT, -math.inf, 0.0, NUCLEAR_GAP, wrong)
    assert certificate.upper is not None
    least, most = to_float(certificate.lower), to_float(certificate.upper)
    detail = f"C_⋆ from {least:.17g} to {most:.17g}"
    if certificate.svm.exact is None:
        return Claim(name, Form.EXACT, 0.0, 0.0, NUCLEAR_GAP, f"{detail}; not decided: {certificate.svm.undecided}")
    return Claim(name, Form.EXACT, -(most - least) / most, certificate.rounding, NUCLEAR_GAP, detail)
