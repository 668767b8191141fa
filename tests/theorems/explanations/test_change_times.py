"""Times at which a flow leaves the tokens of the trained weights: they equal those of gradient descent with short
steps, and are put into words.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from generators.finding import format_tokens
from theorems.explanations.change_times import ChangeTimes, change_times
from theorems.explanations.sentences import paragraphs
from theorems.library.explain import explain

DATA = {"keys": [[[-0.1, 1], [1, 0], [0, 0]]], "scores": [[1, 0.9, 0]], "p": [4.0, 2.0]}
"""The data of Figure 1(b), with a p that gives token 1 the largest weight; the flow then moves to token 0."""
FACTORS = {
    "X": [[[2.0, 1.0], [0.0, 1.0], [1.0, -1.0]]],
    "queries": [[1.0, 0.5]],
    "Y": [1.0],
    "v": [-0.2, 1.0],
    "K_trained": [[0.5], [0.25]],
    "Q_trained": [[0.5], [0.25]],
}
"""A rank-one layer that gives token 0 the largest weight."""
ETA = 0.01


def time_of_change(keys: np.ndarray, scores: np.ndarray, p: np.ndarray, factors: bool) -> float:
    """Return η times the number of steps that gradient descent on p, or on factors of p, takes until another token has
    the largest weight.
    """
    first = int((keys @ (np.outer(*p).ravel() if factors else p)).argmax())
    for steps in range(1, 1_000_000):
        vector = np.outer(*p).ravel() if factors else p
        s = np.exp(keys @ vector - (keys @ vector).max())
        s /= s.sum()
        uphill = keys.T @ (s * (scores - s @ scores)) / (1 + math.exp(s @ scores))
        if factors:
            matrix = uphill.reshape(2, 2)
            p = p + ETA * np.array([matrix @ p[1], matrix.T @ p[0]])
        else:
            p = p + ETA * uphill
        if int((keys @ (np.outer(*p).ravel() if factors else p)).argmax()) != first:
            return ETA * steps
    raise AssertionError("the token does not change")


def test_the_flow_on_p_changes_tokens_when_gradient_descent_does() -> None:
    it: Any = explain(DATA)
    times = change_times(it.case.problem, it.path.flow.points, it.path.flow.log_time)
    expected = time_of_change(*map(np.array, (DATA["keys"][0], DATA["scores"][0], DATA["p"])), factors=False)
    assert times is not None
    assert times.first == times.last
    assert times.first[0] < math.log(expected) < times.first[1]
    assert times.sentence in paragraphs(it)[1]
    assert "training in longer steps, or by another rule, may end at other tokens (--rule NAME" in paragraphs(it)[1]
    assert "(--rule" not in paragraphs(explain(DATA, rules=["gd-1"]))[1]  # type: ignore[arg-type]


def test_the_flow_on_factors_changes_tokens_when_their_gradient_descent_does() -> None:
    it: Any = explain(FACTORS)
    times = it.ends[-1].changes
    X, z = np.array(FACTORS["X"][0]), np.array(FACTORS["queries"][0])
    start = np.array([np.ravel(FACTORS["K_trained"]), np.ravel(FACTORS["Q_trained"])])
    keys = np.einsum("td,e->tde", X, z).reshape(3, 4)
    expected = time_of_change(keys, X @ np.array(FACTORS["v"]), start, factors=True)
    assert times.first[0] < math.log(expected) < times.first[1]
    assert f"largest weights at {format_tokens(it.ends[-1].selects)}. {times.sentence}" in paragraphs(it)[1]
    written = json.loads(it.to_json())["ends"][-1]["changes"]
    assert written["first_log_time"] == [x if math.isfinite(x) else None for x in times.first]


def test_a_flow_that_keeps_its_tokens_has_no_times_of_change() -> None:
    it: Any = explain(DATA | {"p": [-1.0, 4.0]})
    assert change_times(it.case.problem, it.path.flow.points, it.path.flow.log_time) is None
    assert "It keeps the tokens of largest weight. Its direction" in paragraphs(it)[1]


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [
        ((math.log(11.5), math.log(23.1)), (math.log(11.5), math.log(23.1)), "after 11/η to 24/η steps."),
        ((-math.inf, math.log(99)), (5.0, math.inf), "after at most 99/η steps, the last after more than 1.4e+02/η."),
        ((2000.0, 3000.0), (2000.0, 3000.0), "after 3.8e+868/η to 7.7e+1302/η steps."),
    ],
)
def test_the_earlier_time_is_rounded_down_and_the_later_up(
    first: tuple[float, float], last: tuple[float, float], says: str
) -> None:
    assert ChangeTimes(first, last).sentence.endswith(f"changes the first of these tokens {says}")
