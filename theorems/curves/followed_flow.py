"""Gradient flows followed to norms at which their limits are visible, and checks that they are gradient flows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow
from theorems.core.claim import Claim, Ended, Form, Undecided, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.curves.flow_chords import FLOW_CHORDS, FLOW_IS_ASKED_FOR, chords, start_and_norms
from theorems.rounding.attention_at import AttentionAt

IS_OF_THIS_GRADIENT = premise("flow-is-of-this-gradient")
FLOW_PREMISES = (FLOW_IS_ASKED_FOR, IS_OF_THIS_GRADIENT, FLOW_CHORDS)
"""The names of the premises of a flow: claims that the flow is what a theorem assumes."""

FLOW_NORMS = (1e6, 1e5, 1e4)
"""The norms to which a flow may be followed, as multiples of a unit that the caller gives. They are tried in this order
until the solver reaches one. If lengths of key differences differ a thousandfold or more, logits of the longest ones
lose their digits at a large norm."""
FAR, OPPOSITE = 1e3, 10.0
"""The norms of a far start, in units of 1/(scale of the keys), and of a start opposite to p_mm, in units of ‖p_mm‖."""
BEYOND = 100.0
"""The least norm to which a flow is followed, as a multiple of the norm of its start."""


def flow_start(case: Case, svm: MaxMargin, rng: np.random.Generator) -> Float64[np.ndarray, "d"]:
    """Return the start of the case, or draw a start: near the origin, far from it, or opposite to p_mm."""
    if case.start is not None:
        return case.start
    near = rng.normal(size=svm.p.size) / case.problem.key_scale
    return [near, near, FAR * near, -OPPOSITE * svm.p][int(rng.integers(4))]


@dataclass(frozen=True, eq=False)
class FollowedFlow:
    """The gradient flow from a start to the first of :data:`FLOW_NORMS` to which the solver can follow it.

    Attributes:
        problem, under_test: the problem, and the implementation that followed the flow.
        start: the start p(0), (d,).
        end: the norm to which the flow was requested.
        flow: the flow that the implementation returned.
        rng: the random generator that chooses the pieces of the flow to integrate again.
        claim: the name of the claim that is undecided if the flow ends too early.
    """

    problem: Problem
    under_test: Implementation
    start: Float64[np.ndarray, "d"]
    end: float
    flow: Flow
    rng: np.random.Generator
    claim: str

    @classmethod
    def of(
        cls,
        problem: Problem,
        under_test: Implementation,
        start: Float64[np.ndarray, "d"],
        unit: float,
        relative: float,
        rng: np.random.Generator,
        claim: str,
    ) -> FollowedFlow:
        """Follow the flow to the first of :data:`FLOW_NORMS`, times ``unit``, to which the solver can follow it.

        Raises:
            Undecided: the flow could not be followed to any of the norms.
        """
        begin = float(np.linalg.norm(start))
        for size in FLOW_NORMS:
            end = max(size * unit, BEYOND * begin)
            flow = under_test[gradient_flow](problem, start, norm=end, relative=relative)
            if flow.stop is not Stop.FAILED:
                return cls(problem, under_test, start, end, flow, rng, claim)
        raise Undecided(claim, f"the flow was not followed: {flow.reason}", Form.LIMIT, not_found=True)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the flow begins at the start, is tangent to the gradient under test, and is a flow.

        Raises:
            Ended: the flow has another start or wrong norms, or the claim about tangents is undecided.
            Undecided: the flow is reported to end at a stationary point where the gradient does not vanish.
        """
        first_claim = start_and_norms(self.flow, self.start, self.end)
        yield first_claim
        if first_claim.verdict is Verdict.FALSIFIED:
            raise Ended(first_claim.name)
        tangent = self._is_tangent()
        yield tangent
        if tangent.undecided:
            raise Ended(tangent.name)
        yield chords(self.problem, self.flow, self.rng)
        flow = self.flow
        if flow.stop is Stop.STATIONARY and not vanishes(self.problem, flow.final):
            why = f"the flow solver stopped at ‖p‖ = {flow.norms[-1]:.6g}, where the gradient does not vanish"
            raise Undecided(self.claim, why, Form.LIMIT)

    def diverges(self) -> Iterator[Claim]:
        """Yield the claim that the flow reached the requested norm.

        Raises:
            Ended: the flow did not reach the requested norm.
        """
        flow = self.flow
        reached = f"‖p‖ = {flow.norms[-1]:.6g} after an arc of {flow.arc_length[-1]:.6g}, {flow.stop.value}"
        yield Claim(self.claim, Form.LIMIT, 0.0 if flow.reached_norm else -1.0, 0.0, EXACT, reached)
        if not flow.reached_norm:
            raise Ended(self.claim)

    @cached_property
    def solver(self) -> Float64[np.ndarray, "r"]:
        """The sum of the solver's local errors up to each record: evaluations · √d (relative ‖p‖ + absolute), (r,)."""
        flow = self.flow
        errors = flow.evaluations * math.sqrt(self.problem.d) * (flow.relative * flow.norms + flow.absolute)
        return np.asarray(errors)

    def _is_tangent(self) -> Claim:
        """Return the claim that the gradient under test is tangent to the curve at every recorded point.

        If so, the curve is also a flow of the gradient under test. The solver itself uses the reference's gradient and
        Jacobian: without a Jacobian, or with a gradient that consists of rounding errors, a stiff solver takes minutes.
        """
        at = AttentionAt(self.problem, self.flow.points)
        mine = at.gradient
        if not np.isfinite(mine).all():
            why = "the rounding error of log|ℓ'| is too large: no digit of the gradient's direction is left in float64"
            return undecided_claim(IS_OF_THIS_GRADIENT, why, Form.EFFECTIVE)
        theirs = at.gradient_of(self.under_test, IS_OF_THIS_GRADIENT)
        apart = theirs / norm(theirs, axis=1, keepdims=True) - mine / norm(mine, axis=1, keepdims=True)
        size, unit = norm(apart, axis=1), "recorded norm"
        return at_least(IS_OF_THIS_GRADIENT, Form.EFFECTIVE, 0.0, size, scale=1.0, points=unit)


def vanishes(problem: Problem, p: Float64[np.ndarray, "d"]) -> bool:
    """Return whether the gradient at p is zero up to the rounding of its terms."""
    return not (AttentionAt(problem, p[None]).gradient != 0).any()
