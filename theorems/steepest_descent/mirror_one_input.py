"""For one input and any start, mirror descent with the potential ‖p‖_q^q/q turns to the largest margin in ‖·‖_q.

Main result: at every iterate, a bound of the distance between the direction of p and that of ATT-SVM's solution in
‖·‖_q, for plain and for normalized steps.

References: derived here; Sun, Gatmiry, Ahn, Azizan, *A Unified Approach to Controlling Implicit Regularization via
Mirror Descent*, JMLR 2023 (linear data); Julistiono, Ataee Tarzanagh, Azizan, *Optimizing Attention with Mirror
Descent*, 2024 (attention, from a cone).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from generators.case import Case
from theorems.bounded import exact
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import Geometry, certify_margin
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.mirror_run import MIRROR_CLAIMS, MIRROR_PREMISES, first_length, follow_mirrored
from theorems.steepest_descent.steepest_one_input import ASSUMPTIONS, affordable_steps, one_input_cases

POWERS = (1.25, 1.5, 2.0, 3.0, 4.0)
SHARES = (0.02, 0.2, 1.0)
"""The choices of the length ‖z(1) − z(0)‖_* of the first step of the dual point z, in units of ‖z(0)‖_*."""


@statement(
    "mirror-one-input",
    "Mirror descent in ℓq, one input",
    source="own",
    claims=(NORM_MARGIN, *MIRROR_PREMISES, *MIRROR_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=one_input_cases,
    kernel=SATURATED,
    needs={"separable": "there is a largest margin, and it is positive, only if ATT-SVM is feasible"},
)
def mirror_one_input(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let n = 1, Assumptions A and B hold and ATT-SVM be feasible; let ψ = ‖p‖_q^q/q, 1 < q < ∞.

    Let z = ∇ψ(p), N = ‖z‖_* = ‖p‖_q^{q−1}, 1/q + 1/q' = 1 and ‖·‖_* = ‖·‖_q'. Let γ be the largest margin over ‖p‖_q =
    1 and p̄ the point that attains it. From any p(0) ≠ 0 let z(t+1) = z(t) − η_t∇L(p(t)) with any η_t > 0 (constant in
    plain steps, proportional to 1/‖∇L‖_* in normalized ones). Then at every t

        ⟨z(t), p̄⟩ ≥ ⟨z(0), p̄⟩ + γS,   S = Σσ_s,
        N(t+1) ≤ N(t) + [σ_t(m(p(t)) + log(T−1)) + B_t]/‖p(t)‖_q,

    where σ = η|ℓ'|gap s_opt(1 − s_opt), gap is the difference of the two scores, Γ is a mean of the rows (see the
    derivation), and B = (2^{2−q'}/q')(σ‖Γ‖_*)^{q'} for q ≥ 2, ((q'−1)/2)(σ‖Γ‖_*)²(N + σ‖Γ‖_*)^{q'−2} for q ≤ 2. As m ≤
    γ‖p‖_q, ⟨z, p̄⟩/N ≥ (⟨z(0), p̄⟩ + γS)/(N(0) + γS + Σ[σ log(T−1) + B]/‖p‖) → 1; and with d = 1 − ⟨z, p̄⟩/N, ‖p/‖p‖_q
    − p̄‖_q ≤ 2(1 − (1−d/2)^q)^{1/q} for q ≥ 2, 2((1 − (1−d/2)²)/(q−1))^{1/2} for q ≤
    2. Where ‖p‖ ~ log t, as for plain steps, d = O(1/log t) for q > 2, O(log log t/log t) for q = 2, O((log t)^{1−q})
    for q < 2.

    **Derivation.** −∇L = w Γ with w = |ℓ'|gap s_opt(1 − s_opt), Γ = Σω_t g_t, ω ∝ e^{−g_t·p} (steepest-one-input), so
    ⟨Γ, p̄⟩ ≥ γ and, by Gibbs' identity, ⟨Γ, p⟩ = H(ω) − log Σe^{−g·p} ≤ log(T−1) + m. ψ* = ‖z‖_*^{q'}/q' rises by at
    most its tangent, ⟨σΓ, p⟩, plus B: |a+b|^r/r − |a|^r/r − sgn(a)|a|^{r−1}b ≤ 2^{2−r}|b|^r/r for 1 < r ≤ 2; for r ≥ 2
    the second derivative in a direction b is at most (r−1)‖z‖_r^{r−2}‖b‖_r². And N^{q'}/q' is convex in N with slope
    ‖p‖_q. The last bound: u = (p/‖p‖ + p̄)/2 has ‖u‖_q ≥ ⟨z/N, u⟩ = 1 − d/2, and ‖·‖_q is uniformly convex (Clarkson, q
    ≥ 2; ‖(x+y)/2‖² + (q−1)‖(x−y)/2‖² ≤ 1 for q ≤ 2).
    """
    problem, rng = case.problem, case.rng()
    power = float(rng.choice(POWERS))
    geometry = yield from certify_margin(problem, power, under_test)
    scale = 1 / problem.key_scale
    starts = np.array([scale * rng.normal(size=problem.d), -3 * geometry.solution.p])
    if case.start is not None and np.any(case.start):
        starts = np.concatenate([starts, case.start[None]])
    starts = np.where(starts == 0, scale, starts)
    normalized, steps = bool(rng.random() < 0.5), affordable_steps(problem)
    log_step = first_length(geometry, starts, float(rng.choice(SHARES)), steps)
    run = yield from follow_mirrored(geometry, under_test, starts, steps, log_step, normalized)
    # The statement's factor w of the gradient, in the gradient's unit; for n = 1 the mean over inputs has one term.
    others, at = np.asarray(np.arange(problem.T) != problem.optimal[:, None]), run.at
    gaps: Any = exact(problem.scores.max(axis=1))[:, None] - problem.scores
    slopes: Any = at.log_slopes
    logs = (at.log_weights + (slopes + at.log_weight_of(problem.optimal))[..., None])[:, others] + np.log(gaps[others])
    size = np.logaddexp.reduce(logs, axis=-1).reshape(run.log_step.shape) - np.log(exact(float(problem.n)))
    sigma = np.exp(np.minimum(run.log_step + size, 700.0))
    outward = sigma * (geometry.margins(run.p[:-1]) + log_rows(geometry))
    yield from run.claims(sigma * geometry.margin, outward, np.ones(sigma.shape, dtype=bool))


def log_rows(geometry: Geometry) -> Numbers:
    """Return log(T − 1), the largest entropy of a distribution on the T − 1 rows."""
    return np.log(exact(float(len(geometry.rows))))
