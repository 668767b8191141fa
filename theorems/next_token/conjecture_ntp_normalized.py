"""If F ≠ 0, normalized gradient descent on next tokens is eventually no faster than plain descent of step 2/λ_max(H).

Main result: a conjecture, supported by a linearisation and by runs: P_FW ends in a cycle of two points, in which the
effective step η/‖∇L‖ is at least 2/λ_max in the mean. The subspace F and the Hessian H are those of `ntp-finite-part`.

Reference: derived here; arXiv 2402.18551, Figure 5 (normalized descent is faster early on).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.next_token.assumptions import FINITE_PART
from generators.next_token.cases import finite_part_cases
from generators.next_tokens import NextTokens
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.next_token.descent_run import RUN_PREMISES, DescentRun, follow, starts
from theorems.next_token.limits import LIMIT_PREMISES, certify_limits

LONG = sharper("effective-step-is-long")
TURNS = sharper("gradient-turns-into-f")

STEPS = 4000
STRETCHES = 3
"""The largest number of blocks of :data:`STEPS` steps that are run until the transient is over."""
NEAR = 2.0
"""The bound of ‖u‖/η below which u = P_Fθ − θ_⋆ is taken to be in its cycle; in the exact cycle ‖u‖ < η."""
PAST = 20.0
"""The length ηk of a run, in units of ‖θ_mm‖ + ‖θ_⊥(0)‖, after which θ_⊥ moves by only about ‖θ_mm‖/k per step."""
WINDOW = 1000
"""The number of final steps over which η/‖∇L‖ is averaged; even, because the cycle has two steps."""
LENGTH = 0.1
"""The step length η in units of 1/D_F, with D_F the largest distance of two vectors a_jv of one extended support.

A step changes differences of logits in an extended support, and H relative to its own size, by at most this number.
"""
CYCLE_RATE = tolerance(
    "normalized-cycle",
    "5 %",
    "the amplitude along H's top eigenvector neither vanishes nor grows, so that the mean of log|1 − s_kλ_max| over n"
    " steps is the amplitude's change divided by n, below 1 %; and H varies along the cycle by up to η D_F = 10 %, less"
    " in the mean",
)

TURN_RATE = tolerance(
    "normalized-turn",
    "another ‖θ_mm‖/(ηk)",
    "once margins grow, θ_⊥ moves by ‖θ_mm‖/k per step; by at most twice that after twice the steps until margins grow",
)


@statement(
    "conjecture-ntp-normalized",
    "Normalized descent on next tokens ends with effective steps of 2/λ_max(H) or more, and does not settle",
    source="own",
    claims=(*LIMIT_PREMISES, *RUN_PREMISES, LONG, TURNS),
    assumptions=(FINITE_PART,),
    about=NextTokens,
    cases=finite_part_cases,
    kernel=SVM_ONLY,
    needs={FINITE_PART.id: "if F = 0, there is no H, and no finite part that keeps steps short"},
)
def conjecture_ntp_normalized(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """With the notation of ntp-finite-part let F ≠ 0 and θ_{k+1} = θ_k − η∇L/‖∇L‖ with constant η, from any start.

    Then

        the lim inf of the mean of η/‖∇L(θ_k)‖ over steps is at least 2/λ_max(H);
        ‖P_F∇L(θ_k)‖/‖∇L(θ_k)‖ → 1: steps in F stay η long, and P_F θ_k does not converge.

    So θ_⊥ moves as under gradient descent with a step size of about 2/λ_max, and ‖θ_⊥‖ grows like log k: eventually
    normalization does not accelerate training.

    **Linearisation.** For large θ_⊥, ∇L ≈ Hu with u = P_Fθ − θ_⋆, and u⁺ = (I − s_kH)u with s_k = η/‖Hu‖. Along the top
    eigenvector ‖u‖ alternates between a and η − a, s between η/(λ_max a) and η/(λ_max(η − a)), with a mean of at least
    2/λ_max, and of 2/λ_max for a = η/2. A cycle along another eigenvector, of eigenvalue λ_i, is unstable: the
    multiplier of the top eigenvector is 1 − 2λ_max/λ_i. This is no proof.
    **Second.** ‖θ_⊥‖ grows like ‖θ_mm‖ log k, so that θ_⊥ moves by η‖P_⊥∇L‖/‖∇L‖ ≈ ‖θ_mm‖/k at step k. Both claims are
    judged once ‖u‖ ≤ 2η and k ≥ 20(‖θ_mm‖ + ‖θ_⊥(0)‖)/η: earlier steps are a transient, which the conjecture does not
    cover.
    """
    rng = case.rng()
    limits = yield from certify_limits(case.problem, under_test)
    x, y = starts(limits, case.start, rng)
    step = LENGTH / float(value_of(limits.span))
    at, far = (x[1:2], y[1:2]), float(np.linalg.norm(y[1])) + float(value_of(limits.ray_norm))
    why = ""
    for steps in range(STEPS, (STRETCHES + 1) * STEPS, STEPS):
        run = yield from follow(limits, under_test, *at, step, STEPS, normalized=True)
        why = transient(run, steps - WINDOW, far)
        if not why:
            yield from cycle_claims(run, steps - WINDOW)
            return
        remaining = (STRETCHES * STEPS - steps) * run.step
        if far * PAST > STRETCHES * STEPS * run.step or float(value_of(run.at.inside_norm[-1]).max()) > 2 * remaining:
            break
        at = run.at.x[-1], run.at.y[-1]
    for name in (TURNS, LONG):
        yield undecided_claim(name, why, Form.LIMIT, not_found=True)


def transient(run: DescentRun, before: int, far: float) -> str:
    """Return the reason why the run is still in its transient; an empty string if it is not.

    Args:
        run: the last :data:`STEPS` steps.
        before: the number of steps before the last :data:`WINDOW` steps.
        far: ‖θ_mm‖ + ‖θ_⊥(0)‖.
    """
    largest = float(value_of(run.at.inside_norm[-WINDOW:]).max()) / run.step
    if not largest <= NEAR:
        return f"after {before} steps P_Fθ is {largest:.3g} step lengths away from θ_⋆, so the run is in its transient"
    if not before * run.step >= PAST * far:
        return f"{before} steps are too few: the transient of θ_⊥ takes {PAST * far / run.step:.3g} steps"
    return ""


def cycle_claims(run: DescentRun, before: int) -> Iterator[Claim]:
    """Yield the two claims about the last :data:`WINDOW` steps of a run; ``before`` steps come before them."""
    at, limits, step = run.at, run.limits, exact(run.step)
    norm = at.gradient_norm[-WINDOW - 1 : -1]
    outside = np.linalg.norm(value_of(at.gradient_outside[-WINDOW - 1 : -1]), axis=-1)
    moved = float((outside / value_of(norm)).mean())
    most = float(value_of(limits.ray_norm)) / (run.step * before)
    yield at_least(TURNS, Form.LIMIT, most, moved, rounding=most, why=TURN_RATE, points="window")
    mean = value_of(step / norm).mean()
    least = 2 / float(value_of(limits.top_curvature))
    yield at_least(LONG, Form.LIMIT, mean, least, rounding=0.05 * least, why=CYCLE_RATE, scale=least, points="window")
