"""The search for the joint minimiser: from any directions, to the limit that the theorem names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.paths.joint_search import joint_minimiser
from tests.reference_attention.paths.test_joint import figure_3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("ratio", "limit"), [(1.0, (1.0, 0.0)), (4.0, (1.0, 0.0))])
def test_the_lowest_pair_of_figure_3b_points_at_p_relax(seed: int, ratio: float, limit: tuple[float, float]) -> None:
    joint, R = figure_3((0.5, 1.5)), 2.0**24
    starts = np.random.default_rng(seed).normal(size=(16, 2))
    found = joint_minimiser(joint, lambda R: math.log(ratio * R), R, starts)
    # The offset is O(log R).
    assert found.path.prompts[0] / R == pytest.approx(limit, abs=64 / R)
    assert list(found.risks) == sorted(found.risks)


def test_a_start_at_other_tokens_does_not_decide() -> None:
    joint, R = figure_3((0.5, 1.0)), 2.0**20
    away = np.array([[-1.0, 0.1]])
    both = np.vstack([away, np.random.default_rng(0).normal(size=(16, 2))])
    lowest = joint_minimiser(joint, math.log, R, both)
    assert (joint.rows[joint.others] @ lowest.path.prompts[0] > 0).all()
