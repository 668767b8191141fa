"""The excess risk δ = L(p) − L_α, with L_α the risk if the tokens α have all weight, and its bounds of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from generators.user_data import Given, load, subject_of
from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import log_excess_risk
from tests.theorems import oracle
from tests.theorems.rounding.hard_problems import PROBLEMS, points_of
from theorems.bounded import Bounded, exact
from theorems.core.claim import Form, NotANumber, Verdict
from theorems.core.implementation import REFERENCE
from theorems.rounding.excess_risk import excess, excess_of, log_excess_of
from theorems.rounding.sized_numbers import Sized, at_least_in_units
from theorems.run.verify import verify_data


def used_of(problem: Problem, points: np.ndarray, alpha: np.ndarray, found: Sized) -> list[float]:
    """Return the share of the error bound that is used, at each point where the excess risk is not exactly 0."""
    used = []
    for p, x, error, unit in zip(points, found.x.value, found.x.error, found.log_unit, strict=True):
        with oracle.precision(oracle.bits_for(problem, p) + 200):
            truth = oracle.excess_risk(problem, p, alpha)
            if not np.isfinite(unit):
                assert truth.contains(0)
                continue
            off = abs(truth * (-oracle.arb(oracle.rational(float(unit)))).exp() - oracle.arb(oracle.rational(float(x))))
            used.append(float(off) / float(error))
    return used


def test_bounds_contain_the_true_excess_risk() -> None:
    """Optimal and random tokens α give δ of either sign, also with cancellation."""
    rng, used = np.random.default_rng(3), {"ours": [0.0], "reference": [0.0]}
    for problem in PROBLEMS:
        points = points_of(problem)
        for alpha in (problem.optimal, rng.integers(problem.T, size=problem.n)):
            used["ours"] += used_of(problem, points, alpha, excess(problem, points, alpha))
            theirs = excess_of(REFERENCE, problem, points, alpha, "x")
            used["reference"] += used_of(problem, points, alpha, theirs)
    print({name: (max(values), float(np.median(values))) for name, values in used.items()})
    for values in used.values():
        assert 1 / 500 < max(values) <= 1


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_an_excess_risk_far_below_the_smallest_float_keeps_its_digits(loss: str) -> None:
    """An excess of e^{−10⁶} has the relative error 10⁶ eps, that is, the absolute error of the logit 10⁶."""
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]), LOSSES[loss])
    result = excess(problem, np.array([[1e6]]), problem.optimal)
    assert result.log_unit[0] < -9e5
    assert result.x.error[0] < 1e6 * 8 * EPS * result.x.value[0]


def test_an_excess_of_uncertain_sign_has_an_absolute_bound() -> None:
    """Tokens of scores ±0.1 have equal weights beside a selected one of score 0, so δ is 0 up to terms that cancel."""
    problem = Problem(np.array([[[0.0], [1.0], [1.0]]]), np.array([[0.0, 0.1, -0.1]]), LOSSES["logistic"])
    result = excess(problem, np.array([[-0.7]]), np.array([0]))
    size = result.x.error[0] * np.exp(result.log_unit[0])
    assert abs(result.x.value[0]) <= result.x.error[0]
    assert size < 1e-16


def test_points_that_are_not_exact_give_wider_bounds() -> None:
    problem = PROBLEMS[0]
    points = points_of(problem)
    known, vague = (excess(problem, p, problem.optimal) for p in (points, Bounded(points, 1e-6 * np.abs(points))))
    with np.errstate(invalid="ignore"):
        wider = vague.x.error * np.exp(vague.log_unit - known.log_unit)
    moved = np.abs(points).max(axis=1) > 0
    assert (wider[moved] > 10 * known.x.error[moved]).any()


@pytest.mark.parametrize("wrong", [(np.nan, 0.0), (1.0, np.nan), (1.0, np.inf)])
def test_an_excess_that_is_nan_is_falsified(wrong: tuple[float, float]) -> None:
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))

    def broken(keys: Any, scores: Any, loss: Any, p: Any, alpha: Any) -> Any:
        return tuple(np.full(len(p), x) for x in wrong)

    with pytest.raises(NotANumber) as raised:
        excess_of(
            REFERENCE.replace("broken", {log_excess_risk: broken}), problem, np.ones((2, 1)), problem.optimal, "x"
        )
    assert [claim.verdict for claim in raised.value.claims] == [Verdict.FALSIFIED]


@pytest.mark.parametrize("size", [-np.inf, -6.0])
def test_a_negative_excess_where_the_true_one_is_positive_is_falsified(size: float) -> None:
    """The true excess is about e^{−5}; if the point is too uncertain to know the excess, its bound is infinite."""
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]), LOSSES["correlation"])

    def below(keys: Any, scores: Any, loss: Any, p: Any, alpha: Any) -> Any:
        return np.full(len(p), -1.0), np.full(len(p), size)

    wrong = REFERENCE.replace("below", {log_excess_risk: below})
    with pytest.raises(NotANumber):
        log_excess_of(wrong, problem, np.full((1, 1), 5.0), "x")
    vague = Bounded(np.full((1, 1), 5.0), 4.0)
    assert np.isinf(log_excess_of(wrong, problem, vague, "x").error).all()
    right = log_excess_of(REFERENCE, problem, np.full((1, 1), 5.0), "x")
    assert right.value[0] == pytest.approx(np.log(1 / (1 + np.exp(5.0))))


def test_numbers_with_different_scales_are_compared_in_the_larger_one() -> None:
    """Compare e^{−1000} + e^{−1001} with e^{−1000}(1 + 1/e), and 0 with −e^{−1000}."""
    tiny = Sized.exp(exact([-1000.0])) + Sized.exp(exact([-1001.0]))
    factor = np.log1p(np.exp(exact([-1.0])))
    for sign, verdict in ((1.0, Verdict.UPHELD), (-1.0, Verdict.FALSIFIED)):
        bound = Sized.exp(exact([-1000.0]) + factor * (1 - sign * 1e-10))
        assert at_least_in_units("a", Form.EFFECTIVE, tiny, bound).verdict is verdict
    nothing = Sized.exp(exact([-np.inf]))
    assert at_least_in_units("a", Form.EFFECTIVE, nothing, -tiny).verdict is Verdict.UPHELD
    assert at_least_in_units("a", Form.EFFECTIVE, nothing, tiny).verdict is Verdict.FALSIFIED


def test_an_excess_below_rounding_is_undecided() -> None:
    """The comparison of e^{−10} with 0 is undecided if the error is e^{−5}, and decided if it is e^{−20}."""

    def verdict(noise: float, larger: bool) -> Verdict:
        size = Sized.of(Bounded(np.exp([-10.0]), np.exp(noise)), np.zeros(1))
        nothing = Sized.exp(exact([-np.inf]))
        left, right = (size, nothing)[:: 1 if larger else -1]
        return at_least_in_units("a", Form.EFFECTIVE, left, right).verdict

    assert verdict(-5.0, True) is verdict(-5.0, False) is Verdict.INCONCLUSIVE
    assert verdict(-20.0, True) is Verdict.UPHELD
    assert verdict(-20.0, False) is Verdict.FALSIFIED


def test_lemma_8_is_upheld_at_norms_where_logits_have_no_digits() -> None:
    # At norms of 1e19, margins known up to a relative 1e-16 leave no digits of the logits.
    assert verify_data("lemma-8", load("figure-1b", 0)).verdict is Verdict.UPHELD


def test_an_excess_of_two_scales_beyond_the_range_of_exp_is_finite() -> None:
    """Keys that differ by 4e-9 and directions that differ by 9e-13 give one excess of e^{-1e18}, and a far
    smaller one.
    """
    data = {
        "keys": [
            [[0.0, 0.0], [-1.0, -1.0], [-2.0, 0.0], [-1.0000000037252903, 3.0]],
            [[0.0, 0.0], [-1.0, -1.0], [-2.0, 0.0], [-2.25, 0.0]],
        ],
        "scores": [[-1.0, -2.0, 0.0, -2.0], [0.0, -1.0, 1.0, 1.0]],
        "loss": "sigmoid",
        "arrays": {"q1": [1.0, 0.0], "q2": [1.0, 9.094947017729282e-13]},
    }
    assert verify_data("lemma-8", Given(subject_of(data))).verdict is Verdict.UPHELD
