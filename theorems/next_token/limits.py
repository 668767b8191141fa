"""Where training ends, Ŝ, θ_mm and θ_⋆, once it is claimed to be that; and the constants of the bounds.

References: own; :mod:`reference_attention.next_token`.
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
from reference_attention.next_token.split import BITS, Split
from reference_attention.svm.balls import above, least_eigenvalue, multiply
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
    """Ŝ, F, θ_mm and θ_⋆; numbers in coordinates of :class:`reference_attention.next_token.split.Split`.

    Attributes:
        supports: Ŝ.
        svm: θ_mm.
        minimum: θ_⋆, and F.
    """

    supports: ExtendedSupports
    svm: NextTokenSvm
    minimum: FiniteMinimum

    @property
    def split(self) -> Split:
        """F and F^⊥."""
        return self.minimum.split

    @property
    def problem(self) -> MasterProblem:
        """Contexts, alternatives, counts."""
        return self.split.problem

    @property
    def apart(self) -> bool:
        """Whether anything is to be ruled out, θ_mm ≠ 0."""
        return bool(self.others.any())

    @property
    def others(self) -> Bool[np.ndarray, "m K"]:
        """V_j∖Ŝ_j."""
        return self.split.others

    @cached_property
    def weights(self) -> Numbers:
        """π_j."""
        return with_rounding(to_floats(self.problem.weights))

    @cached_property
    def targets(self) -> Numbers:
        """p_jv."""
        return with_rounding(np.array([to_floats(row) for row in self.problem.targets]))

    @cached_property
    def inner(self) -> Numbers:
        """q⋆_jv, 0 off Ŝ_j."""
        return with_rounding(np.where(self.split.sets, self.minimum.shares, 0.0))

    @cached_property
    def log_outer(self) -> Numbers:
        """log w⋆_jv, −∞ on Ŝ_j."""
        return with_rounding(np.where(self.others, self.minimum.log_shares, -np.inf))

    @cached_property
    def inside(self) -> Numbers:
        """f_jv = P_F(a_jv − Σ q⋆_jz a_jz), 0 where there is no alternative."""
        rows = with_rounding(self.split.inside)
        mean = np.sum(self.inner[..., None] * rows, axis=1)
        return np.where(self.problem.alternatives[..., None], rows - mean[:, None], 0.0)

    @cached_property
    def outside(self) -> Numbers:
        """g_jv, 0 on Ŝ_j."""
        return with_rounding(self.split.outside)

    @cached_property
    def ray(self) -> Numbers:
        """θ_mm, coordinates of F^⊥."""
        return with_rounding(self.split.coordinates_of_exact(self.svm.point)[self.split.dimension :])

    @cached_property
    def origin(self) -> Numbers:
        """θ_⋆, coordinates of F."""
        return with_rounding(self.split.coordinates_of_exact(self.minimum.point)[: self.split.dimension])

    @cached_property
    def ray_norm(self) -> Numbers:
        """‖θ_mm‖."""
        return np.sqrt(with_rounding(to_floats([self.svm.norm_squared])))[0]

    @cached_property
    def origin_norm(self) -> Numbers:
        """‖θ_⋆‖."""
        return np.linalg.norm(self.origin) if self.split.dimension else exact(0.0)

    @cached_property
    def span(self) -> Numbers:
        """D_F, from above."""
        return exact(above(diameter(self.split)))

    @cached_property
    def reach(self) -> Numbers:
        """D_c = max ‖P_F(a_jv − a_jz)‖ over v ∉ Ŝ_j, z ∈ Ŝ_j, from above."""
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
        """λ_H, from below; 1 where F = 0 and nothing is asked of it."""
        return exact(self.minimum.curvature_below if self.split.dimension else 1.0)

    @cached_property
    def top_curvature(self) -> Numbers:
        """λ_max(H), from above."""
        if self.split.dimension == 0:
            return exact(0.0)
        with ctx.workprec(BITS):
            return exact(above(-least_eigenvalue(multiply(self.minimum.at.hessian, arb(-1)))))

    @cached_property
    def inverse_curvature(self) -> Numbers:
        """H⁻¹, (r, r)."""
        r = self.split.dimension
        with ctx.workprec(BITS):
            found: Any = self.minimum.at.hessian.inv() if r else arb_mat(0, 0)
            return with_rounding(np.array([float(x.mid()) for x in found.entries()]).reshape(r, r))

    @cached_property
    def loss_at_infinity(self) -> Numbers:
        """L_⋆."""
        return with_rounding(float(self.minimum.value.mid()))

    @cached_property
    def log_total(self) -> Numbers:
        """log ω, ω = Σ π_j w⋆_jv, v ∉ Ŝ_j, which need be no float."""
        logs: Any = np.log(self.weights)[:, None] + self.log_outer
        return np.logaddexp.reduce(np.logaddexp.reduce(logs, axis=-1), axis=-1)

    def excess_on_ray(self, r: Float64[np.ndarray, "*b"]) -> Numbers:
        """E(r) = L(θ_⋆ + rθ_mm) − L_⋆ = Σ π_j log(1 + Σ_v w⋆_jv e^{−r g_jv·θ_mm})."""
        margins = with_rounding(self.exact_margins)
        logs: Any = self.log_outer - exact(r)[..., None, None] * margins
        return np.sum(self.weights * np.logaddexp(0.0, np.logaddexp.reduce(logs, axis=-1)), axis=-1)

    @cached_property
    def exact_margins(self) -> Float64[np.ndarray, "m K"]:
        """(a_jz − a_jv)·θ_mm, rounded once; 0 on Ŝ_j."""
        out = np.zeros(self.problem.counts.shape)
        for pair, margin in self.svm.margins(self.problem).items():
            out[pair] = to_floats([margin])[0]
        return out


def certify_limits(problem: MasterProblem, under_test: Implementation) -> Generator[Claim, None, Limits]:
    """Ŝ, θ_mm and θ_⋆ of what is under test, once it is claimed that they are.

    Raises:
        Ended: one of them is not; undecided where the search for θ_⋆ says that it did not find it.
    """
    supports = under_test.in_place_of(extended_supports)(problem)
    yield from _require(SUPPORTS_ARE_PROVEN, supports.error(problem))
    svm = under_test.in_place_of(next_token_svm)(problem, supports.sets)
    wrong = "it is said to be infeasible" if not isinstance(svm, NextTokenSvm) else _svm_error(svm, supports, problem)
    yield from _require(SVM_IS_OPTIMAL, wrong)
    assert isinstance(svm, NextTokenSvm)
    minimum = under_test.in_place_of(finite_minimum)(Split.of(problem, supports.sets))
    if minimum.lost:
        raise Undecided(MINIMUM_IS_ENCLOSED, minimum.lost, not_found=True)
    yield from _require(MINIMUM_IS_ENCLOSED, _minimum_error(minimum, problem, supports))
    return Limits(supports, svm, minimum)


def _svm_error(svm: NextTokenSvm, supports: ExtendedSupports, problem: MasterProblem) -> str:
    if not np.array_equal(svm.sets, supports.sets):
        return "it is of other sets"
    return svm.error(problem)


def _minimum_error(minimum: FiniteMinimum, problem: MasterProblem, supports: ExtendedSupports) -> str:
    """It is made of this problem, θ̂ lies in F, and no minimiser is further from it than :data:`CLOSE`."""
    split = minimum.split
    if split.problem is not problem or not np.array_equal(split.sets, supports.sets):
        return "it is of another problem"
    if any(x != 0 for x in products(split.orthogonal[split.dimension :], minimum.point)):
        return "θ̂ is not in F"
    if not minimum.radius < CLOSE * (1 + minimum.norm):
        return f"the gradient at θ̂ leaves θ_⋆ within {float(minimum.radius.mid()):.3g} of it, not within {CLOSE:.3g}"
    return ""


def _require(name: str, wrong: str) -> Generator[Claim, None, None]:
    claim = Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(name)
