"""Gradient flow in a cone around p_mm, with solver tolerances that are small against the bounds that Theorem 3 claims.

The path lies in a narrow valley of the risk, and at norms of 1e7 and more the solver may oscillate around the path.
The oscillation depends on the solver's tolerance and on the start, so several tolerances and starts are tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.risk import scaled_gradient
from reference_attention.training.flow import Flow, gradient_flow
from theorems.core.claim import Claim, Ended, Form, Verdict, undecided_claim
from theorems.core.implementation import Implementation
from theorems.curves.cone_points import Cone, is_followable, resolvable_rho
from theorems.curves.flow_chords import start_and_norms

SHARES = (1e-8, 1e-7, 1e-6)
"""The absolute tolerances of the solver, in units of the cone's half-width at the start, in the order in which they are
tried.
"""
VACUOUS = 0.25
"""The largest error of the solver, as a share of a claim's bound, at which the claim is made.

The rounding error of p reaches this share only at norms of 1e10.
"""
LOWEST_GOAL = 1e6
"""The norm to which a flow is followed at least, for keys of order one, unless float64 resolves less."""


def along_a_flow(
    cone: Cone,
    under_test: Implementation,
    starts: Float64[np.ndarray, "m d"],
    factor: float,
    claims_about: Callable[[Flow, float], Iterator[Claim]],
    claim: str,
) -> Iterator[Claim]:
    """Yield the premise that a flow in the cone is the requested one, and the claims about this flow.

    Starts and solver tolerances are tried in turn until the solver's error is a small share of the claims' bounds.

    Args:
        cone: the cone.
        under_test: the implementation that computes the flow.
        starts: points in the cone, (m, d).
        factor: the factor by which the norm of a flow has to grow at least.
        claims_about: the function that yields the claims for a flow and its requested norm.
        claim: the name of the claim that is undecided if the solver's error is too large with every tolerance and
            start.

    Raises:
        Ended: a flow does not begin at its start, or its norms are not those of its points.
    """
    length = cone.norm
    reason = "float64 cannot follow the flow in this cone, where lateral forces cancel to rounding"
    for start in starts:
        begin = float(norm(start))
        goal = min(max(LOWEST_GOAL, factor * begin), resolvable_rho(cone) * length)
        if not is_followable(cone, begin / length) or goal < 2 * begin:
            continue
        width = math.sqrt(2 * cone.mu) * begin
        for share in SHARES:
            flow = under_test[gradient_flow](
                cone.problem,
                start,
                norm=goal,
                gradient=under_test[scaled_gradient],
                axis=cone.solution.p,
                absolute=share * width,
            )
            premise = start_and_norms(flow, start, goal)
            if premise.verdict is Verdict.FALSIFIED:
                yield premise
                raise Ended(premise.name)
            if flow.norms[-1] >= 2 * begin:
                claims = list(claims_about(flow, goal))
                if all(bound.tolerance <= VACUOUS for bound in claims):
                    yield premise
                    yield from claims
                    return
                reason = f"the solver's error is {max(bound.tolerance for bound in claims):.3g} times the claimed bound"
                continue
            reason = f"{flow.reason or flow.stop.value} at ‖p‖ = {flow.norms[-1]:.3g}"
    # The suite's own solver fails in this cone, too, so nothing follows about the implementation under test.
    yield undecided_claim(claim, f"flow: {reason}", Form.EFFECTIVE, not_found=True)
