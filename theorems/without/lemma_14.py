"""Lemma 14 with a loss that has ℓ' = 0 at a point, or with a head for which mixing lowers the risk.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D.2, Lemma 14; FINDINGS.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.score_assumptions import optimal_sets
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.without.heads import headed_cases, headed_risk
from theorems.without.noisy_excess import EXCESS_RISK, Excess
from theorems.without.risks import difference, linear_risk
from theorems.without.slopes import RADII, lasting
from theorems.without.small_cases import flat_pairs, with_directions
from theorems.without.weakening import weaken

REFUTED = "for every Δ > 0 there is ρ < 0 such that log q_max(p) ≤ min((1+Δ) log q_max(p'), ρ) implies L(p) < L(p')"
DELTA = 0.5
"""Value of Δ in :data:`REFUTED` for which a violated claim shows that the lemma's ρ does not exist."""


def mixing_hurts(case: Case, risk: Excess, other: Excess) -> Iterator[Claim]:
    """Yield the claim L(p) < L(p') if q_max(p) and q_max(p') satisfy the lemma's premise, which :data:`REFUTED` states.

    The prompts are p = R q and p' = R q_other, with the case's directions q and q_other and radii R so large that log
    q_max(p) falls below every ρ. For q_max see :func:`worst_mixing`. The risks must differ by more than rounding
    errors.
    """
    log_q, log_other = (worst_mixing(case, RADII[:, None] * case.arrays[name]) for name in ("q", "q_other"))
    if not (log_q <= (1 + DELTA) * log_other).all() or not (np.diff(log_q) < 0).all():
        return
    at_q, at_other = log_q.value[-1], log_other.value[-1]
    detail = (
        f"at R = {RADII[-1]:g}, log q_max(p) = {at_q:.6g} and log q_max(p') = {at_other:.6g}, Δ = {DELTA:g};"
        " p has the larger risk"
    )
    yield lasting("mixing-hurts", Form.LIMIT, difference(other, risk), EXCESS_RISK, detail)


def worst_mixing(case: Case, points: Float64[np.ndarray, "m d"]) -> Numbers:
    """Return log q_max(p) at each point: the largest weight outside the optimal set O_i, over the inputs i."""
    hidden = np.where(optimal_sets(case), -np.inf, AttentionAt(case.problem, points).log_weights)
    return np.max(np.logaddexp.reduce(hidden, axis=-1), axis=-1)


@weaken("lemma-14", without="well-behaved-loss", refutes=REFUTED, cases=flat_pairs)
def flat_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let ℓ' vanish at a point: it does not suffice that ℓ decreases strictly; ℓ' < 0 is needed.

    If ℓ' = 0 at the best score of one input, as for ℓ(u) = −u³ at 0, weight q_1 on this input's other tokens costs only
    q_1³, while weight q_2 on non-optimal tokens of another input costs q_2. So the point with the larger q_max, the
    larger of the two weights, can have the smaller risk.
    """
    risk = linear_risk(case.problem, under_test)
    yield from mixing_hurts(
        case, risk(RADII[:, None] * case.arrays["q"]), risk(RADII[:, None] * case.arrays["q_other"])
    )


@weaken("lemma-14", without="mixing-hurts", refutes=REFUTED, cases=with_directions(headed_cases(), "q", "q_other"))
def helpful_mixing(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the head ψ be larger at a token outside O_i, the input's optimal set: selecting it lowers the risk.

    But q_max, the weight outside O_i, is then larger. The lemma's hypothesis, that Y ψ decreases linearly with this
    weight, excludes such sets O_i.
    """
    risk, other = (headed_risk(case, RADII[:, None] * case.arrays[name]) for name in ("q", "q_other"))
    yield from mixing_hurts(case, risk, other)
