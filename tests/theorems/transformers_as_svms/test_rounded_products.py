"""Tokens and queries whose products are not floats, such as decimals and pixels, raise no false alarm.

If tokens differ by a thousandth, differences of rounded keys have few digits.
"""

from __future__ import annotations

import numpy as np
import pytest

from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.query_dataset import QueryDataset
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.run.registry.lookup import statement_named

STATEMENTS = (
    *("tsvm-risk-floor", "tsvm-first-step", "tsvm-no-stationary-point", "tsvm-frobenius-path"),
    *("tsvm-nuclear-path", "tsvm-local-path", "tsvm-rank"),
)


def _case(X: list[list[list[float]]], queries: list[list[float]]) -> Case:
    n, d = len(X), len(X[0][0])
    data = QueryDataset(np.array(X), np.array(queries), np.ones(n), np.eye(d)[0])
    return Case(data.problem, queried=data)


CASES = {
    "decimals": _case([[[0.9], [0.9009]]], [[0.7]]),
    "a constant coordinate": _case([[[0.1, 0.7], [0.1001, 0.7]]], [[0.3]]),
    "pixels": _case([[[1 / 255, 7 / 255], [1.001 / 255, 7 / 255]]], [[1 / 255, 7 / 255]]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_are_upheld_on_rounded_products(statement: str, name: str) -> None:
    case = CASES[name]
    assert case.problem.factors is not None
    outcome = check(statement_named(statement), case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_a_path_on_tokens_that_differ_in_their_tenth_digit_is_upheld() -> None:
    """The minimiser for rounded keys is 1e-9 from that predicted from exact products, which the tolerance allows."""
    near = np.array(
        [
            [2.87e-10, 2.05e-10, 8.33e-10, -7.28e-10, 0.0],
            [0.0, 5.33e-10, 2.53e-10, -3.68e-10, 1.78e-10],
            [0.0, -1.94e-10, 0.0, -9.81e-10, 1e-09],
        ]
    )
    tokens = np.array([0.0, 0.194, 0.0, 0.981, 0.0]) + np.vstack([np.zeros(5), near])
    data = QueryDataset(
        tokens[None],
        np.array([[0.0, 0.194, 0.0, 0.981, 0.0]]),
        np.ones(1),
        np.array([-0.75732421875, 0.3515625, -0.1851806640625, 2.275390625, 2.05078125]),
        loss=loss_named("correlation"),
    )
    outcome = check(statement_named("tsvm-frobenius-path"), Case(data.problem, queried=data, seed=29678), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("tsvm-risk-floor", "temperature"),
        ("tsvm-first-step", "negated-gradient"),
        ("tsvm-first-step", "rolled-coordinates"),
        ("tsvm-no-stationary-point", "one-coordinate-off"),
        ("tsvm-frobenius-path", "svm-scaled"),
    ],
)
def test_faults_are_caught_on_rounded_products(statement: str, fault: str) -> None:
    outcome = check(statement_named(statement), CASES["a constant coordinate"], fault_named(fault).implementation)
    assert outcome.verdict is Verdict.FALSIFIED, outcome.reason
