"""Gradient descent, p ← p − η ∇L(p), and normalized gradient descent, p ← p − η ∇L(p)/‖∇L(p)‖, with constant steps.

Both rules run :func:`reference_attention.training.descent.descend`.

Limit: p_mm. Theorems 2 and 3 prove this limit for gradient descent with η ≤ 1/L_p (L_p: the Lipschitz constant of ∇L);
``descent-from-a-margin`` proves this limit for both rules, once every optimal logit exceeds the others by a number
computed from the data.

Rate: once p = u p_mm + O(1), the distance ‖p/‖p‖ − limit‖ is O(1/‖p‖), and ‖p‖ grows like log t for gradient descent
and like t for normalized gradient descent: hence the exponent 1, in log t or in t. For normalized gradient descent a
proven bound is 1 − cos = O(log t/t), that is, an exponent of ½ up to the logarithm.

References: *Max-Margin Token Selection in Attention Mechanism*, (GD), Theorems 2 and 3, Appendix E.1; Soudry, Hoffer,
Nacson, Gunasekar, Srebro, *The Implicit Bias of Gradient Descent on Separable Data*, JMLR 2018 (1/log t, linear data).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem, log_smoothness
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import descend
from theorems.benchmark.optimisers.optimiser import Against, Theory
from theorems.benchmark.optimisers.run import Run
from theorems.core.implementation import REFERENCE, Implementation

STATEMENTS = ("descent-from-a-margin",)
PLAIN = Theory(
    2.0, "Theorems 2 and 3; descent-from-a-margin", Against.LOG, 1.0, along_gradient=True, statements=STATEMENTS
)
NORMALIZED = Theory(
    2.0,
    "descent-from-a-margin",
    exponent=1.0,
    along_gradient=True,
    proven=0.5,
    steepest=2.0,
    statements=("steepest-one-input", "steepest-from-a-margin", *STATEMENTS),
)


def run_gradient_descent(
    problems: Sequence[Problem],
    starts: Float64[np.ndarray, "b d"],
    steps: int,
    step: float | None,
    under_test: Implementation = REFERENCE,
    *,
    normalized: bool,
    record_every: int = 1,
) -> Run:
    """Run gradient descent, normalized or not; if ``step`` is None, the step size is 1/L_p of each problem."""
    descent = descend(
        np.stack([problem.keys for problem in problems]),
        np.stack([problem.scores for problem in problems]),
        problems[0].loss,
        starts,
        steps=steps,
        log_step=np.array([log_step(problem, step, under_test) for problem in problems]),
        normalized=normalized,
        gradient=under_test[scaled_gradient],
        record_every=record_every,
    )
    return Run(descent.points, descent.iterations, descent.representable)


def log_step(problem: Problem, step: float | None, under_test: Implementation) -> float:
    """Return log η for the step size η = ``step`` on this problem; −log L_p if ``step`` is None."""
    if step is not None:
        return math.log(step)
    smoothness = under_test[log_smoothness](problem)
    # If L_p = 0, ∇L = 0 everywhere, and any step size works.
    return -smoothness if smoothness > -math.inf else 0.0
