"""Mirror descent on one input with a squared loss, which is not a decreasing function of the output.

References: derived here; :mod:`theorems.steepest_descent.mirror_one_input`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from generators.case import Case
from reference_attention.svm.norm_max_margin import norm_max_margin
from reference_attention.training.steepest_descent import mirror_descent
from theorems.bounded import exact, with_rounding
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.mirror_run import CLIMBS
from theorems.without.flow_claims import start_of
from theorems.without.signed_flow import signed_gradient
from theorems.without.theorem_2 import too_good_scores
from theorems.without.weakening import weaken

POWER, STEPS = 1.5, 200
LENGTH = 0.5
"""The length of a normalized step of the dual point z, in units of (``Problem.key_scale``)^{1−q}."""


@weaken(
    "mirror-one-input",
    without="well-behaved-loss",
    refutes="at every t, ⟨z(t), p̄⟩ ≥ ⟨z(0), p̄⟩ + γS, where S ≥ tη/max‖g‖_* for steps normalized to the length η",
    cases=too_good_scores,
)
def squared_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss not be monotone, like (1 − u)²/2, which is smallest at an output between the scores.

    Mirror descent reaches a point whose output minimises the loss, and then oscillates about this point.
    """
    problem = case.problem
    solution = under_test[norm_max_margin](problem.exact_keys, problem.optimal, POWER)
    if solution is None:
        return
    geometry, length = Geometry(problem, solution), LENGTH * problem.key_scale ** (1 - POWER)
    z = under_test[mirror_descent](
        problem,
        start_of(case)[None],
        steps=STEPS,
        log_step=math.log(length),
        norm=POWER,
        normalized=True,
        gradient=signed_gradient,
    )
    p = with_rounding(solution.p)
    along = exact(z[:, 0]) @ (p / geometry.length(p))
    least = np.arange(1.0, STEPS + 1) * (length * geometry.margin / geometry.reach)
    yield at_least(CLIMBS, Form.EFFECTIVE, along[1:] - along[0], least, points="iterate")
