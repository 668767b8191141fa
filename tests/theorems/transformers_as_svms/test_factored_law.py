"""The law of the second singular value: where its exponent can be observed, it is g; another g or another M violates
it.
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
    """Return a flow from a balanced start that selects opt, with its certificates."""
    svm = nuclear_max_margin(DATA.keys, DATA.problem.optimal)
    assert isinstance(svm, NuclearMaxMargin)
    u, s, vt = np.linalg.svd(20 * svm.W + 0.3 * RNG.normal(size=(4, 4)))
    flow = factored_flow(DATA, 1.05 * u * np.sqrt(s), vt.T * np.sqrt(s), norm=2e3, relative=1e-12)
    points = FactoredPoints.of(DATA.problem, flow.K, flow.Q)
    total, leads = certificate_sides(points.at)
    assert leads.all()
    certificates = -value_of(points.at.gradient / total[:, None]).reshape(flow.W.shape)
    return points, svm, certificates


def test_the_risk_falls_at_the_rate_of_the_gap(followed: Any) -> None:
    points, svm, certificates = followed
    lag = sharpest_lag(points, svm, certificates)
    assert isinstance(lag, Lag)
    assert -lag.above <= lag.fallen - lag.expected <= lag.below
    assert lag.fallen == pytest.approx(lag.expected, rel=0.1)


def test_m_has_norm_one_and_eigenvectors_of_s_are_orthonormal(followed: Any) -> None:
    svm = followed[1]
    M, vectors = eigenvectors_of(svm)
    values = np.linalg.svd(M, compute_uv=False)
    assert values[: svm.rank] == pytest.approx(1.0, abs=1e-12)
    assert 1 - values[svm.rank] == pytest.approx(svm.gap, abs=1e-9)
    S = np.block([[np.zeros((4, 4)), M], [M.T, np.zeros((4, 4))]])
    basis = np.column_stack([vectors.first, vectors.following])
    assert basis.T @ basis == pytest.approx(np.eye(basis.shape[1]), abs=1e-9)
    assert S @ vectors.following == pytest.approx(values[svm.rank] * vectors.following, abs=1e-9)


def test_certificates_of_other_tokens_give_no_lag(followed: Any) -> None:
    points, svm, certificates = followed
    assert sharpest_lag(points, svm, certificates[:, ::-1]) is None


def test_an_undecided_solution_gives_no_lag(followed: Any) -> None:
    points, svm, certificates = followed
    assert sharpest_lag(points, replace(svm, exact=None), certificates) is None
