"""Pairs of head and prompt on the joint path: their risk, their margin, and the choice of the best of several."""

from __future__ import annotations

import math

import numpy as np
import pytest

from generators.datasets import DATASETS
from reference_attention.paths.joint_minimisers import Pair, follow_from
from reference_attention.paths.joint_risk import Joint, joint_of_chosen, relative_log_risk


@pytest.fixture
def joint() -> Joint:
    case = DATASETS["figure-3a"]()
    assert case.dataset is not None
    result = joint_of_chosen(case.dataset.signed_tokens, case.problem.keys, case.chosen_tokens)
    assert result is not None
    return result


def test_the_pair_from_each_start_is_followed_to_each_radius(joint: Joint) -> None:
    paths = follow_from(joint, math.log1p, (1.0, 4.0), 2.0, np.ones(2), seed=0)
    assert [[(x.R, x.log_r, x.units) for x in path] for path in paths] == [
        [(2.0, math.log1p(2), 1.0), (8.0, math.log1p(8), 4.0)]
    ] * 3
    assert all(np.linalg.norm(x.p) == pytest.approx(x.R) for path in paths for x in path)
    again = follow_from(joint, math.log1p, (1.0, 4.0), 2.0, np.ones(2), seed=0)
    assert [[x.p.tolist() for x in path] for path in paths] == [[x.p.tolist() for x in path] for path in again]


def test_risk_and_margin_agree_with_the_pair(joint: Joint) -> None:
    p, w = np.array([1.0, -2.0]), np.zeros(2)
    pair = Pair(joint, 1.0, 2.0, w, p, 1.0)
    assert pair.risk == float(relative_log_risk(joint, 1.0, w, joint.log_weights(p)))
    own = [joint.keys[i, a] @ p for i, a in enumerate(joint.alpha)]
    others = [own[i] - key @ p for i, a in enumerate(joint.alpha) for t, key in enumerate(joint.keys[i]) if t != a]
    assert pair.lowest_margin == pytest.approx(min(others))


def test_a_pair_whose_risk_is_nan_ranks_last(joint: Joint) -> None:
    good, lost = (Pair(joint, 1.0, 2.0, np.full(2, w), np.ones(2), 1.0) for w in (0.0, math.nan))
    with np.errstate(invalid="ignore"):
        assert lost.rank == math.inf
    assert good.rank == good.risk < lost.rank


def test_features_that_no_head_separates_make_no_joint_problem(joint: Joint) -> None:
    tokens = np.concatenate([joint.tokens, -joint.tokens])
    keys, alpha = np.concatenate([joint.keys] * 2), np.concatenate([joint.alpha] * 2)
    assert joint_of_chosen(tokens, keys, alpha) is None
