"""The regularization path of the factors (K, Q): compared with an optimiser, with its limit and with its
certificate.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from reference_attention.errors import InvalidInput
from reference_attention.paths.nuclear_offsets import NuclearOffsets
from reference_attention.paths.nuclear_path import log_costs_of, newton, nuclear_path
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import log_excess_risk
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin

RADII = np.array([1e2, 1e4, 1e6])


def on_the_sphere(seed: int, n: int = 2, T: int = 3, d: int = 3) -> tuple[QueryDataset, NuclearMaxMargin]:
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(shape) for shape in ((n, T, d), (n, d), (d,)))
    X, z, v = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in drawn)
    data = QueryDataset(X, z, rng.choice([-1.0, 1.0], n), v)
    svm = nuclear_max_margin(data.keys, data.problem.optimal)
    assert isinstance(svm, NuclearMaxMargin)
    return data, svm


@pytest.mark.parametrize("seed", range(4))
def test_the_nuclear_path_minimises_over_balls_and_tends_to_its_limit(seed: int) -> None:
    data, svm = on_the_sphere(seed, 4, 6, 10)
    path = nuclear_path(data.problem, svm, RADII)
    assert path.reasons == ("",) * 3
    assert (np.abs(path.gaps) < 1e-14 * RADII).all()
    half = (np.square(path.K).sum((1, 2)) + np.square(path.Q).sum((1, 2))) / 2
    assert half == pytest.approx(RADII * svm.norm, rel=1e-12)
    W = path.K @ np.swapaxes(path.Q, 1, 2)
    assert pytest.approx(RADII[:, None, None] * svm.W + path.offsets, abs=1e-7) == W
    system = NuclearOffsets.of(svm, log_costs_of(data.problem, svm))
    x = newton(system, system.start, 0.0)
    assert x is not None
    off = np.linalg.norm(path.offsets - system.offset(x, 0.0) * 2.0**system.unit, axis=(1, 2))
    assert off[1] / off[2] == pytest.approx(100, rel=0.05)  # the error is O(1/ρ)


@pytest.mark.parametrize("seed", range(3))
def test_an_optimiser_on_both_factors_finds_no_less(seed: int) -> None:
    """Run L-BFGS on the logarithm of the excess risk over full-width factors on the sphere."""
    data, svm = on_the_sphere(seed)
    problem, rho = data.problem, 60.0
    R, d = rho * svm.norm, data.X.shape[2]

    def excess(K: np.ndarray, Q: np.ndarray) -> float:
        point = (K @ Q.T).ravel()
        return float(log_excess_risk(problem.keys, problem.scores, problem.loss, point, svm.alpha)[1])

    def at(x: np.ndarray) -> float:
        x = x * np.sqrt(2 * R) / np.linalg.norm(x)
        return excess(x[: d * d].reshape(d, d), x[d * d :].reshape(d, d))

    path = nuclear_path(problem, svm, [rho])
    mine, rng = excess(path.K[0], path.Q[0]), np.random.default_rng(0)
    pad = np.concatenate([np.pad(x[0], ((0, 0), (0, d - x.shape[2]))).ravel() for x in (path.K, path.Q)])
    for _ in range(3):
        result = minimize(at, pad + rng.standard_normal(pad.size), method="L-BFGS-B", options={"maxiter": 300})
        assert result.fun >= mine - 1e-7
    assert result.fun == pytest.approx(mine, abs=1e-2)


def test_the_derivative_of_the_nuclear_path_s_objective_is_its_difference_quotient() -> None:
    data, svm = on_the_sphere(0)
    system = NuclearOffsets.of(svm, log_costs_of(data.problem, svm))
    x, step = np.random.default_rng(0).standard_normal(system.start.size) * 0.1, 1e-6
    for eps in (0.1, 0.0):
        _, J = system.system(x, eps)
        columns = [(system.system(x + step * u, eps)[0] - system.system(x - step * u, eps)[0]) for u in np.eye(x.size)]
        assert np.array(columns).T / (2 * step) == pytest.approx(J, abs=1e-7)


def test_bad_input_is_refused() -> None:
    data, svm = on_the_sphere(0)
    with pytest.raises(InvalidInput, match="rhos: radii must be positive"):
        nuclear_path(data.problem, svm, [1.0, -1.0])
    other = nuclear_max_margin(data.keys, np.argmin(data.problem.scores, axis=1))
    assert isinstance(other, NuclearMaxMargin)
    with pytest.raises(InvalidInput, match="svm: a tight constraint belongs to a token that scores no less"):
        nuclear_path(data.problem, other, [10.0])
    same = QueryDataset([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]], np.eye(2), [1, 1], [1, 1])
    several = nuclear_max_margin(same.keys, [0, 0])
    assert isinstance(several, NuclearMaxMargin)
    with pytest.raises(InvalidInput, match="svm: the solution must be unique; this is not decided"):
        nuclear_path(same.problem, several, [10.0])


def test_where_the_minimiser_may_have_larger_rank_a_reason_is_given() -> None:
    """If the factors' rank is too small, a stationary point need not be a minimum: then the reason is the Frank–Wolfe
    gap.
    """
    near, far = ({_reasons(seed)[k][:30] for seed in range(30)} for k in (0, 1))
    assert near >= {"", "the global minimiser may have "}
    assert far == {""}


def _reasons(seed: int) -> tuple[str, ...]:
    data, svm = on_the_sphere(seed, 4, 4, 4)
    assert svm.exact is not None
    return nuclear_path(data.problem, svm, [3.0, 1e6]).reasons
