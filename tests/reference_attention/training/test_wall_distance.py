"""Walls (points where another token's term of the gradient becomes the largest) ahead of a flow: their distance, and
that no flow steps across them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.problem import Problem
from reference_attention.training.batched_flow import gradient_flows
from reference_attention.training.batched_gradient import BatchedGradient
from reference_attention.training.flow import METHODS, gradient_flow
from reference_attention.training.wall_distance import ROOM, WallDistance

KEYS = np.array([[[0.0, 0.0, 0.0], [-(2.0**-7), 0.0, -(2.0**-8)]], [[0.0, 64.0, 32.0], [0.0, 64.0, 0.0]]])
PROBLEM = Problem(KEYS, np.array([[-1.0, -2.0], [1.0, 2.0]]))
START = np.array([34486.25, 6487.3, -2134.9])
"""A start where the margin of input 1's long row is 68317; it falls by 14 per unit of arc along input 0's short row."""
NORM = 46862.0


def margins(p: np.ndarray) -> list[float]:
    return [float((KEYS[0, 0] - KEYS[0, 1]) @ p), float((KEYS[1, 1] - KEYS[1, 0]) @ p)]


@pytest.mark.parametrize("method", METHODS)
def test_a_flow_does_not_pass_a_wall_that_its_solver_cannot_see(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr("reference_attention.training.flow.METHODS", {method: METHODS[method]})
    assert min(margins(gradient_flow(PROBLEM, START, norm=NORM).final)) > 0
    if method != "LSODA":  # only LSODA takes steps long enough to pass the wall
        return
    monkeypatch.setattr(WallDistance, "arc", lambda self, p, velocity: math.inf)
    assert margins(gradient_flow(PROBLEM, START, norm=NORM).final)[1] < -1e4


def test_flows_in_a_batch_do_not_pass_a_wall() -> None:
    alone = gradient_flow(PROBLEM, START, norm=NORM)
    flows = gradient_flows([PROBLEM], START[None], norms=np.array([NORM]))
    assert np.linalg.norm(flows.points[0] - alone.final) <= 1e-4


def test_at_the_wall_the_other_term_is_larger_by_room() -> None:
    velocity = np.array([2.0, 0.0, 1.0]) / math.sqrt(5)
    arc = WallDistance(PROBLEM).arc(START, velocity)
    first, second = margins(START + arc * velocity)
    # The exponent of a row's term is log(gap·size·|ℓ'|) − margin, with ℓ' at the best score; at the wall that of the
    # long row exceeds that of the short row by ROOM.
    short, long = math.log(math.hypot(2.0**-7, 2.0**-8)), math.log(32.0)
    slopes = [-math.log1p(math.exp(u)) for u in (-1.0, 2.0)]
    assert (long + slopes[1] - second) - (short + slopes[0] - first) == pytest.approx(ROOM, abs=1e-8)
    assert WallDistance(PROBLEM).arc(START, -velocity) == math.inf
    both = BatchedGradient(KEYS[None].repeat(2, 0), PROBLEM.scores[None].repeat(2, 0), PROBLEM.loss)
    pair = np.array([velocity, -velocity])
    result = both.ahead(np.array([START, START]), pair)
    assert result[0] == pytest.approx(arc, rel=1e-12)
    assert result[1] == math.inf


def test_there_is_no_wall_where_all_scores_tie() -> None:
    level = Problem(KEYS, np.ones((2, 2)))
    assert WallDistance(level).arc(START, np.array([0.0, 0.0, 1.0])) == math.inf


@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
def test_wall_distances_of_a_batch_agree_with_those_of_each_problem_in_any_units(scale: float) -> None:
    rng = np.random.default_rng(4)
    keys, scores = rng.normal(size=(20, 2, 4, 3)), rng.normal(size=(20, 2, 4))
    p, velocity = 30 * rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    batch = [Problem(*item, loss="logistic") for item in zip(keys, scores, strict=True)]
    result = BatchedGradient(keys * scale, scores, batch[0].loss).ahead(p / scale, velocity)
    arcs = [WallDistance(item).arc(*at) for item, at in zip(batch, zip(p, velocity, strict=True), strict=True)]
    assert result * scale == pytest.approx(arcs, rel=1e-12)
    assert (result > 0).all()
    assert np.isfinite(result).sum() not in (0, 20)
    for k, item in enumerate(batch):
        scaled = WallDistance(Problem(keys[k] * scale, item.scores)).arc(p[k] / scale, velocity[k])
        assert scaled * scale == pytest.approx(arcs[k], rel=1e-12)
