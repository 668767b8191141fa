"""ATT-SVM⋆ (nuclear norm): against a conic solver and by hand; which instances are decided, and which must not be."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import cvxpy
import numpy as np
import pytest
from flint import arb

from reference_attention.errors import InvalidInput
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.ball_matrices import balls, cholesky, least_eigenvalue, precision
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from reference_attention.svm.nuclear_enclosure import NotDecided, enclose_nuclear
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.svm.outer_rows import OuterRows

SHAPES = ((2, 3, 3, 3), (4, 6, 10, 10), (3, 3, 4, 7), (4, 4, 6, 2))
"""Values of n, T, d and e."""


def on_the_sphere(seed: int, n: int, T: int, d: int, e: int) -> tuple[OuterKeys, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, z = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in map(rng.standard_normal, ((n, T, d), (n, e))))
    return OuterKeys(X, z), rng.integers(0, T, n)


def solve(keys: OuterKeys, alpha: np.ndarray) -> NuclearMaxMargin:
    svm = nuclear_max_margin(keys, alpha)
    assert isinstance(svm, NuclearMaxMargin)
    return svm


def rows_of(keys: OuterKeys, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = OuterRows.of(keys, alpha)
    assert rows is not None
    return np.ldexp(rows.a, rows.p[:, None]), np.ldexp(rows.z, rows.q[:, None])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(20))
def test_random_problems_with_tokens_on_the_sphere_are_decided(shape: tuple[int, int, int, int], seed: int) -> None:
    keys, alpha = on_the_sphere(seed, *shape)
    svm = nuclear_max_margin(keys, alpha)
    if isinstance(svm, Infeasible):
        assert shape[3] == 2  # only four inputs with queries in two dimensions
        return
    assert svm.undecided == ""
    assert svm.exact is not None
    assert float(svm.exact.value.rad() / svm.exact.value) < 1e-38
    assert svm.duality_gap() < 1e-14
    assert svm.primal_residual() < 1e-13
    a, z = rows_of(keys, alpha)
    duals = svm.duals[svm.rows.inputs, svm.rows.tokens]
    M = (a * duals[:, None]).T @ z
    singular = np.linalg.svd(M, compute_uv=False)
    assert singular[: svm.rank] == pytest.approx(1.0, abs=1e-13)
    assert svm.gap is not None
    following = singular[svm.rank] if svm.rank < len(singular) else 0.0
    # A singular value σ below 1e-8 has a square below the rounding error of 1 − σ².
    assert svm.gap == pytest.approx(1 - following, abs=1e-12 if following > 1e-3 else 3e-7)
    assert np.linalg.norm(svm.W, ord="nuc") == pytest.approx(svm.norm, rel=1e-13)
    assert svm.face is not None
    U1, V1 = svm.face
    P = U1.T @ svm.W @ V1
    assert pytest.approx(P, abs=1e-12 * svm.norm) == P.T
    assert np.linalg.eigvalsh(P)[0] > 0
    assert pytest.approx(svm.W, abs=1e-12 * svm.norm) == U1 @ P @ V1.T
    assert svm.support is not None
    # By Barvinok and Pataki, a unique solution of rank r has at least r (r + 1)/2 tight constraints.
    assert svm.rank * (svm.rank + 1) // 2 <= svm.support.sum()


@pytest.mark.parametrize("seed", range(3))
def test_the_nuclear_solution_agrees_with_a_conic_solver(seed: int) -> None:
    keys, alpha = on_the_sphere(seed, 4, 6, 10, 10)
    svm = solve(keys, alpha)
    a, z = rows_of(keys, alpha)
    W = cvxpy.Variable((10, 10))
    program = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.normNuc(W)),
        [cvxpy.sum(cvxpy.multiply(np.outer(x, y), W)) >= 1 for x, y in zip(a, z, strict=True)],
    )
    assert program.solve(solver="CLARABEL") == pytest.approx(svm.norm, rel=1e-6)  # Clarabel's tolerance is 1e-8
    assert W.value == pytest.approx(svm.W, abs=1e-3)


def test_the_nuclear_solution_of_one_input_is_the_svm_on_its_tokens() -> None:
    keys, alpha = on_the_sphere(3, 1, 5, 4, 3)
    svm, of_tokens = solve(keys, alpha), max_margin(keys.tokens, alpha)
    assert isinstance(of_tokens, MaxMargin)
    z = keys.queries[0]
    assert pytest.approx(np.outer(of_tokens.p, z) / (z @ z), rel=1e-13) == svm.W
    assert svm.rank == 1


def test_only_the_value_is_enclosed_where_there_are_several_solutions() -> None:
    """Every matrix ((1, b), (b, 1)) with |b| ≤ 1 is a solution of norm 2."""
    keys = OuterKeys(np.array([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]]), np.eye(2))
    svm = solve(keys, np.array([0, 0]))
    assert svm.bounds[0] <= 2 <= svm.bounds[1]
    assert svm.bounds[1] - svm.bounds[0] < 1e-12
    assert (svm.exact, svm.unique, svm.rank, svm.support, svm.gap, svm.injectivity, svm.face) == (None,) * 7
    assert "isolated" in svm.undecided


@pytest.mark.parametrize("seed", range(40))
def test_solutions_for_integer_data_are_decided_or_their_norm_is_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = OuterKeys(rng.integers(-2, 3, (2, 3, 2)).astype(float), rng.integers(-2, 3, (2, 2)).astype(float))
    alpha = rng.integers(0, 3, 2)
    svm, frobenius = nuclear_max_margin(keys, alpha), max_margin(keys, alpha)
    assert isinstance(svm, Infeasible) == isinstance(frobenius, Infeasible)
    if isinstance(svm, NuclearMaxMargin) and isinstance(frobenius, MaxMargin):
        low, high = svm.bounds
        assert high - low < 1e-12 * low
        # For any W, ‖W‖_F ≤ ‖W‖_⋆ ≤ √rank ‖W‖_F, and each solution is the shortest in its own norm.
        assert frobenius.norm <= high * (1 + 1e-12)
        assert low <= np.linalg.norm(frobenius.p.reshape(2, 2), ord="nuc") * (1 + 1e-12)
        assert (svm.exact is None) == bool(svm.undecided)


@pytest.mark.parametrize("power", [(0, 1), (300, -200), (-401, 7)])
def test_the_solution_for_data_in_another_unit_is_the_same_in_that_unit(power: tuple[int, int]) -> None:
    keys, alpha = on_the_sphere(5, 4, 6, 10, 10)
    svm = solve(keys, alpha)
    other = solve(OuterKeys(np.ldexp(keys.tokens, power[0]), np.ldexp(keys.queries, power[1])), alpha)
    assert pytest.approx(np.ldexp(svm.W, -sum(power)), rel=1e-14) == other.W
    assert other.gap == pytest.approx(svm.gap, rel=1e-12)
    assert other.duality_gap() < 1e-14


def test_inputs_of_very_different_sizes_are_solved() -> None:
    keys, alpha = on_the_sphere(5, 3, 3, 5, 5)
    svm = solve(OuterKeys(keys.tokens * np.array([1.0, 2.0**-5, 2.0**5])[:, None, None], keys.queries), alpha)
    assert svm.bounds[1] - svm.bounds[0] < 1e-12 * svm.norm


def test_infeasible_data_are_recognised() -> None:
    keys = OuterKeys(np.array([[[1.0, 0.0], [0.0, 0.0], [3.0, 0.0]]]), np.array([[1.0, 2.0]]))
    assert isinstance(nuclear_max_margin(keys, [0]), Infeasible)
    same = OuterKeys(np.array([[[1.0, 0.0], [1.0, 0.0]]]), np.array([[1.0, 2.0]]))
    assert isinstance(nuclear_max_margin(same, [0]), Infeasible)


def test_bad_input_is_refused() -> None:
    keys, alpha = on_the_sphere(0, 2, 3, 3, 3)
    with pytest.raises(InvalidInput, match="keys: the nuclear norm needs the factors"):
        nuclear_max_margin(keys.floats, alpha)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="alpha: 3 for input 0 is out of range"):
        nuclear_max_margin(keys, [3, 0])
    with pytest.raises(InvalidInput, match="keys: T = 1"):
        nuclear_max_margin(OuterKeys(keys.tokens[:, :1], keys.queries), [0, 0])


def test_a_wrong_rank_or_support_is_not_proven() -> None:
    keys, alpha = on_the_sphere(1, 4, 6, 10, 10)
    svm = solve(keys, alpha)
    rows = OuterRows.of(keys, alpha)
    assert rows is not None
    assert svm.support is not None
    rows = rows.in_units_of(1.0)
    root = 2.0 ** (-rows.unit // 2)
    duals = np.ldexp(svm.duals[rows.inputs, rows.tokens], rows.p + rows.q)
    support = np.flatnonzero(svm.support[rows.inputs, rows.tokens])
    K, Q = svm.K * root, svm.Q * root
    assert enclose_nuclear(rows, K, Q, duals, support).value.overlaps(svm.exact.value)  # type: ignore[union-attr]
    wrong = np.flatnonzero(~svm.support[rows.inputs, rows.tokens])
    for other in (support[1:], np.sort(np.append(support, wrong[0]))):
        with suppress(NotDecided):
            assert enclose_nuclear(rows, K, Q, duals, other).support == support.tolist()
    with pytest.raises(NotDecided):
        enclose_nuclear(rows, K[:, 1:], Q[:, 1:], duals, support)


def test_the_bounds_of_the_norm_are_far_apart_for_a_wrong_solution() -> None:
    keys, alpha = on_the_sphere(2, 4, 6, 10, 10)
    svm = solve(keys, alpha)
    assert replace(svm, K=svm.K * 1.001, Q=svm.Q).duality_gap() > 1e-7
    assert replace(svm, duals=svm.duals[:, ::-1]).duality_gap() > 1e-3
    assert replace(svm, K=svm.K * 0.999).primal_residual() > 0.99e-3
    assert replace(svm, duals=-svm.duals).duality_gap() == pytest.approx(1.0)
    assert replace(svm, K=-svm.K).duality_gap() == np.inf


def test_cholesky_factors_and_least_eigenvalues_of_ball_matrices_are_enclosed() -> None:
    with precision():
        A = balls(np.array([[2.0, 1.0], [1.0, 2.0]]))
        factor = cholesky(A)
        assert factor is not None
        assert (factor * factor.transpose()).contains(A)
        result = least_eigenvalue(A)
        assert result.contains(1)
        assert result.rad() < 1e-14
        assert cholesky(balls(np.array([[1.0, 1.0], [1.0, 1.0]]))) is None
        assert least_eigenvalue(balls(np.diag([-1.0, 3.0]))).contains(arb(-1))
