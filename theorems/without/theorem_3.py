"""Theorem 3 without local optimality, a start in the cone or the bound on the step size, or with a squared loss.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 2, Theorem 3, Definition 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from generators.case import Case
from generators.finding import Finding
from generators.margin_assumptions import in_cone
from generators.numbers import integers
from generators.problems import cases
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.token_selection.local_paths.invariant_cone import with_cone
from theorems.without.flow_claims import CLEAR, start_of, turns_to_chosen_tokens, walk
from theorems.without.large_steps import claims_after_large_steps, descend_until_short_steps
from theorems.without.signed_flow import flow_diverges
from theorems.without.weakening import Weakening, weaken


def wrong_end(case: Case) -> float:
    """Return how far, beyond :data:`CLEAR`, a short run of normalized descent ends on the wrong side of a chosen token.

    The distance is minus the smallest margin (k_iα − k_it)·p/‖p‖ of the chosen tokens, divided by about the largest
    |entry| of the keys; if the result is positive, another token is preferred.
    """
    return -walk(case).smallest_margin(case.chosen_tokens) / case.problem.key_scale - CLEAR


@st.composite
def on_the_ray(
    draw: DrawFn, base: SearchStrategy[Case], *, distances: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
) -> Case:
    """Draw a case with separable chosen tokens α and the start c p_mm(α), up to rounding, with c in ``distances``."""
    case = draw(base)
    solution = max_margin(case.problem.keys, case.chosen_tokens)
    assume(isinstance(solution, MaxMargin))
    assert isinstance(solution, MaxMargin)
    size = draw(st.sampled_from(distances))
    cone = {"cone_mu": np.array(0.5), "cone_radius": np.array(size * solution.norm * (1 - 2.0**-20))}
    return case.replace(start=size * solution.p, arrays=MappingProxyType(cone))


def distance_in_a_cone(case: Case) -> float:
    """Return the value of :func:`wrong_end` if the case's cone is proper (:func:`proper_cone`), and −1 otherwise."""
    return wrong_end(case) if proper_cone(case) > 0 else -1.0


not_locally_optimal = Weakening(
    "theorem-3", turns_to_chosen_tokens, "from every p(0) in C_{μ,R}(p_mm(α)), p(t)/‖p(t)‖ → p̄_mm(α), for some μ and R"
).without(
    "locally-optimal",
    "Let an SVM-neighbour score higher than α: descent turns to this better token. The risk increases along the ray of"
    " p_mm(α) at every norm, so the theorem fails for every R and μ.",
    cases=on_the_ray(cases(assumptions=("well-behaved-loss",), alpha="any", n=1, tokens=(2, 3), d=(1, 2), plain=True)),
    violation=distance_in_a_cone,
)


def behind(case: Case) -> Finding:
    """Check that p(0)·p_mm ≥ 0: p(0) is in the half-space C_{1,0}(p_mm), the paper's widest cone, and not behind it."""
    if not np.any(start_of(case)):
        return Finding(None, "p(0) = 0 has no direction")
    widest = {"cone_mu": np.array(1.0), "cone_radius": np.array(0.0)}
    return in_cone(case.replace(start=start_of(case), arrays=MappingProxyType(widest)))


outside_the_cone = Weakening(
    "theorem-3", turns_to_chosen_tokens, "from every p(0), p(t)/‖p(t)‖ → p̄_mm(α) if α is locally optimal"
).without(
    "in-cone",
    "Let the start lie outside the cone of α: several selections can be locally optimal, and each attracts the starts"
    " around its own direction, so that this start may lead to another selection.",
    cases=cases(
        assumptions=("well-behaved-loss", "separable", "locally-optimal"),
        n=1,
        tokens=(3, 4),
        d=(1, 2),
        start="anywhere",
        plain=True,
    ),
    fails=behind,
    violation=wrong_end,
)


@st.composite
def _large_step_cases(draw: DrawFn) -> Case:
    """Draw a start in the cone that the theorem allows for η = 1/L_p, and a large step size η.

    The first step is at least as long as the cone's radius. L_p is the smoothness constant of the risk.
    """
    keys, scores = np.zeros((2, 2, 2)), np.zeros((2, 2))
    keys[:, 1] = draw(integers((2, 2), -2, 2))
    scores[:, 0] = draw(integers((2,), 1, 2))
    alpha = np.zeros(2, dtype=np.int64)
    solution = max_margin(keys, alpha)
    assume(isinstance(solution, MaxMargin))
    assert isinstance(solution, MaxMargin)
    case = with_cone(Case(Problem(keys, scores, loss_named("correlation")), alpha=alpha))
    assume("cone_mu" in case.arrays)
    radius = math.ceil(float(case.arrays["cone_radius"]))
    assume(radius < MOST)
    # Start at an integer multiple of p_mm whose norm is at least the cone's radius.
    start = math.ceil(radius / solution.norm) * solution.p
    pull = scaled_gradient(case.problem.keys, case.problem.scores, case.problem.loss, start)
    log_pull = float(pull.log_scale) + math.log(max(float(np.linalg.norm(pull.direction)), 1e-300))
    steps = draw(st.sampled_from((1.0, 4.0, 32.0)))
    eta = 10.0 ** math.ceil((math.log(steps * radius) - log_pull) / math.log(10))
    mu = 2.0 ** math.floor(math.log2(float(case.arrays["cone_mu"])))
    arrays = {"cone_mu": np.array(mu), "cone_radius": np.array(float(radius)), "eta": np.array(eta)}
    return case.replace(start=start, arrays=MappingProxyType(arrays))


MOST = 200.0
"""Largest radius of a cone that is drawn, so that the numbers of the case stay readable."""


def _within_the_cone(case: Case) -> bool:
    """Check that the case's cone lies within the cone of starts that the theorem allows for η = 1/L_p.

    L_p is the smoothness constant of the risk.
    """
    plain = with_cone(case.replace(arrays=MappingProxyType({}))).arrays
    if "cone_mu" not in plain or "cone_mu" not in case.arrays:
        return False
    mu, radius = float(case.arrays["cone_mu"]), float(case.arrays["cone_radius"])
    return 0 < mu <= float(plain["cone_mu"]) and radius >= float(plain["cone_radius"])


def _distance_after_descent(case: Case) -> float:
    """Return how far, beyond :data:`CLEAR`, large steps of descent end on the wrong side of a chosen token."""
    if not _within_the_cone(case):
        return -1.0
    run = descend_until_short_steps(case)
    return wrong_end(case.replace(start=run.final))


@weaken(
    "theorem-3",
    without="step-size",
    refutes="gradient descent with η > 1/L_p from every p(0) in C_{μ,R} has p(t)/‖p(t)‖ → p̄_mm(α)",
    cases=_large_step_cases,
    violation=_distance_after_descent,
)
def large_step(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Take a first step much longer than p(0), so that p(1) points along −∇L(p(0)).

    This direction favours the token that is nearest to being selected, and need not select the token of another input.
    The width μ and the radius R of the cone of starts are those of the theorem for η = 1/L_p, where L_p is the
    smoothness constant of the risk. (The theorem holds for every η, with an R that grows like log η.)
    """
    if not _within_the_cone(case):
        reason = "cone_mu and cone_radius are not within the theorem's own cone for η = 1/L_p"
        raise Undecided("norm-diverges", reason, Form.LIMIT)
    yield from claims_after_large_steps(case, under_test, case.chosen_tokens)


@st.composite
def _too_good(draw: DrawFn) -> Case:
    """Draw one input with loss (1 − u)²/2; its best score is above 1 (where the loss increases), others are ≤ 0."""
    case = draw(cases(assumptions=("separable", "strict-optimum"), n=1, tokens=(2, 3), d=(1, 2), plain=True))
    problem = case.problem
    best = np.arange(problem.T) == problem.optimal[:, None]
    scores = np.where(best, float(draw(st.integers(2, 3))), float(draw(st.integers(-2, 0))))
    return case.replace(problem=Problem(problem.keys, scores, loss_named("squared")))


def proper_cone(case: Case) -> float:
    """Return 1 if the case's cone is proper, with a width 0 < μ ≤ ½ and a radius R > 0, and −1 otherwise."""
    return 1.0 if 0 < float(case.arrays["cone_mu"]) <= 0.5 and float(case.arrays["cone_radius"]) > 0 else -1.0


squared_loss = Weakening(
    "theorem-3", flow_diverges, "from every p(0) in C_{μ,R}(p_mm(α)), ‖p(t)‖ → ∞, for some μ and R"
).without(
    "well-behaved-loss",
    "Let the loss increase for large scores, like (1 − u)²/2, and let α score higher than the minimum of the loss. Then"
    " the risk increases along p_mm(α) at every large norm, for every R, and descent turns back to the mixture whose"
    " output is 1.",
    cases=on_the_ray(_too_good(), distances=(1.0, 2.0, 4.0)),
    violation=proper_cone,
)
