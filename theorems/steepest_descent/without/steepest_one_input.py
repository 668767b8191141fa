"""Steepest descent with a constant step length, for which sign descent can cycle for ever, or with a squared loss.

References: derived here; :mod:`theorems.steepest_descent.steepest_one_input`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from flint import arb, ctx, fmpq
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.problems import cases
from reference_attention.exact import combination, products, rational, to_float
from reference_attention.risk import scaled_gradient
from reference_attention.svm.norm_max_margin import exact_norm, norm_max_margin, rational_rows
from reference_attention.training.steepest_descent import steepest_descent
from theorems.bounded import exact
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.potential import GROWS, Potential
from theorems.steepest_descent.steepest_one_input import ASSUMPTIONS
from theorems.steepest_descent.steepest_run import SteepestRun, StepSchedule
from theorems.without.flow_claims import start_of
from theorems.without.signed_flow import signed_gradient
from theorems.without.theorem_2 import too_good_scores
from theorems.without.weakening import weaken

LENGTH = "step_norm"
"""The name of the array that holds η, which scales like a prompt."""
STEPS = 200
BITS = 256
"""The precision, in bits, with which the sign of a sum of exponentials is decided."""
CYCLE = "largest-margin-in-the-limit"


@st.composite
def _cases(draw: DrawFn) -> Case:
    """Draw a case with a power of two as η, so that iterates from small starts are floats without rounding errors."""
    strategy = cases(assumptions=ASSUMPTIONS, tokens=3, d=3, losses=("correlation",), start="anywhere", plain=True)
    case, length = draw(strategy), draw(st.sampled_from((0.25, 0.5, 1.0)))
    return case.replace(arrays=MappingProxyType({LENGTH: np.array(length)}))


def descent_signs(rows: list[list[fmpq]], p: list[fmpq]) -> list[int] | None:
    """Return the signs of the coordinates of −∇L(p), a multiple of Σ_t e^{−g_t·p} g_t; None if a sign is undecided.

    The problem has one input, and its non-optimal scores are equal.
    """
    logits = products(rows, p)
    signs = []
    with ctx.workprec(BITS):
        weights = [(arb(logits[0] - h)).exp() for h in logits]
        for j in range(len(p)):
            total = sum((weight * arb(row[j]) for weight, row in zip(weights, rows, strict=True)), arb(0))
            if not (total > 0 or total < 0):
                return None
            signs.append(1 if total > 0 else -1)
    return signs


@weaken(
    "steepest-one-input",
    without="vanishing-steps",
    refutes="sign descent with steps of any constant length has m(p(t))/‖p(t)‖_∞ → γ_∞",
    cases=_cases,
)
def constant_steps(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Take steps of constant length: they overshoot, and p follows a direction whose margin is not the largest.

    Each step changes the weights of two rows, and the next step undoes the change: the signs of the gradient alternate
    between two patterns, and p follows their mean. The claim is decided without rounding: after two steps all
    differences of logits are the same. The gap is at most D'²η/8, which tends to 0 with η; steps of η_0/√t leave no
    gap.
    """
    problem, step = case.problem, rational(float(case.arrays[LENGTH]))
    solution = under_test[norm_max_margin](problem.exact_keys, problem.optimal, math.inf)
    if solution is None:
        return
    points = under_test[steepest_descent](
        problem,
        start_of(case)[None],
        lengths=np.full(STEPS, to_float(step)),
        norm=math.inf,
        momentum=0.0,
        gradient=under_test[scaled_gradient],
    )
    rows = rational_rows(problem.exact_keys, problem.optimal)
    at = [rational(x) for x in points[-1, 0].tolist()]
    first = descent_signs(rows, at)
    second = first and descent_signs(rows, [x + step * sign for x, sign in zip(at, first, strict=True)])
    if first is None or second is None:
        return
    along = [fmpq(a + b) for a, b in zip(first, second, strict=True)]
    gains = products(rows, along)
    if len(set(gains)) > 1 or not any(along):
        return
    reached = gains[0] / exact_norm(along, math.inf)
    largest = min(products(solution.rows, solution.exact_p)) / exact_norm(solution.exact_p, math.inf)
    bound = exact_norm(combination(solution.rows, solution.exact_duals, problem.d), 1.0) / sum(
        solution.exact_duals, fmpq(0)
    )
    detail = (
        f"from p({STEPS}) on, sign(−∇L) alternates between {first} and {second}: m/‖p‖_∞ → {reached}, γ_∞ = {largest}"
    )
    yield Claim(CYCLE, Form.EXACT, to_float(reached - min(largest, bound)), 0.0, EXACT, detail)


LENGTHS = np.full(STEPS, 0.5)
"""The step lengths of sign descent, in units of 1/``Problem.key_scale``."""


@weaken(
    "steepest-one-input",
    without="well-behaved-loss",
    refutes="at every t, m(p(t)) ≥ −Φ(p(0)) + Σ_{s<t} b_s",
    cases=too_good_scores,
)
def squared_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss not be monotone, like (1 − u)²/2, which is smallest at an output between the scores.

    Sign descent reaches a point whose output minimises the loss, and then oscillates about it; the margin does not
    grow.
    """
    problem = case.problem
    solution = under_test[norm_max_margin](problem.exact_keys, problem.optimal, math.inf)
    if solution is None:
        return
    geometry, schedule = Geometry(problem, solution), StepSchedule(LENGTHS / problem.key_scale, 0.0)
    points = under_test[steepest_descent](
        problem,
        start_of(case)[None],
        lengths=schedule.lengths,
        norm=math.inf,
        momentum=0.0,
        gradient=signed_gradient,
    )
    run = SteepestRun(schedule, exact(points), np.zeros((STEPS, 1)))
    lag = exact(np.zeros((STEPS, 1)))
    claims = Potential(geometry, run, exact(np.zeros(len(geometry.rows))), lag).claims()
    yield from (claim for claim in claims if claim.name == GROWS)
