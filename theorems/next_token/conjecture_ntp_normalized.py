"""Normalized gradient descent on next tokens is no faster in the end than steps of 2/λ_max(H), wherever F ≠ 0.

Main result: a conjecture, from a linearisation and runs: P_FW ends in a 2-cycle of effective step 2/λ_max or more.

Reference: own; arXiv 2402.18551, Figure 5 (normalized descent is faster early on).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from generators.next_token_assumptions import FINITE_PART
from generators.next_token_cases import finite_part_cases
from generators.next_tokens import NextTokens
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.next_token.followed import RUN_PREMISES, follow, starts
from theorems.next_token.limits import LIMIT_PREMISES, certify_limits

LONG = sharper("effective-step-is-long")
CHATTERS = sharper("part-in-f-does-not-settle")

STEPS = 4000
WINDOW = 1000
"""Steps, an even number, over which effective steps are averaged; the last ones."""
LENGTH = 0.1
"""η in units of 1/D_F: the logits of an extended support move by that much, and H by as much relatively."""
CYCLE_RATE = tolerance(
    "normalized-cycle",
    "5 %",
    "the amplitude along H's top eigenvector neither vanishes nor grows, so that the mean of log|1 − s_kλ_max| over n"
    " steps is its change over n: below 1 %; and H differs by up to η D_F = 10 % along the cycle, less in the mean",
)


@statement(
    "conjecture-ntp-normalized",
    "Normalized descent on next tokens ends with effective steps of 2/λ_max(H) or more, and does not settle",
    source="own",
    claims=(*LIMIT_PREMISES, *RUN_PREMISES, LONG, CHATTERS),
    assumptions=(FINITE_PART,),
    about=NextTokens,
    cases=finite_part_cases,
    kernel=SVM_ONLY,
    needs={FINITE_PART.id: "without F there is no finite part to keep steps short, and no H"},
)
def conjecture_ntp_normalized(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """With the notation of ntp-finite-part, F ≠ 0, θ_{k+1} = θ_k − η∇L/‖∇L‖ with constant η, from any start:

        lim inf of the mean of η/‖∇L(θ_k)‖ over k is at least 2/λ_max(H);
        ‖u_k‖ + ‖u_{k+1}‖ ≥ η‖P_F∇L(θ_k)‖/‖∇L(θ_k)‖ → η: P_F θ_k does not converge.

    So θ_⊥ moves as under gradient descent of about that step, ‖θ_⊥‖ grows like log k, and nothing is gained in the end.

    **Linearisation.** Once θ_⊥ is far out ∇L ≈ Hu, and u⁺ = (I − s_kH)u with s_k = η/‖Hu‖. Along the top eigenvector
    ‖u‖ alternates between a and η − a, s between η/(λ_max a) and η/(λ_max(η − a)), whose mean is at least 2/λ_max, with
    equality for a = η/2; along another eigenvector λ_i the multiplier 1 − 2λ_max/λ_i is unstable. No proof.
    **Second.** u_{k+1} − u_k = −ηP_F∇L/‖∇L‖, exactly. (ηk‖P_⊥∇L‖ stays bounded, ‖Hu‖ does not tend to 0.)
    """
    rng = case.rng()
    limits = yield from certify_limits(case.problem, under_test)
    x, y = starts(limits, case.start, rng)
    step = LENGTH / float(value_of(limits.span))
    run = yield from follow(limits, under_test, x[1:2], y[1:2], step, STEPS, normalized=True)
    at, norm = run.at, run.at.gradient_norm[:-1]
    moved: Any = exact(step) * np.linalg.norm(at.gradient_inside[:-1], axis=-1) / norm
    there = at.inside_norm
    yield at_least(CHATTERS, Form.EFFECTIVE, there[:-1] + there[1:] + run.off, moved, points="step")
    mean = value_of(exact(step) / norm[-WINDOW:]).mean()
    least = 2 / float(value_of(limits.top_curvature))
    yield at_least(LONG, Form.LIMIT, mean, least, rounding=0.05 * least, why=CYCLE_RATE, scale=least, points="window")
