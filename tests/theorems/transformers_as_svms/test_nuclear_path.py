"""The statement about the regularization path of (K, Q): on data by hand, and with planted faults.

M is the certificate of the solution W_⋆ of least nuclear norm; all solutions lie in its face F; g is 1 minus the
largest singular value of M below 1; σ and λ are singular values and duals.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.paths.nuclear_offsets import NuclearOffsets
from reference_attention.paths.nuclear_path import log_costs_of, newton
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from tests.theorems.faults.trial import Baseline, FaultOutcome, baseline, try_fault
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.core.nuclear_certificate import NuclearCertificate, images_of, nuclear_claim
from theorems.faults import FAULTS
from theorems.transformers_as_svms.curves.nuclear_bounds import NuclearBounds
from theorems.transformers_as_svms.curves.nuclear_limit import corrections, offset_in_closed_form
from theorems.transformers_as_svms.nuclear_path import tsvm_nuclear_path

SEVERAL = QueryDataset([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]], np.eye(2), [1, 1], [1, 1])
"""Data with many solutions of least nuclear norm, ((1, b), (b, 1)) for |b| ≤ 1, of ranks 1 and 2."""


def on_the_sphere(seed: int, n: int = 3, T: int = 3, d: int = 4) -> QueryDataset:
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(shape) for shape in ((n, T, d), (n, d), (d,)))
    X, z, v = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in drawn)
    return QueryDataset(X, z, rng.choice([-1.0, 1.0], n), v)


def case_of(data: QueryDataset) -> Case:
    return Case(data.problem, queried=data)


def bounds_of(data: QueryDataset) -> NuclearBounds:
    svm = nuclear_max_margin(data.keys, data.problem.optimal)
    assert isinstance(svm, NuclearMaxMargin)
    return NuclearBounds(data.problem, NuclearCertificate(data, data.problem.optimal, svm))


class Faced(NuclearBounds):
    """Bounds with a given certificate M and face."""

    def __init__(self, M: Any, face: Any) -> None:
        self.__dict__.update(M=M, face=face)


@lru_cache
def baselines() -> list[Baseline]:
    return [baseline(tsvm_nuclear_path, case_of(on_the_sphere(seed))) for seed in range(4)]


@pytest.mark.parametrize("data", [on_the_sphere(0), on_the_sphere(1, 4, 6, 10), SEVERAL])
def test_the_statement_on_the_nuclear_path_is_upheld(data: QueryDataset) -> None:
    outcome = check(tsvm_nuclear_path, case_of(data), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_with_several_solutions_no_claim_is_about_a_single_one() -> None:
    outcome = check(tsvm_nuclear_path, case_of(SEVERAL), REFERENCE)
    names = {claim.name for claim in outcome.claims}
    assert {"sublevel-margin", "sublevel-face-distance", "sublevel-factors-balanced"} <= names
    assert not {"sublevel-solution-distance", "path-turns", "path-offset-closed-form"} & names


def test_every_claim_on_the_nuclear_path_is_made() -> None:
    names = {claim.name for claim in check(tsvm_nuclear_path, case_of(on_the_sphere(0)), REFERENCE).claims}
    assert names == set(tsvm_nuclear_path.claims)


@pytest.mark.parametrize("name", [name for name in FAULTS if name.startswith("nuclear-")])
def test_planted_faults_falsify_the_claims_on_the_nuclear_path(name: str) -> None:
    cell = try_fault(tsvm_nuclear_path, FAULTS[name], baselines())
    assert cell.outcome is FaultOutcome.CAUGHT
    wrong_path = name.startswith("nuclear-path")
    assert cell.claim in (("path-is-minimal", "path-in-the-ball") if wrong_path else ("nuclear-svm-is-optimal",))


@pytest.mark.parametrize("seed", range(4))
def test_two_derivations_of_the_offset_of_the_nuclear_path_agree(seed: int) -> None:
    """One derivation expands the path to first order in blocks; the other solves the equations of the factors for 1/ρ =
    0.
    """
    bounds = bounds_of(on_the_sphere(seed, 4, 6, 10))
    costs = log_costs_of(bounds.problem, bounds.svm)
    system = NuclearOffsets.of(bounds.svm, costs)
    x = newton(system, system.start, 0.0)
    assert x is not None
    limit = offset_in_closed_form(bounds, costs)
    assert limit.value == pytest.approx(system.offset(x, 0.0) * 2.0**system.unit, abs=1e-10)
    first, second = corrections(system, 1e5)
    assert second < 1e-3 * first < 1e-3


def test_points_of_the_face_of_solutions_have_distance_zero_from_it() -> None:
    bounds = bounds_of(on_the_sphere(1, 4, 6, 10))
    U1, V1, _ = bounds.face
    root = np.random.default_rng(0).standard_normal((5, U1.shape[1], U1.shape[1]))
    on_it = U1 @ (root @ root.mT) @ V1.T
    assert bounds.face_distance(on_it) == pytest.approx(0.0, abs=1e-12)
    off_it = on_it - 3 * U1[:, :1] @ V1[:, :1].T
    assert (bounds.face_distance(off_it) > 1e-3).any()


@pytest.mark.parametrize("below", [0.0, 5e-7, 2e-6, 0.5])
def test_the_distance_to_the_face_is_bounded_for_any_singular_values(below: float) -> None:
    """For M = diag(1, 1 − below, 0.4) and every W, the distance from the face is at most 2√(R(R − ⟨M, W⟩)/g), R =
    ‖W‖_⋆, up to an error e for singular values near 1.

    At W near −e₂e₂ᵀ the error e is nearly attained.
    """
    rng = np.random.default_rng(0)
    near = np.diag([1.0, -1.0, 0.0]) + 1e-3 * rng.standard_normal((200, 3, 3))
    drawn = rng.standard_normal((400, 3, 1)) @ rng.standard_normal((400, 1, 3))
    askew = rng.standard_normal((400, 3, 3)) * [1.0, 1.0, 0.05] * np.array([1.0, 1.0, 0.05])[:, None]
    W = np.concatenate([near, drawn, askew, np.diag([1.0, 1.0, 1.0])[None], np.diag([0.0, -1.0, 0.0])[None]])
    M = np.diag([1.0, 1 - below, 0.4])
    R = np.linalg.svd(W, compute_uv=False).sum(axis=1)
    for r in (1, 2, 3):
        bounds = Faced(M, (np.eye(3)[:, :r], np.eye(3)[:, :r], 1 - np.append(np.diag(M), 0.0)[r]))
        if bounds.face[2] > 0:
            e = R - np.einsum("ab,mab->m", M, W)
            assert (bounds.face_distance(W) <= bounds.from_face(R, e)).all()


def test_singular_values_that_are_nearly_one_count_as_in_the_face() -> None:
    """The rows e1e1ᵀ and (1 − 5e-7) e2e2ᵀ with duals (1, 1) give σ_2 = 1 − 5e-7, which counts as 1, so g is 1."""
    data = QueryDataset([[[1.0, 0], [0, 0]], [[0, 1 - 5e-7], [0, 0]]], np.eye(2), [1, 1], [1, 1])
    svm = bounds_of(data).svm
    assert svm.exact is None
    bounds = NuclearBounds(
        data.problem, NuclearCertificate(data, svm.alpha, replace(svm, duals=np.array([[0.0, 1], [0, 1]])))
    )
    assert np.linalg.svd(bounds.M, compute_uv=False)[1] == pytest.approx(1 - 5e-7, abs=1e-15)
    U1, _, g = bounds.face
    assert (U1.shape[1], g) == (2, pytest.approx(1.0))
    assert check(tsvm_nuclear_path, case_of(data), REFERENCE).verdict is Verdict.UPHELD


@pytest.mark.parametrize("exponent", [-8, -16, -20, -26])
@pytest.mark.parametrize("seed", [5, 6, 10, 16])
def test_inputs_of_mixed_scale_raise_no_false_alarm(seed: int, exponent: int) -> None:
    """Tokens and query of the first input are multiplied by a power of two."""
    data = on_the_sphere(seed)
    X, z = np.array(data.X), np.array(data.queries)
    X[0], z[0] = np.ldexp(X[0], exponent), np.ldexp(z[0], exponent)
    outcome = check(tsvm_nuclear_path, case_of(QueryDataset(X, z, data.Y, data.v)), REFERENCE)
    assert outcome.verdict is not Verdict.FALSIFIED, outcome.reason


@pytest.mark.parametrize("seed", [0, 10, 17])
def test_scaling_keys_by_a_power_of_two_changes_no_digit(seed: int) -> None:
    data = on_the_sphere(seed)
    X = np.array(data.X)
    X[0] /= 256
    first, second = (
        nuclear_max_margin(QueryDataset(X * unit, data.queries, data.Y, data.v).keys, data.problem.optimal)
        for unit in (1.0, 2.0)
    )
    assert isinstance(first, NuclearMaxMargin)
    assert isinstance(second, NuclearMaxMargin)
    assert (first.rank, first.undecided) == (second.rank, second.undecided)
    if first.exact is not None:
        assert (first.W == 2 * second.W).all()
        assert (first.gap, first.margins.tolist()) == (second.gap, second.margins.tolist())


def test_the_images_of_a_basis_of_symmetric_matrices_are_those_found_by_hand() -> None:
    """Compute uᵀPv for the basis P = e1e1ᵀ, (e1e2ᵀ + e2e1ᵀ)/√2, e2e2ᵀ."""
    result = images_of(np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]]))
    assert result == pytest.approx(np.array([[3.0, 11 / np.sqrt(2), 10.0]]))


def test_a_wrong_nuclear_certificate_is_refuted_with_a_reason() -> None:
    data = on_the_sphere(0)
    svm = nuclear_max_margin(data.keys, data.problem.optimal)
    assert isinstance(svm, NuclearMaxMargin)
    right = nuclear_claim(NuclearCertificate(data, data.problem.optimal, svm))
    assert right.verdict is Verdict.UPHELD
    other = nuclear_claim(NuclearCertificate(data, (data.problem.optimal + 1) % 3, svm))
    assert other.verdict is Verdict.FALSIFIED
    assert other.detail == "K, Q, duals or α do not fit the data"


def test_a_limit_that_floats_do_not_solve_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def singular(*arguments: Any) -> Any:
        raise np.linalg.LinAlgError

    bounds = bounds_of(on_the_sphere(0))
    costs = log_costs_of(bounds.problem, bounds.svm)
    system = NuclearOffsets.of(bounds.svm, costs)
    monkeypatch.setattr(np.linalg, "solve", singular)
    assert np.isnan(offset_in_closed_form(bounds, costs).value).all()
    assert corrections(system, 1e5) == (np.inf, np.inf)
