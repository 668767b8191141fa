"""The limits Ŝ, θ_mm and θ_⋆ of training, the claims that certify them, and the constants that bounds need.

Symbols, also of the other modules here, for a context j of weight π_j with alternatives v ∈ V_j:

- a_jv: the vector of an alternative; a_jv·θ is its logit, up to a constant;
- Ŝ_j ⊆ V_j: the extended support, the alternatives that training does not rule out;
- F: the span of all a_jv − a_jz with v, z ∈ Ŝ_j, and F^⊥ its complement; P_F, P_⊥ the projections on them; θ_⊥ = P_⊥θ;
- L_fin: the loss without the alternatives off Ŝ_j, a function of P_Fθ; θ_⋆ its minimiser on F, H its Hessian there;
- q⋆_jv: the softmax over Ŝ_j at θ_⋆; f_jv = P_F(a_jv − Σ_z q⋆_jz a_jz); L_⋆: the infimum of the loss L;
- w_jv: for v off Ŝ_j, e to its logit at P_Fθ, divided by the sum of such numbers over Ŝ_j; w⋆_jv is w_jv at θ_⋆;
- g_jv: for v off Ŝ_j, the row P_⊥(a_jz − a_jv), the same for all z ∈ Ŝ_j;
- θ_mm: the shortest θ ∈ F^⊥ with g_jv·θ ≥ 1 for all rows;
- D_F: the largest distance of two vectors a_jv of one Ŝ_j.

`ntp-extended-supports` has the precise definitions and the proofs.

References: derived here; :mod:`reference_attention.next_token`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Bool, Float64

from reference_attention.exact import products, to_floats
from reference_attention.next_token.extended_supports import ExtendedSupports, extended_supports
from reference_attention.next_token.finite_minimum import CLOSE, FiniteMinimum, diameter, finite_minimum, norm_of
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.subspace_split import BITS, Split
from reference_attention.svm.ball_matrices import above, least_eigenvalue, multiply
from theorems.bounded import exact, with_rounding
from theorems.core.claim import Claim, Ended, Form, Undecided, Verdict
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_at import Numbers

SUPPORTS_ARE_PROVEN = premise("extended-supports-are-proven")
SVM_IS_OPTIMAL = premise("ntp-svm-is-optimal")
MINIMUM_IS_ENCLOSED = premise("finite-part-is-enclosed")
LIMIT_PREMISES = (SUPPORTS_ARE_PROVEN, SVM_IS_OPTIMAL, MINIMUM_IS_ENCLOSED)


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits Ŝ, F, θ_mm and θ_⋆ of training, with the notation of the module.

    Vectors are in the coordinates of F and F^⊥ of :class:`reference_attention.next_token.subspace_split.Split`: r
    coordinates of F, s of F^⊥. There are m contexts with at most K alternatives.

    Attributes:
        supports: the extended supports Ŝ.
        svm: the limit direction θ_mm, the solution of NTP-SVM.
        minimum: the minimiser θ_⋆ of the loss on F, and the subspace F.
    """

    supports: ExtendedSupports
    svm: NextTokenSvm
    minimum: FiniteMinimum

    @property
    def split(self) -> Split:
        """The subspaces F and F^⊥."""
        return self.minimum.split

    @property
    def problem(self) -> MasterProblem:
        """The contexts, alternatives and counts."""
        return self.split.problem

    @property
    def apart(self) -> bool:
        """True if training rules out some alternative, so that θ_mm ≠ 0."""
        return bool(self.others.any())

    @property
    def others(self) -> Bool[np.ndarray, "m K"]:
        """A mask of the alternatives in V_j∖Ŝ_j, which training rules out, (m, K)."""
        return self.split.others

    @cached_property
    def weights(self) -> Numbers:
        """The weights π_j of the contexts, (m,)."""
        return with_rounding(to_floats(self.problem.weights))

    @cached_property
    def targets(self) -> Numbers:
        """The targets p_jv, the observed frequencies of the alternatives in context j, (m, K)."""
        return with_rounding(np.array([to_floats(row) for row in self.problem.targets]))

    @cached_property
    def inner(self) -> Numbers:
        """The softmax q⋆_jv over Ŝ_j at θ_⋆, 0 off Ŝ_j, (m, K)."""
        return with_rounding(np.where(self.split.sets, self.minimum.shares, 0.0))

    @cached_property
    def log_outer(self) -> Numbers:
        """The logarithms of w⋆_jv = w_jv(θ_⋆), −∞ on Ŝ_j, (m, K)."""
        return with_rounding(np.where(self.others, self.minimum.log_shares, -np.inf))

    @cached_property
    def inside(self) -> Numbers:
        """The rows f_jv = P_F(a_jv − Σ q⋆_jz a_jz), 0 where there is no alternative, (m, K, r)."""
        rows = with_rounding(self.split.inside)
        mean = np.sum(self.inner[..., None] * rows, axis=1)
        return np.where(self.problem.alternatives[..., None], rows - mean[:, None], 0.0)

    @cached_property
    def outside(self) -> Numbers:
        """The rows g_jv = P_⊥(a_jz − a_jv) for any z ∈ Ŝ_j; 0 for v ∈ Ŝ_j, (m, K, s)."""
        return with_rounding(self.split.outside)

    @cached_property
    def ray(self) -> Numbers:
        """The limit direction θ_mm in coordinates of F^⊥, (s,)."""
        return with_rounding(self.split.coordinates_of_exact(self.svm.point)[self.split.dimension :])

    @cached_property
    def origin(self) -> Numbers:
        """The limit θ_⋆ of P_Fθ in coordinates of F, (r,)."""
        return with_rounding(self.split.coordinates_of_exact(self.minimum.point)[: self.split.dimension])

    @cached_property
    def ray_norm(self) -> Numbers:
        """The norm ‖θ_mm‖."""
        return np.sqrt(with_rounding(to_floats([self.svm.norm_squared])))[0]

    @cached_property
    def origin_norm(self) -> Numbers:
        """The norm ‖θ_⋆‖."""
        return np.linalg.norm(self.origin) if self.split.dimension else exact(0.0)

    @cached_property
    def span(self) -> Numbers:
        """An upper bound of D_F, the largest diameter of {a_jv : v ∈ Ŝ_j}."""
        return exact(above(diameter(self.split)))

    @cached_property
    def reach(self) -> Numbers:
        """An upper bound of D_c = max ‖P_F(a_jv − a_jz)‖ over v ∉ Ŝ_j, z ∈ Ŝ_j."""
        r, largest = self.split.dimension, 0.0
        rows = self.split.in_balls
        with ctx.workprec(BITS):
            for j, v in np.argwhere(self.others).tolist():
                for z in np.flatnonzero(self.split.sets[j]).tolist():
                    other = rows[j, z][:r] if (j, z) in rows else [arb(0)] * r
                    largest = max(largest, above(norm_of([a - b for a, b in zip(rows[j, v], other, strict=False)])))
        return exact(largest)

    @cached_property
    def curvature(self) -> Numbers:
        """A lower bound of λ_H, the smallest eigenvalue of H; if F = 0 it is 1 and is not used."""
        return exact(self.minimum.curvature_below if self.split.dimension else 1.0)

    @cached_property
    def top_curvature(self) -> Numbers:
        """An upper bound of λ_max(H), the largest eigenvalue of H."""
        if self.split.dimension == 0:
            return exact(0.0)
        with ctx.workprec(BITS):
            return exact(above(-least_eigenvalue(multiply(self.minimum.at.hessian, arb(-1)))))

    @cached_property
    def inverse_curvature(self) -> Numbers:
        """The inverse H⁻¹ of the Hessian H on F, (r, r)."""
        r = self.split.dimension
        with ctx.workprec(BITS):
            inverse: Any = self.minimum.at.hessian.inv() if r else arb_mat(0, 0)
            return with_rounding(np.array([float(x.mid()) for x in inverse.entries()]).reshape(r, r))

    @cached_property
    def loss_at_infinity(self) -> Numbers:
        """The infimum L_⋆ of the loss."""
        return with_rounding(float(self.minimum.value.mid()))

    @cached_property
    def log_total(self) -> Numbers:
        """The logarithm of ω = Σ π_j w⋆_jv over v ∉ Ŝ_j; the number ω may be outside the range of floats."""
        logs: Any = np.log(self.weights)[:, None] + self.log_outer
        return np.logaddexp.reduce(np.logaddexp.reduce(logs, axis=-1), axis=-1)

    def excess_on_ray(self, r: Float64[np.ndarray, "*b"]) -> Numbers:
        """Return E(r) = L(θ_⋆ + rθ_mm) − L_⋆ = Σ π_j log(1 + Σ_v w⋆_jv e^{−r g_jv·θ_mm})."""
        margins = with_rounding(self.exact_margins)
        logs: Any = self.log_outer - exact(r)[..., None, None] * margins
        return np.sum(self.weights * np.logaddexp(0.0, np.logaddexp.reduce(logs, axis=-1)), axis=-1)

    @cached_property
    def exact_margins(self) -> Float64[np.ndarray, "m K"]:
        """The margins (a_jz − a_jv)·θ_mm with any z ∈ Ŝ_j, exact up to one rounding; 0 on Ŝ_j, (m, K)."""
        out = np.zeros(self.problem.counts.shape)
        for pair, margin in self.svm.margins(self.problem).items():
            out[pair] = to_floats([margin])[0]
        return out


def certify_limits(problem: MasterProblem, under_test: Implementation) -> Generator[Claim, None, Limits]:
    """Yield the claims that Ŝ, θ_mm and θ_⋆ under test are right, and return the three as :class:`Limits`.

    Raises:
        Ended: one of the claims is false.
        Undecided: the search for θ_⋆ under test reports that it failed.
    """
    supports = under_test[extended_supports](problem)
    yield from _require(SUPPORTS_ARE_PROVEN, supports.error(problem))
    svm = under_test[next_token_svm](problem, supports.sets)
    wrong = (
        "NTP-SVM is reported as infeasible" if not isinstance(svm, NextTokenSvm) else _svm_error(svm, supports, problem)
    )
    yield from _require(SVM_IS_OPTIMAL, wrong)
    assert isinstance(svm, NextTokenSvm)
    minimum = under_test[finite_minimum](Split.of(problem, supports.sets))
    if minimum.lost:
        raise Undecided(MINIMUM_IS_ENCLOSED, minimum.lost, not_found=True)
    yield from _require(MINIMUM_IS_ENCLOSED, _minimum_error(minimum, problem, supports))
    return Limits(supports, svm, minimum)


def _svm_error(svm: NextTokenSvm, supports: ExtendedSupports, problem: MasterProblem) -> str:
    if not np.array_equal(svm.sets, supports.sets):
        return "the solution of NTP-SVM is for other extended supports"
    return svm.error(problem)


def _minimum_error(minimum: FiniteMinimum, problem: MasterProblem, supports: ExtendedSupports) -> str:
    """Return what is wrong with the computed minimiser θ̂, or an empty string.

    θ̂ must belong to this problem and these supports and lie in F, and its distance from the minimiser must be proven
    to be below :data:`CLOSE` (1 + ‖θ̂‖).
    """
    split = minimum.split
    if split.problem is not problem or not np.array_equal(split.sets, supports.sets):
        return "the minimiser θ̂ is for another problem or other supports"
    if any(x != 0 for x in products(split.orthogonal[split.dimension :], minimum.point)):
        return "θ̂ is not in F"
    if not minimum.radius < CLOSE * (1 + minimum.norm):
        return f"the bound {float(minimum.radius.mid()):.3g} of ‖θ̂ − θ_⋆‖ is above {CLOSE:.3g} (1 + ‖θ̂‖)"
    return ""


def _require(name: str, wrong: str) -> Generator[Claim, None, None]:
    claim = Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(name)
