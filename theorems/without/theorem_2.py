"""Theorem 2 without a single input, equal scores, separation or the bound on the step size, or with a squared loss.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Figure 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from generators.case import Case
from generators.problems import cases
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import gradient_descent, normalized_gradient_descent
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.without.flow_claims import CLEAR, WALK, Point, direction_claims, start_of, walk
from theorems.without.large_steps import claims_after_large_steps
from theorems.without.signed_flow import flow_diverges, signed_gradient
from theorems.without.small_cases import starts
from theorems.without.weakening import Weakening, weaken

LOSS, EQUAL, SEPARABLE = "well-behaved-loss", "equal-non-optimal-scores", "separable"
DIVERGES = Weakening("theorem-2", flow_diverges, "from every p(0), ‖p(t)‖ → ∞")


def turns_to_optimal_tokens(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims that the flow from the case's start tends in direction to p̄_mm of the optimal tokens."""
    yield from direction_claims(case.problem, start_of(case), under_test, case.problem.optimal)


def _anywhere(*assumptions: str, **sizes: tuple[int, int]) -> SearchStrategy[Case]:
    """Return a strategy for small cases that satisfy ``assumptions``, have the given sizes, and start anywhere."""
    return cases(assumptions=assumptions, start="anywhere", plain=True, **sizes)  # type: ignore[arg-type]


def _wrong_turn(case: Case) -> float:
    """Return how far, beyond :data:`CLEAR`, a short normalized descent ends on the wrong side of an optimal token."""
    return -walk(case).smallest_margin(case.problem.optimal) / case.problem.key_scale - CLEAR


several_inputs = Weakening("theorem-2", turns_to_optimal_tokens, "from every p(0), p(t)/‖p(t)‖ → p̄_mm(opt)").without(
    "single-input",
    "Let there be two inputs: the one that is ahead can turn p away from the other's optimal token. The other's"
    " softmax then saturates at the wrong token, and from then on the wrong selection is locally optimal (Theorem"
    " 3). The norm diverges all the same. This is the paper's Figure 8.",
    cases=_anywhere(LOSS, EQUAL, SEPARABLE, n=(2, 3), tokens=(2, 3), d=(2, 3)),
    violation=_wrong_turn,
)
unequal_scores = Weakening(
    "theorem-2", turns_to_optimal_tokens, "for one input, p(t)/‖p(t)‖ → p̄_mm(opt) from every p(0)"
).without(
    "equal-non-optimal-scores",
    "Let a non-optimal token score higher than its neighbours: it is locally optimal. A flow that starts where this"
    " token is selected keeps selecting it (Theorem 3), because the gradient compares it only with tokens that still"
    " have weight. This is Figure 1(b).",
    cases=_anywhere(LOSS, "strict-optimum", SEPARABLE, "single-input", tokens=(3, 4), d=(1, 3)),
    keeps=(LOSS, "strict-optimum", SEPARABLE, "single-input"),
    violation=_wrong_turn,
)


RESTING = 1e-6
"""A start counts as stationary if ‖∇L‖, divided by the largest term of ∇L and by about the largest |entry| of the
keys, is at most this number."""


def _comes_back(case: Case) -> float:
    """Return by how much less than WALK/8 a run of WALK normalized steps of length ½ moves from its start.

    Return −1 for a stationary start. Lengths are in units of about 1/(largest |entry| of the keys). The result is
    positive if the run turned back.
    """
    problem, size = case.problem, case.problem.key_scale
    start = start_of(case)
    pull = scaled_gradient(problem.keys, problem.scores, problem.loss, start).direction
    if not float(np.linalg.norm(pull)) > RESTING * size:
        return -1.0
    walk = normalized_gradient_descent(problem, start, steps=WALK, step=0.5 / size, record_every=WALK).final
    return WALK / 8 - size * float(np.linalg.norm(walk - start))


not_separable = DIVERGES.without(
    "separable",
    "Let the optimal key lie among the others: no direction selects it, as every direction raises another token's logit"
    " as much. So the risk has a finite minimiser, at which descent ends. (p_mm does not exist, so the theorem's second"
    " half cannot be stated; its first half can be stated, and fails.)",
    cases=_anywhere(LOSS, EQUAL, n=(1, 2), tokens=(2, 3), d=(1, 2)),
    violation=_comes_back,
)


LARGE = (2.0, 16.0, 256.0, 2.0**20)
"""Lower bounds of η L_p for large step sizes η (L_p: the risk's smoothness constant); η is the least power of two that
satisfies the bound."""


@st.composite
def _large_steps(draw: DrawFn) -> Case:
    case = draw(_anywhere(LOSS, EQUAL, SEPARABLE, "single-input", tokens=(2, 4), d=(1, 3)))
    least = math.log(draw(st.sampled_from(LARGE))) - case.problem.log_smoothness
    return case.replace(arrays=MappingProxyType({"eta": np.array(2.0 ** math.ceil(least / math.log(2)))}))


def _distance_after_a_walk(case: Case) -> float:
    """Return how far, beyond :data:`CLEAR`, large steps end on the wrong side of an optimal token.

    The large steps are followed by normalized steps of lengths comparable with ‖p‖.
    """
    problem, log_step = case.problem, math.log(float(case.arrays["eta"]))
    p = gradient_descent(problem, start_of(case), steps=16, log_step=log_step, record_every=16).final
    for share in (0.25, 1.0, 4.0):
        step = share * max(1 / problem.key_scale, float(np.linalg.norm(p)))
        p = normalized_gradient_descent(problem, p, steps=WALK // 4, step=step, record_every=WALK).final
    return -Point(problem, p).smallest_margin(problem.optimal) / problem.key_scale - CLEAR


@weaken(
    "theorem-2",
    without="step-size",
    keeps=(LOSS, EQUAL, SEPARABLE, "single-input"),
    refutes="gradient descent with η > 1/L_p has ‖p(t)‖ → ∞ and, for one input, p(t)/‖p(t)‖ → p̄_mm",
    cases=_large_steps,
    violation=_distance_after_a_walk,
)
def large_steps(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Drop η ≤ 1/L_p, which is superfluous: the theorem holds for every constant η > 0.

    L_p is the smoothness constant of the risk.

    Norm: w(t) = ⟨p(t), p_mm⟩ increases at every p (Lemma 4) and ‖p(t+1) − p(t)‖ ≤ D (w(t+1) − w(t)) for some constant
    D. If w were bounded, p(t) would converge to a point at which w still increases, a contradiction. So ‖p(t)‖ ≥ Θ w(t)
    → ∞, where Θ = 1/‖p_mm‖.

    Direction, n = 1: in the bound of theorem-2 the step size enters only through Σ ‖Δ‖²/(2(‖p‖ + λ)), where Δ = p(t+1)
    − p(t) and λ = ‖p_mm‖ log(T−1). Steps are bounded, ‖Δ‖ ≤ η max‖∇L‖, so the sum is at most a constant times Σ (w(t+1)
    − w(t))/w(t) = O(log w(t)) = o(‖p(t)‖), and the cosine still tends to one.
    """
    yield from claims_after_large_steps(case, under_test, case.problem.optimal)


@st.composite
def too_good_scores(draw: DrawFn) -> Case:
    """Draw one input with loss (1 − u)²/2; its best score is above 1 (where the loss increases), others below 1."""
    case = draw(cases(assumptions=("separable", "strict-optimum"), n=1, tokens=2, d=(1, 2), plain=True))
    problem, low = case.problem, float(draw(st.integers(-2, 0)))
    best = np.arange(problem.T) == problem.optimal[:, None]
    scores = np.where(best, float(draw(st.integers(2, 3))), low)
    start = draw(starts(problem))
    return case.replace(problem=Problem(problem.keys, scores, loss_named("squared")), start=start)


def _turns_back(case: Case) -> float:
    """Return the norm of ∇L at the start, as :data:`RESTING` measures it, minus RESTING: positive unless stationary."""
    pull = signed_gradient(case.problem.keys, case.problem.scores, case.problem.loss, start_of(case)).direction
    return float(np.linalg.norm(pull)) / case.problem.key_scale - RESTING


squared_loss = DIVERGES.without(
    "well-behaved-loss",
    "Let the loss increase for large scores, like (1 − u)²/2, with its minimum at an output between the scores. A"
    " mixture of tokens then has the least risk; it is attained at a finite p, and descent ends there.",
    cases=too_good_scores,
    violation=_turns_back,
)
