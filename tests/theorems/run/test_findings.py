"""What is found about assumptions on a user's data: short in the table, exact in the JSON, in the units of the data."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from flint import fmpq
from hypothesis import strategies as st

from generators.case import Case
from reference_attention.problem import Problem
from theorems.core.check import check
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import statement
from theorems.library.verify import verify

BETWEEN = Problem(np.random.default_rng(0).normal(size=(3, 8, 2)), np.random.default_rng(1).normal(size=(3, 8)))
"""Data whose optimal tokens no p separates; the proof has three multipliers of many digits."""


def test_the_json_has_the_rationals_that_decide_an_assumption_only_once() -> None:
    results = verify(BETWEEN, "lemma-4", "lemma-7")
    record = {assumption["id"]: assumption for assumption in json.loads(results.to_json())["assumptions"]}
    multipliers = [fmpq(*map(int, text.split("/"))) for text in record["separable"]["exact"]["λ"].values()]
    assert sum(multipliers, fmpq(0)) == 1
    assert max(len(str(x)) for x in multipliers) > 40
    assert record["locally-optimal"]["exact_of"] == "separable"
    assert "exact" not in record["locally-optimal"]
    assert max(len(result.reason) for result in results) < 250
    assert results.to_json().count(str(multipliers[0])) == 1


def test_the_json_of_generated_cases_has_no_assumptions() -> None:
    assert "assumptions" not in json.loads(verify("lemma-10", examples=1).to_json())


@statement("in-the-cone", "starts in the cone", assumptions=("in-cone",), cases=st.nothing)
def in_the_cone(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a trivial claim."""
    yield at_least("nothing", Form.EXACT, 0.0, 0.0)


def test_the_reason_why_an_assumption_fails_is_in_the_units_of_the_data() -> None:
    """Keys of size 64 are scaled to size one before a statement is checked, but ‖p(0)‖ is printed for the given
    keys.
    """
    case = Case(
        Problem([[[64, 0], [0, 0]]], [[1, 0]]),
        start=np.array([0.25, 0.0]),
        arrays={"cone_mu": np.array(0.5), "cone_radius": np.array(0.375)},
    )
    assert check(in_the_cone, case, REFERENCE).reason == "in-cone: ‖p(0)‖ = 0.25 is below R = 0.375"
