"""Lemma 7 without local optimality, separation, or a decreasing loss.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 7.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import ROUNDING
from theorems.without.slopes import RADII, descent, lasting
from theorems.without.small_cases import plain_cases
from theorems.without.weakening import Weakening, weaken

LOSS, SEPARABLE, LOCAL = "well-behaved-loss", "separable", "locally-optimal"
SOME = "for some q in place of p_mm and some C_{μ,R}(q), −⟨∇L(p), q/‖q‖⟩ ≥ C⁻ max_i(1 − s_iα_i) > 0 in the cone"


def pushes_outward(problem: Problem, axis: Float64[np.ndarray, "d"], name: str) -> Claim:
    """Claim that descent leads outwards at p = R q on the cone's axis q: −⟨∇L(p), q⟩ > 0, in units of ‖∇L(p)‖.

    The claim is violated if the inequality fails at every R that is tested, up to 10⁶. The lemma implies the claim,
    because every cone around q contains the points R q from some R on, and the direction q.
    """
    down = descent(problem, RADII[:, None] * axis, axis)
    detail = f"−⟨∇L(p), q̄⟩ = {down.value[-1]:.6g} ‖∇L(p)‖ at p = {RADII[-1]:g} q̄"
    return lasting(name, Form.LIMIT, down, ROUNDING, detail)


def _axis(case: Case, under_test: Implementation) -> Iterator[Claim]:
    solution = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    if not isinstance(solution, Infeasible):
        yield pushes_outward(case.problem, solution.direction, "lower-bound")


LEMMA_7 = Weakening(
    "lemma-7", _axis, "in some C_{μ,R}(p_mm), −⟨∇L(p), q/‖q‖⟩ ≥ C⁻ max_i(1 − s_iα_i) > 0 for all q of the cone"
)
higher_neighbour = LEMMA_7.without(
    LOCAL,
    "Let neighbours score higher than α: at large norm along p_mm(α) descent then leads back, inwards. The weight that"
    " is not on α is on its SVM-neighbours there, and the risk decreases if they get more weight.",
    cases=cases(assumptions=(LOSS, SEPARABLE), n=(1, 2), tokens=(2, 3), d=(1, 2), alpha="any", plain=True),
)
increasing_loss = LEMMA_7.without(
    LOSS,
    "Let the loss increase: the higher score of α then has the larger loss; the risk increases outwards along p_mm.",
    cases=cases(assumptions=(SEPARABLE, LOCAL), n=(1, 2), tokens=(2, 3), d=(1, 2), losses=("squared",), plain=True),
)


@st.composite
def _inner(draw: DrawFn) -> Case:
    case = draw(plain_cases(n=(1, 1), tokens=(3, 3), d=(1, 1)))
    return case.replace(alpha=np.array([draw(st.integers(0, 2))]))


@weaken("lemma-7", without=SEPARABLE, keeps=(LOSS,), refutes=SOME, cases=_inner())
def not_separable(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let p_mm(α) not exist: the lemma can then only mean some direction q in its place, and perhaps no q will do.

    If the chosen token α has the highest score and its key lies between the others, no ray selects α, and on every ray
    descent leads back inwards. (The assumption of local optimality requires that p_mm(α) exists; it is left out as
    well.)
    """
    problem = case.problem
    if problem.d != 1:
        return
    both = [pushes_outward(problem, np.array([sign]), "lower-bound") for sign in (1.0, -1.0)]
    yield max(both, key=lambda claim: claim.slack + claim.tolerance)
