"""Gradient descent with step sizes that are far too large, followed until steps are as short as those of a flow."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64

from generators.case import Case
from reference_attention.training.descent import Stop, Trajectory, gradient_descent
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.without.flow_claims import direction_claims, start_of

SETTLED = 1e-3
"""If the length of steps, times about the largest |entry| of the keys, is below this number, gradient descent follows
the gradient flow closely."""
MOST_STEPS = 4096


def claims_after_large_steps(case: Case, under_test: Implementation, alpha: Int64[np.ndarray, "n"]) -> Iterator[Claim]:
    """Yield the claims about the gradient flow that begins where large steps of descent have become short.

    The descent has the case's step size ``eta``.
    """
    run = descend_until_short_steps(case)
    step = last_step(case, run)
    if run.stop is Stop.OVERFLOW or not step < SETTLED:
        detail = f"after {run.iterations[-1]} steps the next step is still {step:.3g} logits long ({run.stop.value})"
        raise Undecided("norm-diverges", detail, Form.LIMIT)
    yield from direction_claims(case.problem, run.final, under_test, alpha)


def descend_until_short_steps(case: Case) -> Trajectory:
    """Take at most :data:`MOST_STEPS` steps of size ``eta`` until steps are shorter than :data:`SETTLED`."""
    steps, log_step = 16, math.log(float(case.arrays["eta"]))
    while True:
        run = gradient_descent(case.problem, start_of(case), steps=steps, log_step=log_step, record_every=steps)
        if steps >= MOST_STEPS or last_step(case, run) < SETTLED or run.stop is Stop.OVERFLOW:
            return run
        steps *= 4


def last_step(case: Case, run: Trajectory) -> float:
    """Return the length of the step that would follow the run's last one, times about the largest |key entry|."""
    log_step = float(run.log_gradient_norm[-1]) + math.log(float(case.arrays["eta"]))
    return case.problem.key_scale * math.exp(min(log_step, 690.0))
