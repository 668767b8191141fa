"""The rate at which P_FW, the part of W in F, converges under gradient descent on next tokens.

Main result: ‖P_F W_k − W⋆‖ = O(log²k/k), and a first-order formula for P_F W_k − W⋆.

Reference: derived here; arXiv 2402.18551, Lemma 4 and Theorem 2 state the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from generators.next_token.assumptions import SHORT_STEPS
from generators.next_token.cases import next_token_cases
from generators.next_tokens import NextTokens
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.next_token.descent_run import RUN_PREMISES, DescentRun, chosen_step, follow, starts
from theorems.next_token.limits import LIMIT_PREMISES, certify_limits
from theorems.rounding.attention_at import Numbers

CONTRACTS = sharper("part-in-f-contracts", when="where F ≠ 0")
FOLLOWS = sharper(
    "part-in-f-follows-the-tokens-ruled-out", when="where F ≠ 0, training rules out some alternative, and u is small"
)
FAR = 30.0
"""The largest exponent D_F‖u‖ or D_c‖u‖ at which ‖u − v‖ is bounded (the statement's second inequality).

Beyond it the bound may be e^30 times ‖u − v‖, and says nothing."""


@statement(
    "ntp-finite-part",
    "The finite part of next-token training, at every step",
    source="own",
    claims=(*LIMIT_PREMISES, *RUN_PREMISES, CONTRACTS, FOLLOWS),
    assumptions=(SHORT_STEPS,),
    about=NextTokens,
    cases=next_token_cases,
    kernel=SVM_ONLY,
)
def ntp_finite_part(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """With the notation of ntp-extended-supports let u = P_F θ − θ_⋆, t = D_F‖u‖ and η ≤ 1/β.

    Let H = ∇²L_fin(θ_⋆) on F have eigenvalues from λ_H to λ_max; let D_c = max ‖P_F(a_jv − a_jz)‖, v ∉ Ŝ_j, z ∈ Ŝ_j.
    At every step of gradient descent

        ‖u_{k+1}‖ ≤ (1 − ηλ_H(1 − e^{−t_k})/t_k)‖u_k‖ + ηD_c(L(θ_k) − L_⋆),

    so that ‖u_k‖ = O(log²k/k) by (G1) of ntp-descent. And u approaches v = −H⁻¹Σc_jv f_jv, which tends to 0 like 1/k,
    with c_jv = π_j w⋆_jv e^{−g_jv·θ_⊥} and f_jv = P_F(a_jv − Σ_z q⋆_jz a_jz):

        ‖u_{k+1} − v_{k+1}‖ ≤ (1 − ηλ_H)‖u_k − v_k‖ + ‖v_{k+1} − v_k‖ + ηR_k,
        R = λ_max((e^t − 1)/t − 1)‖u‖ + Σc_jv[(e^{D_c‖u‖} − 1 + x_j)D_c + e^{D_c‖u‖}D_F tanh(t/4)],

    where R is of second order in u and c. (If ηk c_jv → λ_jv, then ηk u_k → −H⁻¹Σλf; this is not claimed.)

    **First.** P_F∇L = H̃u + Σπ_j s_jv P_F(a_jv − Σ_z q_jz a_jz), v ∉ Ŝ_j, q the softmax on Ŝ_j, H̃ = ∫∇²L_fin(θ_⋆ +
    τu)dτ ⪰ H(1 − e^{−t})/t by self-concordance (|φ'''| ≤ D_F‖u‖φ'' on the segment), 0 ⪯ I − ηH̃, and Σπ_j s_jv = Ω ≤ L
    − L_⋆. **Second.** u⁺ − v⁺ = (I − ηH)(u − v) − η(P_F∇L − Hu − Σcf) + v − v⁺, since Hv = −Σcf. H̃ lies between H(1 −
    e^{−t})/t and H(e^t − 1)/t. π_j s_jv = c_jv e^δ/(1 + x_j) with |δ| ≤ D_c‖u‖, ‖f‖ ≤ D_c, and Σ_z(q_jz − q⋆_jz)P_F
    a_jz is at most D_F tanh(t/4) long: if the log-ratio of two distributions oscillates by t, at most tanh(t/4) of the
    mass differs.
    """
    rng = case.rng()
    limits = yield from certify_limits(case.problem, under_test)
    x, y = starts(limits, case.start, rng)
    run = yield from follow(limits, under_test, x, y, chosen_step(case.step, limits, rng))
    if limits.split.dimension == 0:
        return
    yield contracts_claim(run)
    if limits.apart:
        yield from follows_claim(run)


def contracts_claim(run: DescentRun) -> Claim:
    """Claim the statement's first inequality, the contraction of u, with the step's error added to the bound."""
    limits, size, step = run.limits, run.at.inside_norm, exact(run.step)
    bound = size[:-1] - step * limits.curvature * share_kept(limits.span * size[:-1]) / limits.span
    bound = np.maximum(bound, 0.0) + step * limits.reach * run.at.excess[:-1] + run.step_error
    return at_least(CONTRACTS, Form.EFFECTIVE, bound, size[1:], points="step")


def share_kept(t: Any) -> Numbers:
    """Return 1 − e^{−t}."""
    return -np.expm1(-t)


def follows_claim(run: DescentRun) -> Iterator[Claim]:
    """Yield the claim of the statement's second inequality, on u − v, where its exponents are below :data:`FAR`."""
    limits, at, step = run.limits, run.at, exact(run.step)
    masked = limits.others
    logs: Any = np.log(limits.weights)[:, None] + limits.log_outer - np.where(masked, at.margins, 0.0)
    cost: Any = np.exp(np.where(masked, logs, -np.inf))
    pull = np.einsum("...jv,jvr->...r", cost, limits.inside)
    target: Any = -np.einsum("...r,sr->...s", pull, limits.inverse_curvature)
    apart: Any = exact(at.x) - target
    gap = np.linalg.norm(apart, axis=-1)
    shift = np.linalg.norm(np.diff(target, axis=0), axis=-1)
    size = at.inside_norm
    t = np.minimum(limits.span * size, FAR)
    # As t = D_F‖u‖, ((e^t − 1)/t − 1)‖u‖ in R equals (e^t − 1 − t)/D_F.
    bent: Any = limits.top_curvature * (np.expm1(t) - t) / limits.span
    reached = np.minimum(limits.reach * size, FAR)
    lost = np.exp(np.minimum(at.log_lost, FAR))
    each = (np.expm1(reached)[..., None] + lost) * limits.reach
    each = each + (np.exp(reached) * limits.span * np.tanh(t / 4))[..., None]
    second_order: Any = bent + np.sum(np.sum(cost, axis=-1) * each, axis=-1)
    contraction = np.maximum(1 - step * limits.curvature, 0.0)
    bound = contraction * gap[:-1] + shift + step * second_order[:-1] + run.step_error
    near = (value_of(limits.span * size) < FAR) & (value_of(limits.reach * size) < FAR)
    near &= (value_of(at.log_lost) < FAR).all(axis=-1)
    if near[:-1].any():
        yield at_least(FOLLOWS, Form.SHARP, bound[near[:-1]], gap[1:][near[:-1]], points="step")
