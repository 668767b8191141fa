"""The constants C⁻, C⁺ and C of Lemma 7 carry the rounding of their own formulas, compared with ball arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb, fmpq

from generators.case import Case
from generators.margin_assumptions import difference_rows, dot
from reference_attention.exact import rational
from tests.theorems import oracle
from tests.theorems.token_selection.local_paths.local_problems import (
    HAND_MADE,
    constants_of,
    nearly_neighbour,
    random_cases,
)
from theorems.bounded import Bounded
from theorems.token_selection.local_paths.local_constants import LocalConstants

PROBLEMS = [*random_cases(12, seed=21), nearly_neighbour(0.05), HAND_MADE["wrong-sign-input"], HAND_MADE["long-offset"]]


def true_logs(constants: LocalConstants, rho: float) -> dict[str, arb]:
    """Return log C⁻, log C⁺ and log C, summed token by token, by the formulas in the docstring of Lemma 7's
    constants.
    """
    problem, alpha, P = constants.problem, constants.solution.alpha, arb(constants.solution.exact.norm_squared).sqrt()
    harmful, p, R = constants.harmful, list(constants.solution.exact.p), arb(rho)
    rows = difference_rows(problem.keys, alpha)
    margin, tilt, size, gap = {}, {}, {}, {}
    for (i, t), row in rows.items():
        size[i, t] = arb(sum((x * x for x in row), fmpq(0))).sqrt()
        tilt[i, t] = P * size[i, t] * (2 * arb(constants.mu)).sqrt()
        margin[i, t] = arb(dot(row, p))
        scores = problem.scores[i].tolist()
        gap[i, t] = arb(rational(scores[alpha[i]]) - rational(scores[t]))
    low, high, u = {}, {}, []
    for i in range(problem.n):
        mine = [pair for pair in rows if pair[0] == i]
        u.append(sum((-R * (margin[x] - tilt[x])).exp() for x in mine))
        mixing = u[i] * max((abs(gap[x]) for x in mine), key=float)
        chosen = arb(float(problem.scores[i, alpha[i]]))
        ends = (
            (arb(float(problem.scores[i].min())), chosen - mixing),
            (arb(float(problem.scores[i].max())), chosen + mixing),
        )
        least, most = max(ends[0], key=float), min(ends[1], key=float)
        # Monotone slopes are extreme at the ends of the interval, that of the sigmoid loss perhaps at 0.
        slopes = [slope(problem.loss.name, u) for u in (least, most, *([arb(0)] if least < 0 < most else []))]
        for x in mine:
            low[x] = min(slopes, key=float) * (gap[x] - mixing) / (1 + u[i])
            high[x] = max(slopes, key=float) * (abs(gap[x]) + mixing)
    good = [x for x in rows if not harmful[x]]
    bad = [x for x in rows if harmful[x]]
    base = min((margin[x] - tilt[x] for x in good), key=float)
    support = min((low[x] for x in rows if constants.solution.duals[x] > 0), key=float)
    lost = sum((high[x] * (-R * (margin[x] - 1 - tilt[x])).exp() * (margin[x] + tilt[x]) for x in bad), arb(0))
    phi = 1 - lost / (base * support)
    inputs = [[x for x in bad if x[0] == i] for i in range(problem.n)]
    strays = [sum(((-R * (margin[x] - 1 - tilt[x])).exp() for x in mine), arb(0)) for mine in inputs]
    beta = (1 + max(u, key=float)) * max(strays, key=float)
    weakest = min((low[x] * (1 + u[x[0]]) for x in good), key=float)
    largest = [max((high[x] * size[x] for x in rows if x[0] == i), key=float) for i in range(problem.n)]
    return {
        "lower": (phi * base * weakest / (problem.n * P * (1 + beta))).log(),
        "upper": (sum(largest, arb(0)) / problem.n).log(),
        "descent": (phi * support / (problem.n * P)).log(),
    }


def slope(loss: str, u: arb) -> arb:
    """Return |ℓ'(u)|."""
    slopes = {"correlation": arb(1), "exponential": (-u).exp(), "logistic": 1 / (1 + u.exp())}
    return (slopes | {"sigmoid": slopes["logistic"] / (1 + (-u).exp())})[loss]


@pytest.mark.parametrize("level", [1.0, 3.0, 30.0])
def test_logarithms_of_constants_are_within_their_error_bounds(level: float) -> None:
    """All constants are within their error bounds, and some error uses at least a five-hundredth of its bound."""
    used = []
    for example in PROBLEMS:
        constants = constants_of(example)
        rho = level * constants.base_rho
        carrying = constants.carrying
        result: dict[str, Bounded] = {
            "lower": carrying.log_lower(rho),
            "upper": carrying.log_upper(rho),
            "descent": carrying.log_descent(rho, axis=True),
        }
        with oracle.precision(4000):
            for name, truth in true_logs(constants, rho).items():
                value, error = float(result[name].value), float(result[name].error)
                used.append(float(abs(arb(value) - truth)) / error)
                assert used[-1] <= 1, (name, example.seed)
    assert max(used) > 1 / 500


def test_constants_in_floats_agree_with_those_with_error_bounds() -> None:
    for example in PROBLEMS:
        constants = constants_of(example)
        rho, carrying = constants.base_rho, constants.carrying
        for name in ("log_lower", "log_upper", "log_descent"):
            plain, carried = getattr(constants, name)(rho), getattr(carrying, name)(rho)
            assert not isinstance(plain, Bounded)
            assert abs(plain - carried.value) <= 8 * carried.error + 1e-13 * abs(plain)


def test_constants_are_finite_for_a_token_that_scores_like_alpha() -> None:
    """The score gap is 0 and its correction underflows, yet logarithms of the constants are finite."""
    example = nearly_neighbour(1.0)
    problem = example.problem
    tied = Case(type(problem)(problem.keys, np.array([[0.0, -1.0, 0.0]]), problem.loss), alpha=example.alpha)
    constants = constants_of(tied)
    rho = 2000.0
    assert constants.harmful[0, 2]
    assert constants.carrying.log_upper(rho).error < 1e-9
    assert constants.carrying.log_descent(rho).error < 1e-9
