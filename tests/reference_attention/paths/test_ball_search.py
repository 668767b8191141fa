"""The search for the minimiser in one ball: its choice among candidates, its reasons, and its parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reference_attention.losses import loss_named
from reference_attention.paths.ball_search import FLAT_RISK, BallSearch, Minimum
from reference_attention.paths.excess_risk import Excess
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.reference_attention.paths.test_regularization_path import separable
from tests.reference_attention.training.test_flow import saddle, valley

EPS = float(np.finfo(float).eps)


def at(p: tuple[float, float], log_excess: float, reason: str = "", interior: bool = False) -> Minimum:
    return Minimum(np.array(p), np.full(2, math.nan), log_excess, interior, reason)


class Told(BallSearch):
    """A search in a ball whose parts return prescribed results."""

    def __init__(self, minima: list[Minimum], inside: Minimum | None = None, outwards: float = -1.0) -> None:
        rng = np.random.default_rng(0)
        problem = Problem(rng.normal(size=(1, 2, 2)), np.array([[1.0, 0.0]]))
        super().__init__(problem, problem.optimal, None)
        self.minima, self.inside, self.outwards, self.polishes = minima, inside, outwards, 0

    def found(self, previous: Minimum | None = None) -> Minimum:
        return self.best(1.0, [m.p for m in self.minima], previous)

    def _on_sphere(self, R: float, start: Any) -> tuple[Any, float]:
        mine = next(m for m in self.minima if np.allclose(m.p, start))
        return mine.p, mine.log_excess

    def _polish(self, R: float, rough: Any) -> Minimum:
        self.polishes += 1
        return next(m for m in self.minima if np.allclose(m.p, rough))

    def _inside(self, R: float, start: Any) -> Minimum | None:
        return self.inside if start.any() else None

    def _slope(self, p: Any) -> Any:
        return self.outwards * p


A, B, C, D = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)


def test_the_lowest_candidate_is_taken_and_of_equally_low_ones_a_converged_one() -> None:
    lowest = Told([at(A, 2.0), at(B, -1.0), at(C, 1.0)]).found()
    assert (lowest.p == B).all()
    # The risks of the candidates differ by less than the rounding of a logit.
    equal = Told([at(A, 1.0, "stopped"), at(B, 1.0 + 4 * EPS), at(C, 1.0 + 8 * EPS, "stopped")]).found()
    assert (equal.p == B).all()
    assert equal.reason == ""
    unsure = Told([at(A, 1.0, "stopped"), at(B, 1.0 + 1e-6)]).found()
    assert (unsure.p == A).all()
    assert unsure.reason == "stopped"


def test_candidates_far_above_the_lowest_and_repeated_candidates_are_not_polished() -> None:
    search = Told([at(A, -5.0), at(B, 5.0), at(A, -5.0), at(C, -5.0)])
    search.found()
    assert search.polishes == 2


def test_candidates_a_radian_apart_are_both_polished() -> None:
    search = Told([at(A, -5.0), at((math.cos(1.0), math.sin(1.0)), -5.0)])
    search.found()
    assert search.polishes == 2


@pytest.mark.parametrize("outwards", [0.1, 10.0])
def test_where_the_risk_falls_inwards_an_interior_minimiser_is_sought(outwards: float) -> None:
    sphere, below, above = [at(A, 1.0)], at((0.1, 0.0), 0.5, interior=True), at((0.1, 0.0), 1.5, interior=True)
    assert Told(sphere, below, outwards).found() is below
    for inside in (above, None):
        result = Told(sphere, inside, outwards).found()
        assert (result.p == A).all()
        assert result.reason == "the risk decreases inwards, but no minimiser inside the ball was found"
    assert Told(sphere, below, -outwards).found() is sphere[0]
    before = at((0.2, 0.0), 0.0, interior=True)
    assert Told(sphere, below, outwards).found(before) is before


@pytest.mark.parametrize("factor", [2.0**-40, 1.0, 2.0**40])
def test_interior_newton_distinguishes_minimum_saddle_and_plateau_at_any_scale(factor: float) -> None:
    bottom = valley(factor)
    result, reason = BallSearch(bottom, bottom.optimal, None)._interior_newton(np.array([0.4]) / factor)
    assert reason == ""
    assert abs(result[0]) * factor <= 1e-12
    given = saddle()
    scaled = Problem(given.keys * factor, given.scores)
    start = np.array([0.2, 1e-9, 0.0]) / factor
    result, reason = BallSearch(scaled, scaled.optimal, None)._interior_newton(start)
    assert reason == "the stationary point inside the ball is no minimum"
    assert (result == start).all()
    # Along the second coordinate the risk falls a twelfth as fast as it rises along the first.
    gentle = Problem(scaled.keys * [1.0, 0.1, 1.0], given.scores)
    result, reason = BallSearch(gentle, gentle.optimal, None)._interior_newton(start)
    assert reason == "the stationary point inside the ball is no minimum"
    assert (result == start).all()
    flat, _ = separable(0)
    far = Problem(flat.keys * factor, flat.scores)
    start = np.full(6, 50.0) / factor
    result, reason = BallSearch(far, far.optimal, None)._interior_newton(start)
    assert reason != ""
    assert (result == start).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_polished_point_is_stationary_and_its_excess_is_right(seed: int) -> None:
    problem, svm = separable(seed)
    rng = np.random.default_rng(seed)
    for given in (None, svm):
        search = BallSearch(problem, problem.optimal, given)
        for R, rough in ((3.0, rng.normal(size=6)), (40.0, svm.direction + 0.02 * rng.normal(size=6))):
            result = search._polish(R, rough)
            value, slope = search._excess.value_and_slope(result.p)
            assert result.log_excess == pytest.approx(value, abs=1e-12 * (1 + 4 * R))
            assert np.linalg.norm(result.p) == pytest.approx(R, rel=8 * EPS)
            assert not result.interior
            if given is not None:
                across = result.p - (result.p @ svm.direction) * svm.direction
                assert result.offset == pytest.approx(across, abs=64 * EPS * R)
            if not result.reason:
                assert np.linalg.norm(slope - (slope @ result.p) * result.p / R**2) <= 1e-10 * R
        assert result.reason == ""


@pytest.mark.parametrize("factor", [2.0**-60, 2.0**60])
@pytest.mark.parametrize("R", [3.0, 40.0])
def test_polishing_does_not_depend_on_the_unit_of_the_keys(factor: float, R: float) -> None:
    problem, svm = separable(0)
    scaled = Problem(problem.keys * factor, problem.scores)
    rough = svm.direction + 0.02 * np.random.default_rng(0).normal(size=6)
    here = BallSearch(problem, problem.optimal, None)._polish(R, rough)
    there = BallSearch(scaled, scaled.optimal, None)._polish(R / factor, rough)
    assert here.reason == there.reason == ""
    assert there.p * factor == pytest.approx(here.p, abs=1e-11 * R)


@pytest.mark.parametrize("factor", [2.0**-20, 1.0])
def test_newton_converges_from_half_a_radian_away(factor: float) -> None:
    """Steps of Newton's method may be as long as the radius, be that above or below 1."""
    problem, svm = separable(0)
    scaled = Problem(problem.keys / factor, problem.scores)
    search = BallSearch(scaled, scaled.optimal, None)
    across = np.eye(6)[0] - svm.direction[0] * svm.direction
    near = search._polish(40.0 * factor, svm.direction)
    far = search._polish(40.0 * factor, math.cos(0.5) * svm.direction + math.sin(0.5) * across / np.linalg.norm(across))
    assert far.reason == near.reason == ""
    assert far.p == pytest.approx(near.p, abs=1e-9 * 40.0 * factor)


def test_a_search_without_a_descending_step_gives_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, svm = separable(0)
    search = BallSearch(problem, problem.optimal, None)
    once = iter([search._excess.on_sphere])
    monkeypatch.setattr(
        search._excess, "on_sphere", lambda *at: None if (first := next(once, None)) is None else first(*at)
    )
    assert search._polish(40.0, svm.direction + 0.1).reason == "Newton's method found no descent"


def test_where_newton_s_method_is_impossible_the_rough_point_is_returned_with_a_reason() -> None:
    problem, svm = separable(0)
    search = BallSearch(problem, problem.optimal, svm)
    # Opposite to p_mm, other tokens are ahead by thousands of logits.
    rough = -svm.direction + np.eye(6)[0] * 0.1
    R = 1e4 / svm.margin
    result = search._polish(R, rough)
    assert result.reason == FLAT_RISK
    assert not result.interior
    assert result.p == pytest.approx(R * rough / np.linalg.norm(rough))
    assert result.offset == pytest.approx(result.p - (result.p @ svm.direction) * svm.direction, abs=1e-11 * R)


def test_the_part_across_the_ray_carries_no_rounding_of_the_part_along_it() -> None:
    problem, svm = separable(0)
    search = BallSearch(problem, problem.optimal, svm)
    p = 1e9 * svm.direction + np.arange(6.0)
    across = search._across(p)
    assert abs(across @ svm.direction) <= 64 * EPS * np.linalg.norm(across)
    assert across == pytest.approx(np.arange(6.0) - (np.arange(6.0) @ svm.direction) * svm.direction, abs=1e-5)


def test_a_valley_at_a_tiny_share_of_a_newton_step_is_found() -> None:
    """The rows of ATT-SVM are parallel up to 2^−20. Off the valley between them one logit outweighs the others, so that
    only the sphere has curvature and Newton's step is 10⁵ times too long.
    """
    tiny = 2.0**-20
    keys = np.array(
        [
            [[2, 3, -4, -6], [2 - 2 * tiny, 3 - 3 * tiny, -2, -3]],
            [[-4, 2, 6, -3], [0, 0, 2, -1]],
            [[9, 9, 3, 3], [9 - 3 * tiny, 9 - 3 * tiny, 3, 3]],
        ]
    )
    problem = Problem(keys, np.array([[1, 1 - tiny], [2, 0], [3, 3 - tiny]]), loss_named("exponential"))
    svm = max_margin(problem.keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    path = regularization_path(problem, [2e8], max_margin=svm)
    assert path.reasons == ("",)
    slope = Excess(problem, problem.optimal).value_and_slope(path.points[0])[1]
    along = path.points[0] / path.norms[0]
    assert np.linalg.norm(slope - (slope @ along) * along) < 1e-6 * np.linalg.norm(slope)
