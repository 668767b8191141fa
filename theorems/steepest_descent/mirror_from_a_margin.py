"""Mirror descent with ψ = ‖p‖_q^q/q from a start of sufficient margin turns to the largest margin in ‖·‖_q.

Main result: the bounds of mirror-one-input for any number of inputs and any scores, as long as the margin of p
suffices.

References: derived here; Julistiono, Ataee Tarzanagh, Azizan, *Optimizing Attention with Mirror Descent*, 2024, whose
start lies in a cone; :mod:`theorems.token_selection.global_paths.descent_from_a_margin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from generators.case import Case
from theorems.bounded import with_rounding
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.margin_points import starts_with_margin
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import Geometry, certify_margin
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.mirror_one_input import POWERS
from theorems.steepest_descent.mirror_run import CLIMBS, MIRROR_CLAIMS, MIRROR_PREMISES, first_length, follow_mirrored
from theorems.steepest_descent.steepest_from_a_margin import ASSUMPTIONS, margin_cases
from theorems.steepest_descent.steepest_one_input import affordable_steps
from theorems.token_selection.global_paths.margin_constants import MarginConstants

SHARES = (1e-3, 1e-2, 0.1)
"""The choices of the length ‖z(1) − z(0)‖_* of the first step of the dual point z, in units of ‖z(0)‖_*."""
STRETCHED = 2.0
"""The margin of a start, in units of the margin required, so that the margins of later iterates mostly suffice, too."""


@dataclass(frozen=True, eq=False)
class MirrorConstants(MarginConstants):
    """The constant A = max g_it·p_q and the margin that a start needs.

    They are those of descent-from-a-margin with p_q, the solution of ATT-SVM in ‖·‖_q, in place of p_mm.

    Attributes:
        geometry: γ and p_q.
    """

    geometry: Geometry
    claim: ClassVar[str] = CLIMBS

    @cached_property
    def p_mm(self) -> Numbers:
        """The solution p_q, whose margins are at least 1, (d,)."""
        return with_rounding(self.geometry.solution.p)


@statement(
    "mirror-from-a-margin",
    "Mirror descent in ℓq, from a start of sufficient margin",
    source="own",
    claims=(SVM_IS_OPTIMAL, NORM_MARGIN, *MIRROR_PREMISES, *MIRROR_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=margin_cases,
    kernel=SATURATED,
    needs={
        "separable": "there is a largest margin, and it is positive, only if ATT-SVM is feasible",
        "well-behaved-loss": "the margin required of a start is computed from bounds of |ℓ'| > 0",
        "strict-optimum": "the margin required of a start is computed from the gaps to a single best token",
    },
)
def mirror_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and ATT-SVM feasible, for any n and scores.

    With the notation of mirror-one-input and descent-from-a-margin let p_q be the solution of ATT-SVM in ‖·‖_q, A = max
    g_it·p_q, q = (T−1)e^{−m} and q_s its value at p(s) (this is not the power of ‖·‖_q), K = κ − log 2 and Ω =
    (1/n)Σ|ℓ'_i|Σ_t s_it(γ_i,opt − γ_it). As long as m(p(s)) ≥ log(2(T−1)A) for all s < t,

        ⟨z(t), p̄⟩ ≥ ⟨z(0), p̄⟩ + γΣη_s Ω_s(1 − A q_s),
        N(s+1) ≤ N(s) + [η_s Ω_s(m + K + log(1+q)) + B_s]/‖p(s)‖_q,

    where B has ‖η∇L‖_* in place of σ‖Γ‖_*; hence the bounds of ⟨z, p̄⟩/N and of ‖p/‖p‖_q − p̄‖_q follow. The statement
    neither covers runs that have left the region m(p) ≥ log(2(T−1)A), nor proves that runs stay in it; for steepest
    descent, steepest-from-a-margin proves this.

    **Derivation.** −⟨∇L, p_q⟩ ≥ (1 − Aq)Ω and −⟨∇L, p⟩ ≤ (m + K + log(1+q))Ω as in descent-from-a-margin, where the
    proofs use no norm, but only that the margins of p_mm lie in [1, A]; p̄ = γp_q. The rest is as in mirror-one-input.
    """
    problem, rng = case.problem, case.rng()
    svm = yield from certify(problem, problem.optimal, under_test)
    geometry = yield from certify_margin(problem, float(rng.choice(POWERS)), under_test)
    constants = MirrorConstants(problem, svm, geometry)
    starts, steps = STRETCHED * starts_with_margin(case, constants, rng), affordable_steps(problem)
    log_step = first_length(geometry, starts, float(rng.choice(SHARES)), steps)
    # Steps are normalized: the lengths of plain steps are like e^{−m}, so that p hardly moves where margins are large.
    run = yield from follow_mirrored(geometry, under_test, starts, steps, log_step, True)
    m = constants.margins(run.p[:-1])
    inside = np.logical_and.accumulate(np.asarray(m >= constants.region), axis=0)
    if not inside.any():
        raise Undecided(
            CLIMBS,
            "after rounding, m(p) < log(2(T−1)A) at every start, where the bounds are not proven",
            Form.EFFECTIVE,
        )
    m = np.where(inside, m, constants.needed)
    sizes = constants.omega(run.at).reshape(inside.shape)
    scale = run.at.log_scale.reshape(inside.shape)
    omega = np.exp(np.minimum(run.log_step + scale, 700.0)) * sizes
    lag = m + constants.spread + np.log1p(constants.odds_bound(m))
    yield from run.claims(geometry.margin * omega * constants.share(m), omega * lag, inside)
