"""Gradient descent on W after a first step that separates the optimal tokens.

References: *Transformers as Support Vector Machines*, Assumption B, Theorem 3.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.query_assumptions import first_step_separates
from generators.query_cases import Family, query_cases
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import normalized_gradient_descent
from theorems.bounded import exact
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict, at_least
from theorems.core.claim_name import premise, premises, stated_claim
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import starts_claim, steps_claim
from theorems.token_selection.global_paths.descent_from_a_margin import (
    CLIMBS_ALONG,
    FLOW_TURNS,
    MARGIN_CLAIMS,
    NORM_DIVERGES,
    descent_from_a_margin,
    margin_claims,
)
from theorems.token_selection.global_paths.margin_constants import MarginConstants

IS_ASKED_FOR = premise("first-step-is-the-one-asked-for")
IS_A_FIRST_STEP = premise("first-step-is-a-step")
SEPARATES = premise("first-step-separates")
FIRST_STEP_CLAIMS = (IS_ASKED_FOR, IS_A_FIRST_STEP, SEPARATES)

STATED = (CLIMBS_ALONG, NORM_DIVERGES, FLOW_TURNS)
"""The claims of ``descent-from-a-margin`` that Theorem 3 states."""
LONGER = 1 + 1e-6
"""The factor by which R exceeds the statement's radius, so that W(1) has the required margin despite rounding errors.

Any larger R suffices as well.
"""


def _is_separated(case: Case) -> bool:
    return bool(first_step_separates(case).holds)


def _cases() -> SearchStrategy[Case]:
    """Return a strategy for cases in which −∇L(0) separates the optimal tokens.

    In half of the cases −∇L(0) separates by construction, with orthogonal tokens and queries; in the others by chance.
    """
    others = query_cases(families=(Family.LABEL_SEPARATING, Family.INDEPENDENT)).filter(_is_separated)
    return st.one_of(query_cases(families=(Family.ORTHOGONAL,)), others)


@statement(
    "tsvm-first-step",
    "Gradient descent on W after a first step that separates",
    source="T-SVM, Theorem 3",
    claims=(
        *QUERY_CLAIMS,
        *FIRST_STEP_CLAIMS,
        *(
            stated_claim(name, when=name.when) if name in (CLIMBS_ALONG, FLOW_TURNS, NORM_DIVERGES) else name
            for name in MARGIN_CLAIMS
        ),
    ),
    assumptions=("queries-given", *descent_from_a_margin.assumptions, "first-step-separates"),
    cases=_cases,
    kernel=SATURATED,
    needs=dict(descent_from_a_margin.needs)
    | {"first-step-separates": "without it W(1) has no positive margin, and the claims do not apply"},
)
def tsvm_first_step(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and (x_i,opt − x_it)ᵀ(−∇L(0)) z_i ≥ ι > 0 for all i and t ≠ opt_i.

    With C_{μ,R} = {W : ‖W‖_F ≥ R, (x_i,opt − x_it)ᵀ W z_i ≥ μ‖W‖_F}:

        (1) for every μ > 0 there is an R such that C_{μ,R} has no stationary point of L;
        (2) from W(1) = −R∇L(0)/‖∇L(0)‖_F with R large, gradient descent with η ≤ 1/L_W has ‖W(k)‖_F → ∞ and
            W(k)/‖W(k)‖_F → W^mm/‖W^mm‖_F, provided that all iterates stay in C_{μ,R}.

    **Effective.** With p = vec(W) and keys vec(x_it z_iᵀ) both follow from ``descent-from-a-margin``, whose claims are
    checked here; A, κ and Ω are as there. (1) R = log((T−1)A)/μ suffices. With this R, the union of C_{μ,R} over μ is
    {m(W) ≥ log((T−1)A)}, where −⟨∇L(W), W^mm⟩ ≥ (1 − A(T−1)e^{−m(W)}) Ω ≥ 0. The left side is > 0 even where m(W) =
    log((T−1)A), as the bound replaces 1 − s_opt = s_opt Σ e^{−h} by the larger (T−1)e^{−m(W)}. (2) As m(W(1)) =
    Rι/‖∇L(0)‖_F, with

        R = (κ + log(2(T−1)A)) ‖∇L(0)‖_F/ι

    the margin of W(1) is so large that it decreases by at most κ during gradient descent. So the condition that all
    iterates stay in C_{μ,R} is not needed, and ι only determines R: any start of this margin suffices.

    **Exact.** Up to rounding, W(1) is one step of normalized gradient descent of length R from W = 0; its margin is at
    least κ + log(2(T−1)A). With orthogonal tokens of one length in each input and orthogonal queries the margin of
    −∇L(0) is |ℓ'|‖z_i‖²‖x_i‖²(γ_i,opt − γ_it)/(nT), so that ι > 0 by construction.
    """
    yield from premises(query_claims(case, under_test))
    problem = case.problem
    svm = yield from certify(problem, problem.optimal, under_test)
    constants = MarginConstants(problem, svm)
    first = yield from _first_step(constants, under_test)
    yield from margin_claims(constants, under_test, first, case.rng())


def _first_step(
    constants: MarginConstants, under_test: Implementation
) -> Generator[Claim, None, Float64[np.ndarray, "b d"]]:
    """Yield the claims that W(1), (1, d·e), is the first step and has the required margin, and return W(1)."""
    problem, zero = constants.problem, np.zeros((1, constants.problem.d))
    at = AttentionAt(problem, zero)
    gradient = at.gradient_of(under_test, IS_A_FIRST_STEP)
    least, length = constants.margins(-at.gradient)[0], norm(at.gradient, axis=-1)[0]
    if not least > 0:
        raise Undecided(SEPARATES, "float64 does not resolve whether the margin of −∇L(0) is positive", Form.EFFECTIVE)
    radius = constants.needed * length / least * LONGER
    step = float(radius.value + radius.error)
    if not step < 1e100:
        raise Undecided(SEPARATES, f"R = {step:.3g}: −∇L(0) hardly separates", Form.EFFECTIVE)
    run = under_test[normalized_gradient_descent](
        problem, zero, steps=1, step=step, gradient=under_test[scaled_gradient]
    )
    first_claim = starts_claim(IS_ASKED_FOR, run.points, zero, 1)
    yield first_claim
    if first_claim.verdict is Verdict.FALSIFIED:
        raise Ended(IS_ASKED_FOR)
    first = run.points[1]
    if not np.isfinite(first).all():
        raise NotANumber(IS_A_FIRST_STEP, "W(1) is not finite")
    yield steps_claim(IS_A_FIRST_STEP, zero, first, gradient, at.log_scale, float(np.log(step)), normalized=True)
    separated = at_least(SEPARATES, Form.EFFECTIVE, constants.margins(exact(first)), constants.needed)
    yield separated
    if separated.verdict is Verdict.FALSIFIED:
        raise Ended(SEPARATES)
    return first
