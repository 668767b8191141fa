"""Datasets with one query per input: the equivalent problem, whose prompt is vec(W), and the refusal of unsuitable
data.
"""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.query_dataset import QueryDataset

EPS = float(np.finfo(float).eps)
RNG = np.random.default_rng(0)
X, Z, Y, V = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 5)), np.array([1.0, -1.0]), RNG.normal(size=4)


def test_the_problem_of_a_dataset_has_the_prompt_vec_w() -> None:
    data = QueryDataset(X, Z, Y, V, "exponential")
    assert data.shape == (4, 5)
    assert data.problem.loss is LOSSES["exponential"]
    W = RNG.normal(size=data.shape)
    logits = np.einsum("ntd,de,ne->nt", X, W, Z)
    assert data.problem.keys @ W.ravel() == pytest.approx(logits, abs=64 * EPS)
    assert data.problem.scores == pytest.approx(Y[:, None] * (X @ V), abs=16 * EPS)
    assert data.problem.exact_keys is data.problem.factors is not None
    assert (data.problem.exact_keys.floats == data.problem.keys).all()  # type: ignore[union-attr]
    scaled = data.with_queries_scaled(4.0)
    assert (scaled.problem.keys == 4 * data.problem.keys).all()
    assert (scaled.problem.scores == data.problem.scores).all()


def test_a_problem_keeps_the_factors_of_keys_only_where_products_were_rounded() -> None:
    short = QueryDataset(np.round(8 * X), np.round(8 * Z), Y, V).problem
    assert short.factors is None
    assert short.exact_keys is short.keys
    long = QueryDataset(X, Z, Y, V).problem.with_keys_scaled(0.5)
    assert long.factors is not None
    assert (long.factors.floats == long.keys).all()
    assert (long.keys == QueryDataset(X, Z, Y, V).problem.keys / 2).all()


def test_a_dataset_without_a_query_for_each_input_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"^queries: shape \(3, 5\) has length 3 along axis 0, .* give shape \(2, e\)"
    ):
        QueryDataset(X, RNG.normal(size=(3, 5)), Y, V)
