"""The bordered system of the nuclear-norm SVM, in factors W = K Qᵀ and duals λ: floats against balls, its derivative,
and systems that Krawczyk's test refuses.
"""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb, arb_mat

from reference_attention.svm.ball_matrices import balls, precision
from reference_attention.svm.nuclear_enclosure import NotDecided, krawczyk
from reference_attention.svm.nuclear_float_solution import nuclear_float_solution
from reference_attention.svm.nuclear_system import NuclearSystem


def system_of(seed: int, d: int = 4, e: int = 5, r: int = 3, s: int = 3) -> tuple[NuclearSystem, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, z, anchor = rng.uniform(-1, 1, (s, d)), rng.uniform(-1, 1, (s, e)), rng.standard_normal((d, r))
    with precision():
        exact = (balls(a), balls(z), [arb(1)] * s)
    system = NuclearSystem(a, z, np.ones(s), exact, anchor)
    return system, rng.standard_normal(system.unknowns)


def test_residuals_in_floats_and_in_balls_agree() -> None:
    system, x = system_of(0)
    with precision():
        result = [float(f.mid()) for f in system.ball_residual([arb(v) for v in x.tolist()])]
    assert result == pytest.approx(system.residual(x), abs=1e-13)


def test_the_system_s_derivative_agrees_with_difference_quotients() -> None:
    system, x = system_of(1)
    step = 1e-6
    columns = [system.residual(x + step * u) - system.residual(x - step * u) for u in np.eye(x.size)]
    assert np.array(columns).T / (2 * step) == pytest.approx(system.derivative(x), abs=1e-8)


def test_the_solution_for_one_constraint_is_that_found_by_hand() -> None:
    """The problem min ‖W‖_⋆ with W_11 ≥ 1 has the solution K = Q = e1, λ = 1, which is proven from a point nearby."""
    with precision():
        exact = (arb_mat([[1, 0]]), arb_mat([[1, 0]]), [arb(1)])
    system = NuclearSystem(np.eye(2)[:1], np.eye(2)[:1], np.ones(1), exact, np.array([[1.0], [0.0]]))
    with precision():
        result = krawczyk(system, np.array([1.0, 1e-9, 1.0, -1e-9, 1 + 1e-9]))
    for ball, due in zip(result, (1, 0, 1, 0, 1), strict=True):
        assert ball.contains(due)
        assert ball.rad() < 1e-38


def test_a_singular_system_is_refused() -> None:
    """The two constraints fix only the diagonal of a matrix of rank two."""
    eye = np.eye(2)
    with precision():
        exact = (balls(eye), balls(eye), [arb(1), arb(1)])
    system = NuclearSystem(eye, eye, np.ones(2), exact, eye)
    solution = np.concatenate([eye.ravel(), eye.ravel(), [1.0, 1.0], [0.0]])
    assert np.abs(system.residual(solution)).max() == 0
    with precision(), pytest.raises(NotDecided, match="singular"):
        krawczyk(system, solution)


def test_the_float_guess_gives_tight_constraints_and_rank() -> None:
    """The rows are e1e1ᵀ, with margin 1, and 2e1e1ᵀ, which is slack."""
    a, z = np.array([[1.0, 0.0], [2.0, 0.0]]) / 2, np.array([[1.0, 0.0], [1.0, 0.0]])
    solution = nuclear_float_solution(a, z, np.ones(2))
    assert solution is not None
    assert solution.value == pytest.approx(2.0, rel=1e-6)
    assert (solution.rank, solution.support.tolist()) == (1, [True, False])
    assert nuclear_float_solution(np.array([[1.0, 0.0], [-1.0, 0.0]]), z, np.ones(2)) is None
