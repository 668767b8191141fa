"""Gradient flow in a cone around p_mm, followed as accurately as what is said of it needs.

At norms of 1e7 and more a solver may chatter in the valley of the path at one tolerance, or from one start, and not at
the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.training.flow import Flow
from theorems.core.claim import Claim, Ended, Form, Verdict, undecided_claim
from theorems.core.implementation import Implementation
from theorems.curves.cone_points import Cone, is_followable, resolvable_rho
from theorems.curves.flow_chords import start_and_norms

SHARES = (1e-8, 1e-7, 1e-6)
"""Absolute tolerances of the solver, in units of the cone's half-width at the start, in the order in which they are
tried.
"""
VACUOUS = 0.25
"""Where the solver's accuracy is no better than this share of the bound, the claim says nothing. It comes near only at
norms of 1e10, where a rounding of p is as long as that.
"""
LOWEST_GOAL = 1e6
"""Flow is followed at least to this norm (keys of order one)."""


def along_a_flow(
    cone: Cone,
    under_test: Implementation,
    starts: Float64[np.ndarray, "m d"],
    factor: float,
    says: Callable[[Flow, float], Iterator[Claim]],
    claim: str,
) -> Iterator[Claim]:
    """The premise of a flow, and what is said of it.

    It is the first that says something, of flows from the starts from which float64 can follow one.

    Args:
        factor: how many times the norm of its start it is followed to at least.
        says: the claims of a flow, given the norm that it was asked to reach.
        claim: what is undecided where there is none.

    Raises:
        Ended: it is another flow than was asked for.
    """
    length = cone.norm
    reason = "float64 cannot follow it in this cone, where lateral forces cancel to rounding"
    for start in starts:
        begin = float(norm(start))
        goal = min(max(LOWEST_GOAL, factor * begin), resolvable_rho(cone) * length)
        if not is_followable(cone, begin / length) or goal < 2 * begin:
            continue
        width = math.sqrt(2 * cone.mu) * begin
        for share in SHARES:
            flow = under_test.gradient_flow(
                cone.problem,
                start,
                norm=goal,
                gradient=under_test.scaled_gradient,
                axis=cone.solution.p,
                absolute=share * width,
            )
            asked = start_and_norms(flow, start, goal)
            if asked.verdict is Verdict.FALSIFIED:
                yield asked
                raise Ended(asked.name)
            if flow.norms[-1] >= 2 * begin:
                claims = list(says(flow, goal))
                if all(one.tolerance <= VACUOUS for one in claims):
                    yield asked
                    yield from claims
                    return
                reason = f"its solver's accuracy is {max(one.tolerance for one in claims):.3g} of what is claimed"
                continue
            reason = f"{flow.reason or flow.stop.value} at ‖p‖ = {flow.norms[-1]:.3g}"
    # A solver of the suite's own did not get there: that says nothing about what is under test.
    yield undecided_claim(claim, f"flow: {reason}", Form.EFFECTIVE, not_found=True)
