"""Steepest descent on batches of inputs, in any norm and order, from a start of sufficient margin.

Main result: a lower bound of the margin at every step of Signum, normalised descent and Muon on W, for any sampling of
the inputs.

References: derived here; :mod:`.minibatch_momentum`, :mod:`theorems.steepest_descent.steepest_from_a_margin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.query_cases import query_cases
from generators.steepest_descent.embeddings import embedded_query_cases, or_embedded
from theorems.adaptive_methods.batches import SCHEDULE, follow_attention_batches, misplaced, schedule_tried
from theorems.adaptive_methods.inexact_steps import (
    FALLS,
    STEP_CLAIMS,
    InexactSteps,
    attention_gain,
    least_path,
    steps_until_below,
)
from theorems.adaptive_methods.minibatch_momentum import batch_steps
from theorems.bounded import exact
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.margin_points import starts_with_margin
from theorems.steepest_descent.geometry import certify_margin, norms_tried
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_from_a_margin import (
    ASSUMPTIONS,
    SteepestConstants,
    margin_cases,
    steepest_from_a_margin,
)
from theorems.steepest_descent.steepest_one_input import affordable_steps
from theorems.steepest_descent.steepest_run import RUN_PREMISES, StepSchedule

STEPS = 80
SPARE = 1.0
"""The margin that may be lost until all inputs have been in a batch.

χ, a bound that grows as margins fall, is evaluated at the start's margin less this number.
"""


class SparingConstants(SteepestConstants):
    """The constants of steepest-from-a-margin, for starts whose margin suffices even after a loss of :data:`SPARE`."""

    @cached_property
    def enough(self) -> float:
        """The sufficient start margin m_1 of steepest-from-a-margin plus :data:`SPARE`."""
        return super().enough + SPARE


def _cases() -> SearchStrategy[Case]:
    """Return a strategy for cases; in a third of them W is trained, in the others a prompt p."""
    return st.one_of(margin_cases(), margin_cases(), or_embedded(query_cases(), embedded_query_cases()))


@statement(
    "minibatch-from-a-margin",
    "Steepest descent with momentum on batches of inputs, from a start of sufficient margin",
    source="own",
    claims=(SVM_IS_OPTIMAL, NORM_MARGIN, SCHEDULE, *RUN_PREMISES, *STEP_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=SATURATED,
    needs=dict(steepest_from_a_margin.needs),
)
def minibatch_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """In the setting of steepest-from-a-margin let batches have shares c_i(t) ≥ 0 of the inputs, Σ_i c_i(t) = 1.

    That setting also has the potential Φ_c with coefficients c, the bound χ(m) that vanishes as the margin m grows, the
    largest margin γ, and D and D', the largest length of a row and the largest distance of two rows. Let L_i be the
    loss of input i, M_t = βM_{t−1} + (1−β)Σ_i c_i(t)∇L_i(p(t)) and p(t+1) = p(t) + η_tΔ_t with Δ_t = argmax ⟨−M_t, Δ⟩
    over ‖Δ‖ ≤ 1. With a_i^± = nΣ_{s≤t} β^s c_i(t−s) e^{±Dℓ_s}, ℓ_s = Σ_{t−s≤r<t} η_r, and χ = χ(m) at the least margin
    m proven so far, at every t, with b_t of either sign,

        b_t = η_t(γ − D' tanh((χ + log(max_i a_i^+/min_i a_i^−))/4)) − D'²η_t²/8,
        Φ_c(p(t+1)) ≤ Φ_c(p(t)) − b_t,    m(p(t)) ≥ m̲_t = log c_min − Φ_c(p(0)) + Σ_{s<t} b_s,    ‖p(t)‖ ≤ ‖p(0)‖ + Ση.

    As η → 0 and margins grow, the limit of the gap is at most D' tanh(χ_∞/4), where χ_∞ is the limit of χ_t in
    minibatch-momentum.

    **Derivation.** −M_t = (1−β)Σ_s β^s Σ_i c_i(t−s) n Σ_t C_it(p(t−s)) g_it, C = c_it e^{ε − g·p}, ε in one interval of
    length χ (steepest-from-a-margin). −∇Φ_c has weights proportional to c_it e^{−g_it·p(t)}; the weights of −M_t are
    proportional to these weights times e^ε and a number between a_i^− and a_i^+, so the log-ratio of the two sets of
    weights oscillates by at most χ + log(max a^+/min a^−). The proof ends as in minibatch-momentum and
    steepest-from-a-margin.

    χ is evaluated at the start's margin less 1, and the run is followed for as long as its margin cannot have fallen by
    more than 1.
    """
    problem, rng = case.problem, case.rng()
    svm = yield from certify(problem, problem.optimal, under_test)
    for norm in norms_tried(case, rng):
        geometry = yield from certify_margin(problem, norm, under_test, case.queried.keys if case.queried else None)
        constants = SparingConstants(problem, svm, geometry, float(rng.choice([1 / 4, 1 / 32])))
        steps = min(STEPS, affordable_steps(problem))
        each = np.full(problem.n, 1 / problem.n)
        batches = yield from schedule_tried(each, steps, rng, under_test)
        schedule, starts = batch_steps(geometry, rng, steps), starts_with_margin(case, constants, rng)
        run = yield from follow_attention_batches(geometry, under_test, starts, schedule, batches)
        phi: Any = np.logaddexp.reduce(constants.log_c - run.p @ geometry.rows.T, axis=-1)
        first: Any = np.min(constants.log_c) - phi[0]
        chi = constants.change(float(np.min(first.value - first.error)) - SPARE)
        if not np.isfinite(chi):
            raise Undecided(
                FALLS,
                "the start's margin does not suffice after the loss that is allowed for the first steps",
                Form.EFFECTIVE,
            )
        weights = exact(np.ones(problem.n)) / problem.n
        share = misplaced(geometry.reach, schedule, batches.shares, weights, exact(chi))
        gain = attention_gain(
            geometry, exact(schedule.lengths), geometry.margin - geometry.diameter * share, exact(1.0)
        )
        step_error = np.asarray((geometry.reach * run.step_error).value * (1 + 1e-12))
        until = steps_until_below(least_path(gain, step_error), -SPARE)
        time = StepSchedule(schedule.lengths[:until], schedule.momentum).time[:, None]
        yield from InexactSteps(
            geometry,
            run.p[: until + 1],
            phi[: until + 1],
            np.min(constants.log_c),
            gain[:until, None],
            step_error[:until],
            time,
        ).claims()
