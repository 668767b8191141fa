"""The regularization path for scores whose best attention is a mixture: its derivatives are compared with difference
quotients, its minimum with a minimiser in floats.
"""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb, arb_mat, ctx, fmpq
from scipy.optimize import minimize

from reference_attention.exact import to_floats
from reference_attention.optimal_attention import optimal_attention
from reference_attention.outer_keys import OuterKeys
from reference_attention.paths.mixing_path import MixingRisk, mixing_path
from reference_attention.svm.general_svm import GeneralSvm, general_svm

KEYS = OuterKeys(np.stack([np.eye(4), np.eye(4)[[1, 3, 0, 2]]]), np.array([[1.0, 0.0], [1.0, 2.0]]))
SCORES = [[fmpq(k) for k in (4, 3, 2, 1)], [fmpq(k) for k in (3, 1, 4, 2)]]
PENALTY = fmpq(3, 4)


def excess(W: np.ndarray) -> float:
    """Return n times the excess of the risk L over its infimum L_⋆, from the definition."""
    attention = optimal_attention(SCORES, PENALTY)
    total = 0.0
    for x, z, row, best in zip(KEYS.tokens, KEYS.queries, SCORES, attention.weights, strict=True):
        s = np.exp(x @ W.reshape(4, 2) @ z)
        s, gamma, star = s / s.sum(), to_floats(row), to_floats(best)
        total += gamma @ star - 0.75 * star @ star - gamma @ s + 0.75 * s @ s
    return total


def test_derivatives_are_those_of_the_excess_by_its_definition() -> None:
    rng = np.random.default_rng(0)
    W, u = rng.normal(size=8), rng.normal(size=8)
    risk = MixingRisk.of(KEYS, optimal_attention(SCORES, PENALTY), PENALTY)
    gradient, hessian = risk.derivatives(arb_mat([[arb(x)] for x in W.tolist()]))
    g = np.array([float(x.mid()) for x in gradient.entries()])
    H = np.array([float(x.mid()) for x in hessian.entries()]).reshape(8, 8)
    h = 1e-4
    assert g @ u == pytest.approx((excess(W + h * u) - excess(W - h * u)) / (2 * h), rel=1e-6)
    assert u @ H @ u == pytest.approx((excess(W + h * u) - 2 * excess(W) + excess(W - h * u)) / h**2, rel=1e-5)
    assert np.allclose(H, H.T)


def test_the_minimum_over_a_ball_agrees_with_a_float_minimiser() -> None:
    """Compare at ρ = 12, where floats still resolve the minimum; the float minimiser starts elsewhere."""
    attention = optimal_attention(SCORES, PENALTY)
    svm = general_svm(KEYS, attention.sets, attention.first)
    assert isinstance(svm, GeneralSvm)
    (result,) = mixing_path(KEYS, attention, PENALTY, svm, [12.0])
    with ctx.workprec(result.bits):
        W = np.array([float(x) for x in result.point])
    radius = float(np.linalg.norm(W))
    start = np.random.default_rng(1).normal(size=8) + 0.5 * W

    def on_the_sphere(w: np.ndarray) -> float:
        return float(np.log(excess(radius * w / np.linalg.norm(w))))

    best = minimize(on_the_sphere, start, method="BFGS", options={"gtol": 1e-9})
    point = radius * best.x / np.linalg.norm(best.x)
    assert on_the_sphere(W) <= on_the_sphere(point) + 1e-8
    assert np.linalg.norm(point - W) < 1e-2 * radius


def test_a_newton_iteration_that_does_not_settle_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = optimal_attention(SCORES, PENALTY)
    svm = general_svm(KEYS, attention.sets, attention.first)
    assert isinstance(svm, GeneralSvm)
    monkeypatch.setattr("reference_attention.paths.mixing_path.STEPS", 1)
    (point,) = mixing_path(KEYS, attention, PENALTY, svm, [12.0])
    assert "does not converge: its last step is" in point.reason


@pytest.mark.parametrize("unit", [1.0, 2.0**-80, 2.0**80])
def test_points_of_the_mixing_path_have_the_requested_radii_in_any_unit(unit: float) -> None:
    keys = OuterKeys(KEYS.tokens, KEYS.queries * unit)
    attention = optimal_attention(SCORES, PENALTY)
    svm = general_svm(keys, attention.sets, attention.first)
    assert isinstance(svm, GeneralSvm)
    for point, rho in zip(mixing_path(keys, attention, PENALTY, svm, [12.0, 40.0]), (12.0, 40.0), strict=True):
        assert not point.reason
        with ctx.workprec(point.bits):
            square = sum((x * x for x in point.point), arb(0)) / (rho * rho * arb(svm.norm_squared))
            assert abs(square - 1) < arb(2) ** -100
