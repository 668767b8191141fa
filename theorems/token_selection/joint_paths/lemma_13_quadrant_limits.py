"""Lemma 13: within the quadrant of α, the joint path goes to v_mm and p_relax."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.joint_cases import joint_cases
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import SATURATED
from theorems.core.statement import statement
from theorems.token_selection.joint_paths.given_claims import GIVEN_CLAIMS, given_claims
from theorems.token_selection.joint_paths.joint_claims import (
    EFFECTIVE_CLAIMS,
    SOLUTION_CLAIMS,
    effective_claims,
    solution_claims,
)
from theorems.token_selection.joint_paths.joint_limit import LARGEST_UNITS, LIMIT_CLAIMS, STARTS, limit_claims
from theorems.token_selection.joint_paths.joint_sublevel import joint_setup
from theorems.token_selection.joint_paths.theorem_5_joint_regularization_path import slower
from theorems.token_selection.joint_paths.theorem_6_relaxed_joint_path import linear_ratio, sublevel

UNITS = (10.0, 40.0, 160.0)
"""RΘ_relax of the sublevel sets; r = e^{RΘ_relax} there."""


def loose_cases() -> SearchStrategy[Case]:
    """Cases whose non-supports may have better tokens than α, where only the quadrant keeps the prompt from those, or
    not.
    """
    return st.sampled_from((False, False, False, True)).flatmap(
        lambda loose: joint_cases(non_supports=True, loose=loose)
    )


@statement(
    "lemma-13",
    "within the quadrant of α the joint path goes to v_mm and p_relax",
    source="Appendix C.2, Lemma 13",
    claims=GIVEN_CLAIMS
    | SOLUTION_CLAIMS
    | EFFECTIVE_CLAIMS
    | {name: f"every token but α has less than the label margin Γ; {when}" for name, when in LIMIT_CLAIMS.items()},
    states=("limit-direction", "limit-head"),
    premises=(*GIVEN_CLAIMS, *SOLUTION_CLAIMS, "path-is-lowest"),
    assumptions=("optimal-support-tokens", "separable", "radius-schedule"),
    cases=loose_cases,
    kernel=SATURATED,
)
def lemma_13(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Among prompts with (k_iα − k_it)·p ≥ 0 for all i, t, the joint path has v_r/r → v̄_mm and p̃_R/R →
    p_relax/‖p_relax‖.

    As in Theorem 6 a schedule must be added (r ≥ c* R); with r fixed the limit is p_mm, and the lemma is false as it
    stands.

    **Effective**, on the part of the sublevel set of (r v̄_mm, R p̄_c) that lies in the quadrant: q_S, margins over S
    and head as in Theorem 5, and with duals μ of p_relax, ⟨p, p̄_relax⟩ ≥ Σ_{i∈S} μ_it log(1/B − 1)/‖p_relax‖: the
    non-supports' margins enter with 0 (item 7 of :mod:`.joint_sublevel`). No token of a non-support need score below α
    here.

    **Limit.** Along r = e^{RΘ/2}, or r = 2c*R if p_relax ties an input, where every other token has less than the label
    margin Γ: v_mm·z_it < 1 by more than its rounding.
    """
    setup = joint_setup(case, under_test)
    yield from given_claims(case, setup, under_test)
    rng = case.rng()
    levels = [sublevel(setup, under_test, units, units * setup.target.norm) for units in UNITS]
    yield from solution_claims(setup, under_test)
    yield from effective_claims(levels, rng, quadrant=True)
    # A token that ties α's label margin Γ but for rounding: e^{RΘ/2} times what float64 cannot tell from zero.
    apart = setup.smallest_drops - setup.slack
    if (apart.value > 16 * apart.error).all():
        starts = rng.normal(size=(STARTS, setup.target.p.size))
        norm, rate = setup.target.norm, setup.target.margin / 2
        if setup.target.neighbours[~setup.joint.svm.support].any():
            # An input that p_relax ties keeps q_i between 0 and 1: at r = e^{RΘ/2} nothing in float64 resolves it.
            ratio = 2 * linear_ratio(setup, under_test)
            yield from limit_claims(setup, under_test, lambda R: math.log(ratio * R), LARGEST_UNITS * norm, starts)
        else:
            yield from limit_claims(setup, under_test, slower(rate), LARGEST_UNITS * norm, starts)
