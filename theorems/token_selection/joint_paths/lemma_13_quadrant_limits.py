"""Lemma 13: within the quadrant of α, where (k_iα − k_it)·p ≥ 0, the joint path tends to v_mm and p_relax."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.joint_cases import joint_cases
from reference_attention.paths.joint_path import exponential_schedule, linear_schedule
from theorems.core.claim import Claim
from theorems.core.claim_name import premises
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.token_selection.joint_paths.joint_constants import (
    EFFECTIVE_CLAIMS,
    LIMIT_CLAIMS,
    LIMIT_DIRECTION,
    Sublevel,
)
from theorems.token_selection.joint_paths.joint_minimiser import LARGEST_UNITS, STARTS, JointMinimiser
from theorems.token_selection.joint_paths.joint_premises import JOINT_DATA, JOINT_SOLUTIONS, joint_data, joint_solutions
from theorems.token_selection.joint_paths.joint_setup import joint_setup
from theorems.token_selection.joint_paths.theorem_6_relaxed_joint_path import (
    in_sublevel_sets,
    linear_ratio,
    minimiser_claims,
)

UNITS = (10.0, 40.0, 160.0)
"""The values of RΘ, Θ = 1/‖p_relax‖, for which pairs (v, p) with ‖p‖ ≤ R, ‖v‖ ≤ e^{RΘ} are searched."""
BEHIND = "every token but α has less than the label margin Γ"


def quadrant_cases() -> SearchStrategy[Case]:
    """Return cases with inputs that are no supports of v_mm, in some of which these inputs have better tokens than α.

    Without the restriction to the quadrant, the prompt would select the better tokens.
    """
    return st.sampled_from((False, False, False, True)).flatmap(
        lambda loose: joint_cases(non_supports=True, loose=loose)
    )


@statement(
    "lemma-13",
    "within the quadrant of α the joint path goes to v_mm and p_relax",
    source="Appendix C.2, Lemma 13",
    claims=(*JOINT_DATA, *JOINT_SOLUTIONS, *EFFECTIVE_CLAIMS, *(name.only(BEHIND) for name in LIMIT_CLAIMS)),
    assumptions=("optimal-support-tokens", "separable", "radius-schedule"),
    cases=quadrant_cases,
    kernel=SATURATED,
)
def lemma_13(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let prompts satisfy (k_iα − k_it)·p ≥ 0 for all i, t.

    Over these prompts the joint path has v_r/r → v̄_mm and p̃_R/R → p_relax/‖p_relax‖.

    As in Theorem 6, which defines c*, a hypothesis must be added: r ≥ c* R. With r fixed the limit is p_mm, and the
    lemma as printed is false.

    **Effective**, at the pairs (v, p) in the quadrant with ‖v‖ ≤ r, ‖p‖ ≤ R and at most the risk of (r v̄_mm, R p̄_c),
    with the notation of :mod:`.joint_constants`: the bounds of q_S, of margins over S and of the head are those of
    Theorem 5, and with duals μ of p_relax, ⟨p, p̄_relax⟩ ≥ Σ_{i∈S} μ_it log(1/B − 1)/‖p_relax‖: the margins of the other
    inputs are at least 0 (item 7 of :mod:`.joint_constants`). At inputs that are no supports of v_mm, other tokens need
    not score below α here.

    **Limit.** Along r = e^{RΘ/2}, or r = 2c*R if p_relax gives α and another token of an input the same logit. The
    limit is claimed where every token other than α has less than the label margin Γ: v_mm·z_it < 1 by more than its
    rounding.
    """
    setup = joint_setup(case, under_test)
    yield from premises(joint_data(case, setup, under_test))
    p_relax, rng = setup.target, case.rng()
    levels = [Sublevel.of(setup, under_test, units, units * p_relax.norm) for units in UNITS]
    yield from premises(joint_solutions(setup, under_test))
    yield from in_sublevel_sets([level.pairs(rng).in_quadrant() for level in levels])
    # The limit is not claimed if a token's output equals the label margin Γ up to rounding: r = e^{RΘ/2} would multiply
    # the error.
    drop_excess = setup.smallest_drops - setup.slack
    if not (drop_excess.value > 16 * drop_excess.error).all():
        return
    schedule = exponential_schedule(p_relax.margin / 2)
    if p_relax.neighbours[~setup.joint.svm.support].any():
        # Where p_relax gives α and another token the same logit, 1 − s_iα stays between 0 and 1, which float64 cannot
        # resolve at r = e^{RΘ/2}.
        schedule = linear_schedule(2 * linear_ratio(setup, under_test))
    starts, R = rng.normal(size=(STARTS, p_relax.p.size)), LARGEST_UNITS * p_relax.norm
    yield from minimiser_claims(JointMinimiser.of(setup, under_test, schedule, R, starts, LIMIT_DIRECTION))
