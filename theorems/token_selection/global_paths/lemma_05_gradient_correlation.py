"""Lemma 5: for one input, no direction descends much faster than the max-margin direction.

Main result: the gradient correlation condition with an explicit π(p) that vanishes as ‖p‖ grows.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.core.att_svm import solved
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import calls
from theorems.core.points import climb, probe_points
from theorems.core.statement import statement
from theorems.core.survival import ROOM
from theorems.rounding.evaluation import GRADIENT, Evaluation, scaled_gradient_of
from theorems.rounding.forward_error import dot_error


@statement(
    "lemma-5",
    "Gradient correlation for a single input",
    source="Appendix B.1, Lemma 5",
    assumptions=("well-behaved-loss", "strict-optimum", "equal-non-optimal-scores", "separable", "single-input"),
    kernel=calls("its gradient at every point, n = 1", turn=2),
    survives={
        "sparsemax": ROOM,
        "temperature": "a colder softmax obeys the same bound, with a smaller R_π",
        "scaled-by-root-d": ROOM,
        "gradient-too-long": "only the direction of the gradient enters",
        "wrong-loss-derivative": "with one input ℓ' is a positive factor, and only the direction enters",
        "loss-derivative-dropped": "with one input ℓ' is a positive factor, and only the direction enters",
        "svm-scaled": "a longer p_mm makes R_π larger, where the bound holds as well",
        "svm-of-float32-keys": ROOM,
    },
)
def lemma_5(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let n = 1, Assumptions A and B hold and GMM exist. For every π > 0 there is R_π such that ‖p‖ ≥ R_π
    implies

        ⟨∇L(p), p/‖p‖⟩ ≥ (1 + π) ⟨∇L(p), p_mm/‖p_mm‖⟩.

    Effective form: R_π = ‖p_mm‖ log(T−1)/π, that is, at every p ≠ 0 with π(p) = ‖p_mm‖ log(T−1)/‖p‖.

    Derivation. With two score values, −⟨∇L(p), q⟩ = |ℓ'| gap s_opt(1 − s_opt) M(q) for every q, where M(q)
    is the average of the margins (k_opt − k_t)·q over t ≠ opt with weights w_t ∝ e^{−m_t}, m_t = (k_opt −
    k_t)·p. Gibbs' identity Σ w_t m_t = H(w) − log Σ e^{−m_t}, with H(w) ≤ log(T−1) and Σ e^{−m_t} ≥ e^{−min
    m}, gives M(p/‖p‖) ≤ (min m + log(T−1))/‖p‖; no unit vector has a larger minimal margin than Θ =
    1/‖p_mm‖, so that is ≤ Θ + log(T−1)/‖p‖ = (1 + π(p)) Θ. And M(p_mm/‖p_mm‖) ≥ Θ because each margin of
    p_mm is at least 1. With T = 2, π = 0. Both sides are divided by e^{log_scale} of the gradient.
    """
    problem = case.problem
    p_mm = solved(problem, problem.optimal, under_test, "correlation", Form.EFFECTIVE).p

    def both_sides(points: Float64[np.ndarray, "m d"]) -> tuple[Float64[np.ndarray, "m"], ...]:
        return _sides(problem, points, p_mm, under_test)

    def violation(points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        left, right, rounding = both_sides(points)
        return np.asarray((right - left - rounding) / np.maximum(np.abs(right), rounding))

    rng = case.rng()
    points = probe_points(rng, problem, p_mm)
    points = climb(rng, points[np.any(points != 0, axis=1)], violation)
    left, right, rounding = both_sides(points)
    scale = np.maximum(np.abs(right), rounding)
    yield at_least("correlation", Form.EFFECTIVE, left, right, rounding=rounding, scale=scale, why=GRADIENT)


def _sides(
    problem: Problem,
    points: Float64[np.ndarray, "m d"],
    p_mm: Float64[np.ndarray, "d"],
    under_test: Implementation,
) -> tuple[Float64[np.ndarray, "m"], ...]:
    """⟨∇L, p/‖p‖⟩, (1 + π)⟨∇L, p̄_mm⟩ and rounding, (m,) each, in units of e^{log_scale} of the gradient."""
    own = Evaluation(problem, points, under_test.textbook_eps).gradient
    direction = scaled_gradient_of(under_test, problem, points, own.log_scale)
    norms = np.sqrt(np.sum(points * points, axis=-1))
    size = math.hypot(*p_mm.tolist())
    along = points / norms[:, None]
    best = np.broadcast_to(p_mm / size, points.shape)
    factor = 1 + size * math.log(problem.T - 1) / norms
    left = np.sum(direction * along, axis=-1)
    right = factor * np.sum(direction * best, axis=-1)
    # Units p/‖p‖ carry (d + 4)/2 roundings more than a number rounded once; the factor carries a few.
    extra = (
        EPS * (problem.d + 4) * np.sum(np.abs(direction) * (np.abs(along) + factor[:, None] * np.abs(best)), axis=-1)
    )
    rounding = dot_error(direction, along, own.error) + factor * dot_error(direction, best, own.error)
    return left, right, rounding + extra + 8 * EPS * np.abs(right)
