"""Statements on Adam, each without an assumption: entries of several moduli, a squared loss.

References: derived here; :mod:`theorems.adaptive_methods.incremental_adam_equal_moduli`,
:mod:`theorems.adaptive_methods.adam_one_input`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.adaptive_methods import EQUAL_MODULI, equal_modulus_cases
from generators.case import Case
from generators.labelled_features import LabelledFeatures
from reference_attention.svm.norm_max_margin import norm_max_margin
from reference_attention.training.iteration import batch_field
from theorems.adaptive_methods.adam import Betas, adam_descent
from theorems.adaptive_methods.adam_bounds import AdamBounds
from theorems.adaptive_methods.incremental_adam_equal_moduli import incremental_adam_equal_moduli
from theorems.adaptive_methods.inexact_steps import GROWS, InexactSteps, attention_gain
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.steepest_run import StepSchedule
from theorems.without.flow_claims import start_of
from theorems.without.signed_flow import signed_gradient
from theorems.without.theorem_2 import too_good_scores
from theorems.without.weakening import Weakening, weaken


@st.composite
def unequal_modulus_cases(draw: DrawFn) -> LabelledFeatures:
    """Draw separable binary data in which one coordinate is larger than the others in all samples."""
    case = draw(equal_modulus_cases().filter(lambda candidate: candidate.features.shape[1] > 1))
    factor = draw(st.sampled_from((2.0, 4.0, 10.0)))
    return case.replace(features=case.features * np.where(np.arange(case.features.shape[1]) == 0, factor, 1.0))


unequal_moduli = Weakening.of_claims(
    incremental_adam_equal_moduli,
    "steps are multiples of Σω_i x_i, and every step turns to the ℓ2 solution as much as the inequality states",
).without(
    EQUAL_MODULI.id,
    "Let one coordinate be larger than the others: √V is larger there by the same factor, so Adam's steps are those for"
    " data in which all coordinates have one size. Adam does not depend on the units of coordinates, but the solution"
    " of"
    " least ‖w‖_2 does.",
    cases=unequal_modulus_cases,
)


STEPS = 300
LENGTH = 0.2
"""The length of a step, in units of γ/D², with γ the largest margin and D the largest ‖·‖_1 of a row."""


@weaken(
    "adam-one-input",
    without="well-behaved-loss",
    refutes="at every t, m(p(t)) ≥ −Φ(p(0)) + Σ_{s<t} b_s",
    cases=too_good_scores,
)
def squared_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss not be monotone, like (1 − u)²/2, which is smallest at an output between the scores.

    Adam reaches a point whose output minimises the loss, and then oscillates about it; the margin does not grow.
    """
    problem = case.problem
    solution = under_test[norm_max_margin](problem.exact_keys, problem.optimal, math.inf)
    if solution is None:
        return
    geometry = Geometry(problem, solution)
    D, apart = geometry.reach, geometry.diameter
    schedule = StepSchedule(np.full(STEPS, LENGTH * float(value_of(geometry.margin)) / float(value_of(D)) ** 2), 0.0)
    bounds = AdamBounds(schedule, Betas(0.0, 0.0), D, geometry.margin, D + apart)
    start = start_of(case)[None]
    field = batch_field(problem.keys, problem.scores, problem.loss, signed_gradient, (1,))
    points = exact(under_test[adam_descent](field, start, lengths=schedule.lengths, betas=bounds.betas))
    gain = attention_gain(geometry, exact(schedule.lengths), bounds.kappa, bounds.rho)[:, None]
    phi = np.logaddexp.reduce(-points @ geometry.rows.T, axis=-1)
    steps = InexactSteps(geometry, points, phi, exact(0.0), gain, np.zeros((STEPS, 1)), bounds.time[:, None])
    yield from (claim for claim in steps.claims() if claim.name == GROWS)
