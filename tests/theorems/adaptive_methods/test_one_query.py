"""With a single query z ≠ 0, a step of length η on W is a step of another length on the prompt p = Wz.

∇L(W) = Γzᵀ with Γ = ∇L(p). Row r has the length |Γ_r|‖z‖_2, column j the length |z_j|‖Γ‖_2, and Σ_j z_j sign z_j =
‖z‖_1. Adam's moments are M_rj = m_r z_j and V_rj = v_r z_j².
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from numpy.linalg import norm

from generators.case import Case
from generators.query_cases import query_cases
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.iteration import batch_field
from reference_attention.training.steepest_descent import orthogonal_factor
from theorems.adaptive_methods.adam import Betas, adam_descent


def gradient(problem: Problem, points: np.ndarray) -> np.ndarray:
    g = scaled_gradient(problem.keys, problem.scores, problem.loss, points)
    return np.asarray(np.exp(g.log_scale)[:, None] * g.direction)


def unit(x: np.ndarray, axis: int) -> np.ndarray:
    length = norm(x, axis=axis, keepdims=True)
    return x / np.where(length > 0, length, 1.0)


@settings(max_examples=30)
@given(query_cases(single=True))
def test_with_one_query_steps_on_weights_are_steps_on_the_prompt(case: Case) -> None:
    data, problem, rng = case.queried, case.problem, case.rng()
    assert data is not None
    z = data.queries[0]
    assume(z.any())
    prompts, lengths = Problem(data.X, problem.scores, problem.loss), np.full(12, 0.1 / problem.key_scale)
    start = rng.normal(size=(3, problem.d)) / problem.key_scale
    W = start.reshape(3, *data.shape)
    G, slope = gradient(problem, start).reshape(W.shape), gradient(prompts, W @ z)
    clear = np.abs(slope) > 1e-6 * norm(slope, axis=1, keepdims=True)
    assert np.allclose((unit(G, 2) @ z)[clear], norm(z) * np.sign(slope[clear]), rtol=1e-6)
    assert np.allclose(unit(G, 1) @ z, abs(z).sum() * unit(slope, 1), rtol=1e-6, atol=1e-6 * abs(z).sum())
    assert np.allclose(orthogonal_factor(G) @ z, norm(z) * unit(slope, 1), rtol=1e-6, atol=1e-6 * norm(z))

    field = batch_field(problem.keys, problem.scores, problem.loss, scaled_gradient, (3,))
    points = adam_descent(field, start, lengths=lengths, betas=Betas(0.9, 0.99)).reshape(-1, *W.shape)
    M, V = np.zeros_like(slope), np.zeros_like(slope)
    for t, length in enumerate(lengths):
        g = gradient(prompts, points[t] @ z)
        M, V = 0.9 * M + 0.1 * g, 0.99 * V + 0.01 * g * g
        clear &= np.abs(g) > 1e-6 * norm(g, axis=1, keepdims=True)
        step = -length * abs(z).sum() * M / np.where(clear, np.sqrt(V), 1.0)
        assert np.allclose(
            ((points[t + 1] - points[t]) @ z)[clear], step[clear], rtol=1e-5, atol=1e-9 * length * abs(z).sum()
        )
