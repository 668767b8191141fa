"""Where every optimal token leads by a margin, Adam without ε keeps it and turns to the largest ℓ∞ margin of attention.

Main result: for any number of inputs, any scores and any loss of Assumption A, the margin at every step.

References: derived here; :mod:`theorems.steepest_descent.steepest_from_a_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from generators.case import Case
from theorems.adaptive_methods.adam_bounds import ADAM_PREMISES, DIRECTION
from theorems.adaptive_methods.adam_max_margin import adam_steps
from theorems.adaptive_methods.adam_on_attention import follow_attention, known_changes
from theorems.adaptive_methods.inexact_steps import FALLS, STEP_CLAIMS
from theorems.bounded import exact
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.margin_points import starts_with_margin
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.followed import RUN_IS_ASKED_FOR
from theorems.steepest_descent.geometry import Geometry, certify_margin
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_from_a_margin import (
    ASSUMPTIONS,
    SteepestConstants,
    margin_cases,
    steepest_from_a_margin,
)
from theorems.steepest_descent.steepest_one_input import affordable_steps

STEPS = 100


@dataclass(frozen=True, eq=False)
class WideGeometry(Geometry):
    """The rows with 2D as a bound of D', by which starts get a margin where χ is small beside γ/D, not only γ/D'."""

    @cached_property
    def diameter(self) -> Numbers:
        """The bound 2D."""
        return 2 * self.reach


@statement(
    "adam-from-a-margin",
    "Adam without ε on attention, from a start of sufficient margin",
    source="own",
    claims=(SVM_IS_OPTIMAL, NORM_MARGIN, RUN_IS_ASKED_FOR, *ADAM_PREMISES, DIRECTION, *STEP_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=margin_cases,
    kernel=SATURATED,
    needs=dict(steepest_from_a_margin.needs),
)
def adam_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and ATT-SVM feasible; the notation is that of steepest-from-a-margin.

    In ‖·‖_∞ let m̲_0 = log c_min − Φ_c(p(0)), m̲_{t+1} = m̲_t + b_t, χ_{t,s} = χ(min_{t−s≤r≤t} m̲_r), and A_t, a, b,
    c, ρ, τ, σ, κ_t those of adam-max-margin but with e^{Dℓ_s + χ_{t,s}} − 1 for s ≥ 1, and 0 for s = 0, in τ and σ. As
    long as all χ are finite, p(t+1) = p(t) − η_t A_t has

        Φ_c(p(t+1)) ≤ Φ_c(p(t)) − b_t,    b_t = η_t(κ_t − D'ρ_t tanh(χ_{t,0}/4)) − D'²ρ_t²η_t²/8,
        m(p(t)) ≥ m̲_t,    ‖p(t)‖_∞ ≤ ‖p(0)‖_∞ + Σηρ.

    If b_t ≥ 0 from the start, as for η up to about γ(1−β2)/D² and margins a few units above those of
    steepest-from-a-margin, χ vanishes geometrically, and for β1 = β2 and η_0/√t γ − m/‖p‖_∞ = O(log t/√t): Adam goes to
    the ATT-SVM of ‖·‖_∞.

    **Derivation.** −∇L = ΣCg with C = c_it e^{ε − g·p}, ε in one interval of length χ(m) for all points of margin m
    and more (steepest-from-a-margin): from p(t−s) to p(t), log C changes by at most Dℓ_s + χ_{t,s}, and not at all for
    s = 0. So the derivation of adam-max-margin holds with Z = ΣC for G: ⟨∇L, A_t⟩ ≥ κ_tZ. Weights C/Z and those of
    −∇Φ_c are within tanh(χ/4) in total variation, and −A·g ranges over ρD' at most: ⟨−∇Φ_c, −A_t⟩ ≥ κ_t − D'ρ_t
    tanh(χ/4). The second derivative is at most D'²ρ²/4, and m ≥ log c_min − Φ_c.

    χ is evaluated at the margin known at the last power of two before an iterate.
    """
    problem, rng = case.problem, case.rng()
    svm = yield from certify(problem, problem.optimal, under_test)
    geometry = yield from certify_margin(problem, math.inf, under_test)
    bounds = adam_steps(geometry, rng, min(STEPS, affordable_steps(problem)))
    room = (1 - bounds.betas.second) * float(rng.choice([1 / 16, 1 / 128]))
    constants = SteepestConstants(problem, svm, WideGeometry(problem, geometry.solution), room)
    starts = starts_with_margin(case, constants, rng)
    run = yield from follow_attention(geometry, bounds, under_test, starts, constants.log_c)
    changes = known_changes(run, constants.change)
    if changes is None:
        raise Undecided(FALLS, "the first step may lose margin, and nothing is known beyond it", Form.EFFECTIVE)
    first, chi = changes
    yield from run.claims(first, np.tanh(exact(chi) / 4))
