"""Gradient flow on (K, Q) to norms at which a limit is visible, with claims that the computed curve is such a flow.

To check the flow, some pieces between recorded points are integrated again, by another method and with the derivatives
of :class:`.attention_at.AttentionAt`, which do not assume that logits are linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.span import Span
from reference_attention.training.descent import Stop
from reference_attention.training.factored_flow import FactoredFlow, factored_flow
from reference_attention.training.factorization import Keys, Layout, Queries
from theorems.bounded import value_of
from theorems.core.claim import Claim, Ended, Form, Undecided, Verdict, at_least, undecided_claim
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.curves.flow_chords import ArcFlow, Point, chords_of, start_and_norms
from theorems.curves.followed_flow import BEYOND, FLOW_NORMS, IS_OF_THIS_GRADIENT
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints

RELATIVE = 1e-12
"""The relative tolerance of the ODE solver, small because conserved quantities are compared."""
PER_DECADE = 20
"""The number of recorded norms per factor of ten; the integrals of the claims are sums over recorded points."""


class FactoredArcFlow(ArcFlow):
    """The flow on (K, Q) as a function of u = log(1 + κ s), where s is the arc length and κ² is ``Problem.key_scale``.

    As (K, Q) has many coordinates, fewer pieces are integrated again as a check than for other flows, and with a
    larger tolerance.
    """

    relative, pieces = 1e-7, 1

    def __init__(self, problem: Problem, layout: Layout) -> None:
        """Set κ to the square root of ``problem.key_scale``; ``layout`` maps (K, Q) to a vector and back."""
        super().__init__(problem)
        self._layout, self._kappa, self._of_weights = layout, math.sqrt(problem.key_scale), ArcFlow(problem)

    def _gradient(self, p: Point, by_weights: Float64[np.ndarray, "w"]) -> Point:
        """Return the gradient (∇L Q, ∇Lᵀ K) with respect to (K, Q) = p, from ∇L with respect to W in any unit."""
        G, (K, Q) = by_weights.reshape(self._layout.d, self._layout.e), self._layout.split(p)
        return self._layout.join(G @ Q, G.T @ K)

    def _unit(self, p: Point) -> Point:
        gradient = self._gradient(p, self._of_weights._unit(self._layout.weights(p)))
        length = math.sqrt(gradient @ gradient)
        return gradient / length if length > 0 else gradient

    def _span_at(self, p: Point) -> None:
        """Return None: the flow on (K, Q) does not stay in a span of rows."""

    def _curvature(self, p: Point, span: Span | None = None) -> tuple[Point, Float64[np.ndarray, "k k"]]:
        """Return ∇L/‖∇L‖ and ∇²L/‖∇L‖, where ∇ is with respect to (K, Q).

        Along (U, V), the second derivative is ∇²L(W)[dW, dW] + 2⟨∇L(W), U Vᵀ⟩ with dW = U Qᵀ + K Vᵀ.
        """
        unit, by_weights = self._of_weights._curvature(self._layout.weights(p))
        gradient, derivative = self._gradient(p, unit), self._layout.derivative(p)
        hessian, at = derivative.T @ by_weights @ derivative, self._layout.d * self._layout.m
        cross = np.kron(unit.reshape(self._layout.d, self._layout.e), np.eye(self._layout.m))
        hessian[:at, at:] += cross
        hessian[at:, :at] += cross.T
        length = math.sqrt(gradient @ gradient)
        return (gradient / length, hessian / length) if length > 0 else (gradient, np.zeros_like(hessian))


@dataclass(frozen=True, eq=False)
class FactoredFlowRun:
    """The gradient flow on (K, Q) from a start, to the largest norm that float64 resolves.

    Attributes:
        data: the data.
        under_test: the implementation under test, which computed the flow.
        start: the factors (K, Q) at the start of the flow.
        end: the norm that the flow had to reach.
        flow: the flow that the implementation returned.
        rng: the generator that chooses the pieces that are integrated again.
        claim: the name of the claim that is undecided if the flow ends too early.
    """

    data: QueryDataset
    under_test: Implementation
    start: tuple[Keys, Queries]
    end: float
    flow: FactoredFlow
    rng: np.random.Generator
    claim: str

    @classmethod
    def of(
        cls,
        data: QueryDataset,
        under_test: Implementation,
        start: tuple[Keys, Queries],
        unit: float,
        rng: np.random.Generator,
        claim: str,
    ) -> FactoredFlowRun:
        """Compute the flow up to ½(‖K‖² + ‖Q‖²) = 1e6 ``unit``; if that fails, up to smaller norms.

        The smallest norm that is tried is ten times the norm of the start.

        Raises:
            Undecided: the flow reached none of these norms.
        """
        begin = math.hypot(norm(start[0]), norm(start[1]))
        for size in FLOW_NORMS:
            end = max(math.sqrt(2 * size * unit), math.sqrt(BEYOND) * begin)
            record = np.geomspace(begin, end, 1 + math.ceil(PER_DECADE * math.log10(end / begin)))[1:]
            flow = under_test[factored_flow](data, *start, norm=end, record=record, relative=RELATIVE)
            if flow.stop is not Stop.FAILED:
                return cls(data, under_test, start, end, flow, rng, claim)
        raise Undecided(claim, f"the flow was not followed: {flow.reason}", Form.LIMIT, not_found=True)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims on the flow's start, its tangents at recorded points, and pieces of it between these points.

        Raises:
            Ended: the start or the recorded norms are not the requested ones, or the tangent of the flow cannot be
                decided.
        """
        first_claim = start_and_norms(self.flow, self.points.layout.join(*self.start), self.end)
        yield first_claim
        if first_claim.verdict is Verdict.FALSIFIED:
            raise Ended(first_claim.name)
        tangent = self._is_tangent()
        yield tangent
        if tangent.undecided:
            raise Ended(tangent.name)
        yield chords_of(FactoredArcFlow(self.data.problem, self.points.layout), self.flow, self.rng)

    def diverges(self) -> Iterator[Claim]:
        """Yield the claim that the flow reached the requested norm.

        Raises:
            Ended: the flow did not reach this norm.
            Undecided: the reference solver stopped at a point where ∇L is not zero.
        """
        flow = self.flow
        if not flow.reached_norm and not self.under_test.replaces(factored_flow):
            last = self.points.joint(self.points.at.gradient)[-1]
            if np.any(np.abs(value_of(last)) > last.error):
                why = f"the solver stopped the flow at ‖(K, Q)‖ = {flow.norms[-1]:.6g}, where ∇L is not zero"
                raise Undecided(self.claim, why, Form.LIMIT, not_found=True)
        reached = f"‖(K, Q)‖ = {flow.norms[-1]:.6g} after an arc of {flow.arc_length[-1]:.6g}, {flow.stop.value}"
        yield Claim(self.claim, Form.LIMIT, 0.0 if flow.reached_norm else -1.0, 0.0, EXACT, reached)
        if not flow.reached_norm:
            raise Ended(self.claim)

    @cached_property
    def points(self) -> FactoredPoints:
        """The recorded points (K, Q), r of them."""
        return FactoredPoints.of(self.data.problem, self.flow.K, self.flow.Q)

    @cached_property
    def gradient(self) -> Any:
        """The gradient ∇L(W) e^{−log_scale} under test, (r, d·e), at W = K Qᵀ rounded to floats."""
        return self.points.at_floats.gradient_of(self.under_test, IS_OF_THIS_GRADIENT)

    @cached_property
    def solver(self) -> Float64[np.ndarray, "r"]:
        """Bounds of the solver's summed local errors up to each recorded point, in the norm of (K, Q), (r,).

        Each bound is (number of evaluations) · √k (rtol ‖(K, Q)‖ + atol) plus rounding, where (K, Q) has k entries.
        """
        flow, entries = self.flow, self.points.layout.join(*self.start).size
        errors = flow.evaluations * math.sqrt(entries) * (flow.relative * flow.norms + flow.absolute)
        return np.asarray(errors + 8 * entries * EPS * flow.norms)

    def _is_tangent(self) -> Claim:
        """Return the claim that the gradient under test has the direction of the flow at every recorded point."""
        mine = self.points.joint(self.points.at_floats.gradient)
        if not np.isfinite(mine).all():
            why = "the rounding error of log|ℓ'| is too large: no digit of the gradient's direction is left in float64"
            return undecided_claim(IS_OF_THIS_GRADIENT, why, Form.EFFECTIVE)
        theirs = self.points.joint(self.gradient)
        apart = theirs / norm(theirs, axis=1, keepdims=True) - mine / norm(mine, axis=1, keepdims=True)
        return at_least(
            IS_OF_THIS_GRADIENT, Form.EFFECTIVE, 0.0, norm(apart, axis=1), scale=1.0, points="recorded norm"
        )
