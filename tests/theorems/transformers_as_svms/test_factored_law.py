"""The law by which singular values of W = K Qᵀ beyond the rank of the nuclear-norm solution lag behind: its exponent is
the gap g, 1 minus the next singular value of the certificate M. S is the symmetric block matrix of M.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.training.factored_flow import factored_flow
from theorems.bounded import value_of
from theorems.transformers_as_svms.curves.factored_certificate import certificate_sides
from theorems.transformers_as_svms.curves.factored_law import Lag, eigenvectors_of, sharpest_lag
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints

RNG = np.random.default_rng(2)


def _sphere(*shape: int) -> Any:
    x = RNG.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


DATA = QueryDataset(_sphere(3, 4, 4), _sphere(3, 4), [1, -1, 1], _sphere(4))


@pytest.fixture(scope="module")
def followed() -> tuple[FactoredPoints, NuclearMaxMargin, Any]:
    """Return the points of a flow that starts balanced and selects the optimal tokens, the solution, and the
    certificates at these points.
    """
    svm = nuclear_max_margin(DATA.keys, DATA.problem.optimal)
    assert isinstance(svm, NuclearMaxMargin)
    u, s, vt = np.linalg.svd(20 * svm.W + 0.3 * RNG.normal(size=(4, 4)))
    flow = factored_flow(DATA, 1.05 * u * np.sqrt(s), vt.T * np.sqrt(s), norm=2e3, relative=1e-12)
    points = FactoredPoints.of(DATA.problem, flow.K, flow.Q)
    total, leads = certificate_sides(points.at)
    assert leads.all()
    certificates = -value_of(points.at.gradient / total[:, None]).reshape(flow.W.shape)
    return points, svm, certificates


def test_the_exponent_of_the_lag_is_the_gap_of_the_certificate(followed: Any) -> None:
    points, svm, certificates = followed
    lag = sharpest_lag(points, svm, certificates)
    assert isinstance(lag, Lag)
    assert -lag.above <= lag.fallen - lag.expected <= lag.below
    assert lag.fallen == pytest.approx(lag.expected, rel=0.1)


def test_the_certificate_has_norm_one_and_its_eigenvectors_are_orthonormal(followed: Any) -> None:
    svm = followed[1]
    M, vectors = eigenvectors_of(svm)
    values = np.linalg.svd(M, compute_uv=False)
    assert values[: svm.rank] == pytest.approx(1.0, abs=1e-12)
    assert 1 - values[svm.rank] == pytest.approx(svm.gap, abs=1e-9)
    S = np.block([[np.zeros((4, 4)), M], [M.T, np.zeros((4, 4))]])
    basis = np.column_stack([vectors.first, vectors.following])
    assert basis.T @ basis == pytest.approx(np.eye(basis.shape[1]), abs=1e-9)
    assert S @ vectors.following == pytest.approx(values[svm.rank] * vectors.following, abs=1e-9)


def test_certificates_that_are_not_those_of_the_flow_give_no_lag(followed: Any) -> None:
    points, svm, certificates = followed
    assert sharpest_lag(points, svm, certificates[:, ::-1]) is None


def test_a_nuclear_norm_solution_that_is_not_exact_gives_no_lag(followed: Any) -> None:
    points, svm, certificates = followed
    assert sharpest_lag(points, replace(svm, exact=None), certificates) is None
