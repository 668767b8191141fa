"""Normalized gradient descent under Assumption B: a step is a step, and each climbs along p_mm by as much as the last.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix E.1 (normalized GD); Lemma 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop
from theorems.core.claim import Claim, Form, NotANumber, Verdict, at_least
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.bounded import exact, rounded
from theorems.rounding.steps import starts_claim, steps_claim
from theorems.token_selection.global_paths.growth_bounds import reach

STEPS = 50
"""Iterations at which the claims are made."""
LENGTH = 0.5
"""Length of a step in units of 1/max|k|: some logits per run."""


def normalized_claims(
    problem: Problem, under_test: Implementation, svm: MaxMargin, starts: Float64[np.ndarray, "b d"]
) -> Iterator[Claim]:
    """p(t+1) = p(t) − s ∇L/‖∇L‖, and ⟨p(t), p_mm⟩ ≥ ⟨p(0), p_mm⟩ + s t/D, D = max‖k_i,opt − k_it‖.

    The second follows from Lemma 4 as in Theorem 2: ‖∇L‖ is at most D times −⟨∇L, p_mm⟩.
    """
    length = LENGTH / problem.key_scale
    run = under_test.normalized_gradient_descent(
        problem, starts, steps=STEPS, step=length, gradient=under_test.scaled_gradient
    )
    asked = starts_claim("normalized-run-is-the-one-asked-for", run.points, starts, STEPS)
    yield asked
    if asked.verdict is Verdict.FALSIFIED or run.stop is Stop.OVERFLOW:
        return
    if not np.isfinite(run.points).all():
        raise NotANumber("normalized-iterate-is-a-step", "an iterate of normalized gradient descent is not finite")
    at = AttentionAt(problem, run.points[:-1].reshape(-1, problem.d), under_test.textbook_eps)
    shape = run.points[:-1].shape
    gradient = at.gradient_of(under_test, "normalized-iterate-is-a-step").reshape(shape)
    yield steps_claim(
        "normalized-iterate-is-a-step",
        run.points[:-1],
        run.points[1:],
        gradient,
        at.log_scale.reshape(shape[:-1]),
        float(np.log(length)),
        normalized=True,
    )
    moved = exact(run.points) - run.points[0]
    # An iterate is rounded as it is made, and its step is off by what the gradient's direction is: |g/|g| − h/|h|| ≤
    # 2|g − h|/|g|, and 2 where nothing is known of it. So are those before it.
    off = 2 * norm(gradient.error, axis=-1) / np.maximum(norm(gradient.value, axis=-1), EPS)
    drift = EPS * np.abs(run.points[1:]) + length * np.fmin(off, 2.0)[..., None]
    climbed = moved[1:].widened(np.cumsum(drift, axis=0)) @ rounded(svm.p)
    least = exact(length) * exact(np.arange(STEPS + 1.0))[:, None] / reach(problem)
    yield at_least("normalized-run-climbs", Form.EFFECTIVE, climbed, least[1:], points="iterate")
