"""Lemma 4 without a decreasing loss, a strict optimum, equal scores, or separation.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy
from numpy.linalg import norm

from generators.case import Case
from generators.problems import cases
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.bounded import with_rounding
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import ROUNDING
from theorems.without.slopes import descent, lasting
from theorems.without.small_cases import plain_cases, starts, with_directions
from theorems.without.two_valued import tied_cases, tied_optimum
from theorems.without.weakening import Weakening, weaken

LOSS, STRICT, EQUAL, SEPARABLE = "well-behaved-loss", "strict-optimum", "equal-non-optimal-scores", "separable"


def descends(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim ⟨∇L(p), p_mm⟩ < 0, in units of ‖∇L(p)‖‖p_mm‖, at p = the case's start."""
    solution = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    if case.start is None or isinstance(solution, Infeasible):
        return
    p_mm = with_rounding(solution.p)
    down = descent(case.problem, case.start[None], p_mm / norm(p_mm))
    detail = f"−⟨∇L(p), p_mm⟩ = {down.value[0]:.6g} ‖∇L(p)‖‖p_mm‖"
    yield lasting("descent", Form.EFFECTIVE, down, ROUNDING, detail)


def _separable(*losses: str, keeps: tuple[str, ...]) -> SearchStrategy[Case]:
    names = losses or ("correlation", "logistic")
    return cases(assumptions=keeps, n=(1, 1), tokens=(2, 3), d=(1, 2), losses=names, start=starts, plain=True)


LEMMA_4 = Weakening("lemma-4", descends, "⟨∇L(p), p_mm⟩ < 0 for every p")
increasing_loss = LEMMA_4.without(
    LOSS,
    "Let the loss increase: moving along p_mm raises the score and thus the risk. The derivative of the risk along p_mm"
    " is ℓ' times a positive number, so that it has the sign of ℓ'.",
    cases=_separable("squared", keeps=(STRICT, EQUAL, SEPARABLE)),
)
tied_scores = LEMMA_4.without(
    STRICT,
    "Let two tokens tie for the highest score: p_mm selects the first and may rank the second below a worse token. If p"
    " gives weight to the second and to the worse token, moving along p_mm exchanges a high score for a low score.",
    cases=tied_cases(start=True),
    keeps=(LOSS, SEPARABLE),
    fails=tied_optimum,
)
unequal_scores = LEMMA_4.without(
    EQUAL,
    "Let non-optimal scores differ: p_mm separates the best token from the others, but ranks the others in any order."
    " If p gives the best token little weight, the gradient compares the other tokens, and p_mm may prefer the worse"
    " of them.",
    cases=_separable(keeps=(LOSS, STRICT, SEPARABLE)),
)


@weaken(
    "lemma-4",
    without=SEPARABLE,
    refutes="some direction q, in place of p_mm, has ⟨∇L(p), q⟩ < 0 for every p",
    cases=with_directions(plain_cases(n=(1, 1), tokens=(3, 3), d=(1, 1)), "p_1", "p_2"),
)
def not_separable(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let p_mm not exist: the lemma can then only mean that some direction descends at every p, which can fail.

    If the best key lies between the others, the risk has a minimiser. In one dimension the gradient has opposite signs
    on the two sides of the minimiser, so that no direction descends on both sides.
    """
    if case.problem.d != 1:
        return
    points = np.stack([case.arrays["p_1"], case.arrays["p_2"]])
    down = descent(case.problem, points, np.ones(1))
    best = np.maximum(np.min(down), np.min(-down))
    detail = f"−∇L/|∇L| is {down.value[0]:.6g} at p_1 and {down.value[1]:.6g} at p_2"
    yield lasting("some-direction-descends", Form.EFFECTIVE, best.reshape(1), ROUNDING, detail)
