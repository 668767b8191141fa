"""A user's file with queries: the start of W is W0 or K0 Q0ᵀ, and assumptions are decided on tokens and queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.user_data import as_text, load
from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.claim import Verdict
from theorems.run.findings import findings
from theorems.run.registry.lookup import select_statements
from theorems.run.verify import verify_data


def arrays(**changed: Any) -> dict[str, Any]:
    """Return two inputs of three tokens on the unit sphere, with queries; numbers have 53 bits, so that products are
    rounded.
    """
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    values = {"X": X, "queries": queries, "Y": [1, -1], "v": rng.normal(size=3)}
    return {name: value for name, value in (values | changed).items() if value is not None}


def saved(tmp_path: Path, **changed: Any) -> str:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays(**changed))
    return str(path)


def test_data_with_queries_select_the_statements_about_queries(tmp_path: Path) -> None:
    given = load(saved(tmp_path), 0)
    ids = [statement.id for statement in select_statements((), subject=given.case)]
    assert "tsvm-frobenius-path" in ids
    assert "theorem-1" not in ids
    assert verify_data("tsvm-frobenius-path", given).counts == {Verdict.UPHELD: 1}
    assert verify_data("lemma-3", given).counts == {Verdict.UPHELD: 1}, "of the keys vec(x zᵀ)"
    plain = load("figure-1a", 0)
    ids = [statement.id for statement in select_statements((), subject=plain.case)]
    assert "theorem-1" in ids
    assert "tsvm-frobenius-path" not in ids
    assert verify_data("tsvm-frobenius-path", plain).counts == {Verdict.NOT_APPLICABLE: 1}


def test_neighbours_are_decided_on_factors_not_on_rounded_products(tmp_path: Path) -> None:
    """For exact products of tokens and queries one row is three times another, and so is its margin; for rounded keys
    it is not.
    """
    x, z = np.round(np.array([0.1, 0.3]) * 2**49) / 2**49, np.array([1 / 3, 0.7])
    given = load(saved(tmp_path, X=np.stack([0 * x, -3 * x, -x])[None], queries=z[None], Y=[1], v=[1.0, 0.0]), 0)
    problem = given.case.problem
    assert problem.factors is not None
    exact, rounded = (max_margin(keys, np.array([0])) for keys in (problem.exact_keys, problem.keys))
    assert isinstance(exact, MaxMargin)
    assert isinstance(rounded, MaxMargin)
    assert exact.neighbours.tolist() == [[False, False, True]]
    assert str(exact.exact.margin(0, 1)) == "3"
    assert str(rounded.exact.margin(0, 1)) != "3"


def test_a_start_is_w0_or_the_product_of_k0_and_q0(tmp_path: Path) -> None:
    W0 = np.arange(9.0).reshape(3, 3)
    case = load(saved(tmp_path, W0=W0), 0).case
    assert np.array_equal(case.start, W0.ravel())
    K0, Q0 = np.array([[1.0, 2], [0, 1], [3, 0]]), np.array([[1.0, 0], [0, 2], [1, 1]])
    case = load(saved(tmp_path, K0=K0, Q0=Q0), 0).case
    assert np.array_equal(case.start, (K0 @ Q0.T).ravel())
    assert np.array_equal(case.arrays["K0"], K0)
    assert np.array_equal(case.arrays["Q0"], Q0)


def test_query_data_written_and_read_back_are_the_same(tmp_path: Path) -> None:
    case = load(saved(tmp_path, W0=np.eye(3)), 0).case
    path = tmp_path / "case.json"
    path.write_text(as_text(case))
    again = load(str(path), 0).case
    assert np.array_equal(again.problem.keys, case.problem.keys)
    assert np.array_equal(again.queried.queries, case.queried.queries)
    assert np.array_equal(again.start, case.start)
    assert again.problem.factors is not None


def test_evidence_on_query_data_gives_dimensions_and_ranks(tmp_path: Path) -> None:
    given = load(saved(tmp_path), 0)
    by_name = {finding.id: finding for finding in findings(given, select_statements((), subject=given.case))}
    assert by_name["queries-given"].evidence == "2 queries of dimension 3, 3 tokens of dimension 3 each"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"W": np.eye(3)}, "with queries, W is trained; give its start as W0, or leave W out."),
        ({"queries": None, "W0": np.eye(3)}, "W0 is a start of W, which is trained with queries; add queries."),
        ({"queries": None, "mask": np.ones((2, 1, 3))}, "mask: dtype float64 and shape (2, 1, 3) do not say which"),
        ({"K0": np.eye(3)}, "Q0 is missing; K0 and Q0 are needed together."),
        ({"K0": np.eye(3), "Q0": np.eye(3), "W0": np.eye(3)}, "W0 and K0 are both starts; give one of them."),
        ({"K0": np.eye(3), "Q0": np.eye(3)[:, :2]}, "Q0: shape (3, 2) has length 2 along axis 1"),
        ({"W0": np.eye(2)}, "W0: shape (2, 2) has length 2 along axis 0"),
        ({"queries": np.ones((3, 3))}, "queries: shape (3, 3) has length 3 along axis 0, but the other arrays need 2"),
        ({"queries": np.full((2, 3), np.nan)}, "queries: entry (0, 0) is nan"),
        ({"X": None}, "X is missing; X, Y and v are needed together"),
        ({"Y": [0, 1]}, "Y: label 0 is 0; give 2*Y - 1."),
    ],
)
def test_query_data_that_do_not_fit_are_refused_in_one_sentence(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(saved(tmp_path, **changed), 0)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
