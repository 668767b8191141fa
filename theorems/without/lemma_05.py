"""Lemma 5 without a single input, equal scores, a strict optimum, separation, or a decreasing loss.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy
from numpy.linalg import norm

from generators.case import Case
from generators.problems import cases
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.bounded import exact, with_rounding
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import ROUNDING
from theorems.without.slopes import RADII, descent, lasting
from theorems.without.small_cases import plain_cases, with_directions
from theorems.without.two_valued import tied_cases, tied_optimum
from theorems.without.weakening import Weakening, weaken

LOSS, STRICT, EQUAL = "well-behaved-loss", "strict-optimum", "equal-non-optimal-scores"
SEPARABLE, SINGLE = "separable", "single-input"
REFUTED = "for every π > 0 there is R_π such that ‖p‖ ≥ R_π implies ⟨∇L(p), p/‖p‖⟩ ≥ (1 + π) ⟨∇L(p), p̄_mm⟩"
SOME = "with some unit q in place of p̄_mm: " + REFUTED.replace("p̄_mm", "q")
PI = 0.5
"""Value of π in :data:`REFUTED` for which a violated claim shows that the lemma's R_π does not exist."""


def correlation(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that the inequality of :data:`REFUTED` holds for π = ½ at p = R q̄.

    q̄ = q/‖q‖ is the case's direction. The claim is violated if the inequality fails at every radius R that is tested,
    up to 10⁶.
    """
    solution = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    if isinstance(solution, Infeasible):
        return
    p, p_mm = exact(RADII[:, None] * (case.arrays["q"] / norm(case.arrays["q"]))), with_rounding(solution.p)
    towards = descent(case.problem, p.value, p / norm(p, axis=-1, keepdims=True))
    best = descent(case.problem, p.value, p_mm / norm(p_mm))
    detail = (
        f"at R = {RADII[-1]:g}, −⟨∇L, p/‖p‖⟩ = {towards.value[-1]:.6g} ‖∇L‖ and −⟨∇L, p̄_mm⟩ = {best.value[-1]:.6g}"
        f" ‖∇L‖, π = {PI:g}"
    )
    yield lasting("correlation", Form.LIMIT, (1 + PI) * best - towards, ROUNDING, detail)


def _cases(
    *, n: int = 1, d: int = 1, losses: tuple[str, ...] = ("correlation", "logistic"), keeps: tuple[str, ...]
) -> SearchStrategy[Case]:
    strategy = cases(assumptions=keeps, n=n, tokens=(2, 3), d=d, losses=losses, plain=True)
    return with_directions(strategy, "q")


LEMMA_5 = Weakening("lemma-5", correlation, REFUTED)
several_inputs = LEMMA_5.without(
    SINGLE,
    "Let there be two inputs: almost all of the gradient comes from the input whose softmax is less saturated. If p"
    " prefers a wrong token of the other input, p can be better aligned with the first input's tokens than p_mm, which"
    " must select tokens of both inputs.",
    cases=_cases(n=2, d=2, keeps=(LOSS, STRICT, EQUAL, SEPARABLE)),
)
increasing_loss = LEMMA_5.without(
    LOSS,
    "Let the loss increase: both sides of the inequality then change their sign. The risk now increases along p_mm and"
    " decreases along −p_mm.",
    cases=_cases(losses=("squared",), keeps=(STRICT, EQUAL, SEPARABLE, SINGLE)),
)
tied_scores = LEMMA_5.without(
    STRICT,
    "Let two tokens tie for the highest score, of which p_mm selects the first. At large norm in a direction that"
    " selects the second, the gradient compares the second token with a worse token. As p_mm may prefer the worse"
    " token, it need not be a direction of descent.",
    cases=with_directions(tied_cases(), "q"),
    keeps=(LOSS, SEPARABLE, SINGLE),
    fails=tied_optimum,
)
unequal_scores = LEMMA_5.without(
    EQUAL,
    "Let non-optimal scores differ: a direction may select a token of middling score. At large norm the gradient"
    " compares this token with a worse one, while the best token has no weight left: descent continues outwards in this"
    " direction, not towards p_mm.",
    cases=_cases(keeps=(LOSS, STRICT, SEPARABLE, SINGLE)),
)


@weaken("lemma-5", without=SEPARABLE, refutes=SOME, cases=plain_cases(n=(1, 1), tokens=(3, 3), d=(1, 1)))
def not_separable(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let p_mm not exist: the lemma can then only mean some unit vector q in its place, and perhaps no q will do.

    If the best key lies between the others, the risk increases outwards at large norm on every ray, so also on the ray
    of q. So ⟨∇L(p), q⟩ > 0 at p = R q, where the lemma would require ⟨∇L(p), q⟩ ≥ (1 + π) ⟨∇L(p), q⟩ for every π > 0.
    """
    if case.problem.d != 1:
        return
    up, down = (descent(case.problem, sign * RADII[:, None], np.array([sign])) for sign in (1.0, -1.0))
    # The direction q = ±1 refutes the lemma at p = R q if it is no direction of descent: then PI·(−⟨∇L, q⟩) < 0.
    best = up if up.value.max() > down.value.max() else down
    detail = f"−⟨∇L(R q), q⟩/|∇L| is at most {best.value.max():.6g} for q = 1 and for q = −1, π = {PI:g}"
    yield lasting("correlation", Form.LIMIT, PI * best, ROUNDING, detail)
