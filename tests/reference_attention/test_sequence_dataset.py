"""Datasets with several queries per input: their parts, the risk over all parts, and the masks that are refused.

A part consists of the queries that see equally many tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.sequence_dataset import SequenceDataset, SequencePart
from reference_attention.sequence_risk import sequence_excess, sequence_parts

EPS = float(np.finfo(float).eps)
RNG = np.random.default_rng(0)
X, Z, V = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 3, 5)), RNG.normal(size=3)
Y = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
MASK = np.array([[[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]], [[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1]]], dtype=bool)


def test_a_part_consists_of_the_queries_that_see_equally_many_tokens() -> None:
    data = SequenceDataset(X, Z, Y, V, "exponential", MASK)
    assert data.shape == (3, 5)
    assert data.total == 6
    assert [part.problem.T for part in data.parts] == [2, 3, 4]
    assert [part.pairs.tolist() for part in data.parts] == [[[0, 1], [1, 0]], [[0, 0], [1, 2]], [[1, 1]]]
    assert [part.share for part in data.parts] == [1 / 3, 1 / 3, 1 / 6]
    assert sequence_parts(data) is data.parts
    assert data.problem is data.parts[-1].problem
    for part in data.parts:
        inputs = zip(part.pairs, part.tokens, part.problem.keys, part.problem.scores, strict=True)
        for (i, k), tokens, keys, scores in inputs:
            assert tokens.tolist() == np.flatnonzero(MASK[i, k]).tolist()
            assert keys == pytest.approx(np.array([np.outer(x, Z[i, k]).ravel() for x in X[i, tokens]]), abs=4 * EPS)
            assert scores == pytest.approx(Y[i, k] * (X[i, tokens] @ V), abs=8 * EPS)


def test_a_causal_mask_shows_each_query_the_tokens_up_to_its_own() -> None:
    data = SequenceDataset(X, X, np.ones((2, 4)), V, causal=True)
    assert (data.mask == np.tri(4, dtype=bool)).all()
    assert [part.pairs.tolist() for part in data.parts] == [[[0, k], [1, k]] for k in (1, 2, 3)]
    assert [part.tokens.tolist() for part in data.parts] == [[list(range(k + 1))] * 2 for k in (1, 2, 3)]
    whole = SequenceDataset(X, X, np.ones((2, 4)), V)
    assert whole.mask.all()
    assert not whole.mask.flags.writeable
    assert len(whole.parts) == 1
    scaled = data.with_queries_scaled(2.0)
    assert (scaled.problem.keys == 2 * data.problem.keys).all()
    assert (scaled.mask == data.mask).all()


def test_a_mask_of_zeros_and_ones_is_read_as_booleans() -> None:
    assert (SequenceDataset(X, Z, Y, V, mask=MASK.astype(int)).mask == MASK).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mask": MASK, "causal": True}, "mask: causal=True is a mask already; give either mask or causal."),
        ({"causal": True}, "causal: 3 queries and 4 tokens; give a query per token, or a mask."),
        ({"mask": 2 * MASK}, "mask: dtype int64 and shape (2, 3, 4) are not"),
        ({"mask": MASK[:, :2]}, "give booleans of shape (2, 3, 4)."),
        ({"mask": MASK & (np.arange(3) != 1)[:, None]}, "mask: query 1 of input 0 sees no token; let it see"),
        ({"mask": np.eye(3, 4)[None].repeat(2, 0)}, "mask: no query sees two tokens"),
        ({"Y": np.array([[1, -1, 1], [1, 0.5, 0]])}, "Y: label (1, 1) is 0.5; labels must be -1 or +1."),
        ({"Y": Y[:, :2]}, "give shape (2, 3)."),
        ({"queries": Z[:1]}, "queries: shape (1, 3, 5) has length 1 along axis 0"),
        ({"X": X[0]}, "give shape (n, T, d)."),
    ],
)
def test_sequences_whose_shapes_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        SequenceDataset(**({"X": X, "queries": Z, "Y": Y, "v": V} | changed))
    assert message in str(refused.value)


def test_the_excess_is_that_of_the_mean_risk_over_all_inputs_and_queries() -> None:
    data = SequenceDataset(X, Z, Y, V, mask=MASK)
    for p in (RNG.normal(size=15), RNG.normal(size=(7, 15)), RNG.normal(size=(2, 3, 15))):
        excess = np.zeros(p.shape[:-1])
        for i, k in np.argwhere(MASK.sum(axis=2) > 0):
            tokens = X[i, MASK[i, k]]
            scores = Y[i, k] * (tokens @ V)
            weights = np.exp(p @ np.array([np.outer(x, Z[i, k]).ravel() for x in tokens]).T)
            outputs = (weights @ scores) / weights.sum(axis=-1)
            excess += (np.log1p(np.exp(-outputs)) - np.log1p(np.exp(-scores.max()))) / 6
        sign, size = sequence_excess(data.parts, p)
        assert sign * np.exp(size) == pytest.approx(excess, rel=1e-12)


@pytest.mark.parametrize(
    ("signs", "sizes", "sign", "size"),
    [
        ((1.0, -1.0), (0.0, 0.0), 0.0, -math.inf),
        ((1.0, -1.0), (-2000.0, -2001.0), 1.0, -2000.0 + math.log1p(-math.exp(-1)) + math.log(0.5)),
        ((-1.0, 0.0), (-900.0, 7.0), -1.0, -900.0 + math.log(0.5)),
        ((0.0, 0.0), (3.0, -math.inf), 0.0, -math.inf),
    ],
)
def test_excesses_of_either_sign_are_added_in_logarithms(
    signs: tuple[float, float], sizes: tuple[float, float], sign: float, size: float
) -> None:
    problem = Problem(X[:1], np.zeros((1, 4)))
    part = SequencePart(problem, np.zeros((1, 2), dtype=np.int64), np.arange(4)[None], 2)
    parts = [part, part]
    told = iter(zip(signs, sizes, strict=True))
    result = sequence_excess(parts, np.zeros(3), lambda *_: tuple(np.array(item) for item in next(told)))  # type: ignore
    assert result[0] == sign
    assert result[1] == pytest.approx(size, abs=1e-12)
