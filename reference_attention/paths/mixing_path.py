"""The regularization path of W where mixtures are best: minimisers of L over ‖W‖_F ≤ R, to hundreds of digits.

The head is vᵀx − λ‖x‖², for which the best softmax weights s⋆_i are a mixture of the tokens in a set O_i; ν_iτ ≥ 0 are
the multipliers of the other tokens (:mod:`reference_attention.optimal_attention`). W^mm is the solution of the SVM that
separates the O_i from the other tokens, and L_⋆ the risk at the weights s⋆. At a point of the path with ‖W‖ = ρ‖W^mm‖,
the excess n(L − L_⋆) = Σ_i [Σ_τ ν_iτ s_iτ + λ‖s_i − s⋆_i‖²] is of size e^{−ρ}, like the weights of tokens outside O_i,
and the weights inside O_i have to agree with s⋆ to as many digits. So float64 fails at ρ ≈ 35, but numbers of 3ρ bits
suffice.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from reference_attention.optimal_attention import OptimalAttention
from reference_attention.outer_keys import OuterKeys, rational_keys
from reference_attention.svm.finite_part import Balls, mixing_offset, offset_correction
from reference_attention.svm.general_svm import GeneralSvm

STEPS = 60
"""Largest number of Newton steps per point, far more than are needed."""


@dataclass(frozen=True, eq=False)
class MixingPoint:
    """A point of the path (symbols: see the module).

    Attributes:
        rho: the radius ρ = ‖W‖/‖W^mm‖.
        point: vec(W), as balls of radius 0 (exact numbers of many digits).
        multiplier: the multiplier η of the constraint on ‖W‖, with n ∇L(W) + ηW = 0.
        bits: the precision of point and multiplier, in bits.
        reason: the reason if Newton's method failed, with its last step; empty if the point is stationary.
    """

    rho: float
    point: Balls
    multiplier: arb
    bits: int
    reason: str = ""


@dataclass(frozen=True, eq=False)
class MixingRisk:
    """The derivatives of the excess n(L − L_⋆) in W, for orthonormal tokens and the head vᵀx − λ‖x‖².

    Attributes:
        keys: the keys vec(x_it z_iᵀ), a matrix (T, d·e) for each input.
        attention: the best weights s⋆ and the multipliers ν.
        penalty: the number λ of the head.
    """

    keys: list[fmpq_mat]
    attention: OptimalAttention
    penalty: fmpq

    @classmethod
    def of(cls, keys: OuterKeys, attention: OptimalAttention, penalty: fmpq) -> MixingRisk:
        """Return the risk on the given keys."""
        n, T, _ = keys.shape
        flat = rational_keys(keys).tolist()
        return cls([fmpq_mat(flat[i * T : (i + 1) * T]) for i in range(n)], attention, penalty)

    def derivatives(self, W: arb_mat) -> tuple[arb_mat, arb_mat]:
        """Return gradient, (k, 1), and Hessian, (k, k), of n(L − L_⋆) at vec(W), (k, 1)."""
        k, lam = W.nrows(), arb(self.penalty)
        gradient, hessian = arb_mat(k, 1), arb_mat(k, k)
        for i, exact in enumerate(self.keys):
            K = arb_mat(exact)
            s = _softmax((K * W).entries())
            best, nu = self.attention.weights[i], self.attention.multipliers[i]
            slopes = [arb(v) + 2 * lam * (a - arb(b)) for v, a, b in zip(nu, s, best, strict=True)]
            mean = sum((a * g for a, g in zip(s, slopes, strict=True)), arb(0))
            T = len(s)
            J = arb_mat([[s[t] * (int(t == u) - s[u]) for u in range(T)] for t in range(T)])
            first = [a * (g - mean) for a, g in zip(s, slopes, strict=True)]
            curvatures = J * J * (2 * lam)
            second = [
                [curvatures[t, u] + J[t, u] * (slopes[t] - mean) - s[t] * first[u] for u in range(T)] for t in range(T)
            ]
            gradient += K.transpose() * arb_mat(T, 1, first)
            hessian += K.transpose() * arb_mat(second) * K
        return gradient, hessian


def _softmax(logits: Balls) -> Balls:
    top = max(range(len(logits)), key=lambda t: float(logits[t].mid()))
    odds = [(a - logits[top]).exp() for a in logits]
    total = sum(odds, arb(0))
    return [a / total for a in odds]


def mixing_path(
    keys: OuterKeys, attention: OptimalAttention, penalty: fmpq, svm: GeneralSvm, rhos: list[float]
) -> list[MixingPoint]:
    """Return stationary points of L on the spheres ‖W‖ = ρ‖W^mm‖, by Newton's method from points near the ray of W^mm.

    Args:
        keys: the keys vec(x_it z_iᵀ) of orthonormal tokens.
        attention: the best weights s⋆, with their multipliers.
        penalty: the number λ of the head.
        svm: the solution W^mm, which must have independent rows and positive duals at all tokens of margin 1.
        rhos: the radii ρ; a point is returned for each of them, with a reason if its search failed.
    """
    risk = MixingRisk.of(keys, attention, penalty)
    offset, correction = mixing_offset(svm, attention), offset_correction(svm, attention)
    return [_point(risk, svm, offset, correction, rho) for rho in rhos]


def _point(risk: MixingRisk, svm: GeneralSvm, offset: Balls, correction: Balls, rho: float) -> MixingPoint:
    """Return the stationary point on the sphere of radius ρ‖W^mm‖, by Newton's method in W and its multiplier η."""
    bits = 128 + int(4 * rho / np.log(2))
    with ctx.workprec(bits):
        square = arb(rho) ** 2 * arb(svm.norm_squared)
        # The search starts at ρ' W^mm + o + o₂/ρ, where the limit o of the offset and its correction o₂ are orthogonal
        # to W^mm, and ρ' is chosen so that the norm is ρ‖W^mm‖.
        across = [a + b / arb(rho) for a, b in zip(offset, correction, strict=True)]
        along = (1 - sum((x * x for x in across), arb(0)) / square).nonnegative_part().sqrt() * arb(rho)
        W = arb_mat([[(along * arb(w) + x).mid()] for w, x in zip(svm.point, across, strict=True)])
        gradient, hessian = risk.derivatives(W)
        eta = (-(W.transpose() * gradient)[0, 0] / square).mid()
        k, size, relative_step = W.nrows(), square.sqrt(), arb(1)
        for _ in range(STEPS):
            system = arb_mat(k + 1, k + 1)
            for a in range(k):
                for b in range(k):
                    system[a, b] = hessian[a, b] + (eta if a == b else 0)
                system[a, k] = system[k, a] = W[a, 0]
            lacking = (square - (W.transpose() * W)[0, 0]) / 2
            right = arb_mat([[-(gradient[a, 0] + eta * W[a, 0])] for a in range(k)] + [[lacking]])
            try:
                step = system.mid().solve(right.mid(), algorithm="approx").mid()
            except ZeroDivisionError:
                return MixingPoint(rho, list(W.entries()), eta, bits, "Newton's method meets a singular system")
            W, eta = (W + arb_mat(step.tolist()[:k])).mid(), (eta + step[k, 0]).mid()
            relative_step = max(abs(x) for x in step.entries()[:k]) / size
            # Newton's method converges quadratically, so after a relative step below 2^(−bits/2) all digits are right.
            if relative_step < arb(2) ** (-bits // 2) and abs(step[k, 0]) < arb(2) ** -64 * abs(eta):
                return MixingPoint(rho, list(W.entries()), eta, bits)
            if not (relative_step.is_finite() and eta.is_finite()):
                break
            gradient, hessian = risk.derivatives(W)
    why = f"Newton's method does not converge: its last step is {float(relative_step):.3g} of ‖W‖"
    return MixingPoint(rho, list(W.entries()), eta, bits, why)
