"""The statement on optimal tokens that no prompt selects on all inputs at once: on fixed and drawn cases, and with
planted faults.

A prompt that gives no token a larger logit than the optimal ones ties some tokens with them; the finite part of the
flow's limit is in the span F of the tied differences of keys, its direction in the complement U.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from generators.assumptions import assumption_named
from generators.case import Case
from reference_attention.next_token.unwinnable_scores import score_split
from reference_attention.problem import Problem
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import split_faults
from theorems.run.registry.lookup import statement_named
from theorems.run.verify import draw_cases
from theorems.token_selection.global_paths import unwinnable_scores as module

STATEMENT = statement_named("unwinnable-scores")
OPPOSED = Case(Problem([[[1, 0], [0, 0]], [[-1, 0], [0, 0]], [[0, 1], [0, 0]]], [[1.0, 0.0]] * 3), seed=1)
"""Two inputs whose optimal tokens need opposite prompts, and a third input whose optimal token can be selected."""
OBLIQUE = Case(
    Problem(
        [[[2.0, 1.0], [0.0, 0.0]], [[-1.0, -0.5], [0.0, 0.0]], [[0.3, 1.0], [0.0, 0.0]]],
        [[2.0, 0.0], [1.0, 0.5], [1.0, 0.0]],
    ),
    seed=2,
)
UNEQUAL = Case(Problem(OPPOSED.problem.keys, [[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), seed=3)
"""A case in which the finite part of the limit is not 0."""
COPY = Case(Problem([[[1.0], [1.0]], [[1.0], [0.0]]], [[1.0, 0.0]] * 2), seed=4)
"""A case in which the optimal token has a copy of lower score, so F = {0}."""
NOTHING_FREE = Case(Problem(OPPOSED.problem.keys[:2, :, :1], [[1.0, 0.0]] * 2), seed=5)
"""A case in which all tokens tie, so U = {0}."""
FIXED = [OPPOSED, OBLIQUE, UNEQUAL, COPY, NOTHING_FREE]
DRAWN = list(draw_cases(STATEMENT, 40, 0))


@pytest.mark.parametrize("case", [*FIXED, *DRAWN])
def test_unwinnable_scores_is_upheld(case: Case) -> None:
    outcome = check(STATEMENT, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_every_claim_on_unwinnable_scores_is_made_on_some_case() -> None:
    made = {claim.name for case in DRAWN for claim in check(STATEMENT, case, REFERENCE).claims}
    assert made == set(STATEMENT.claims)
    names = {claim.name for claim in check(STATEMENT, UNEQUAL, REFERENCE).claims}
    assert names == set(STATEMENT.claims)


@pytest.mark.parametrize("fault", split_faults.FAULTS, ids=lambda fault: str(fault.name))
def test_a_planted_fault_is_caught(fault: object) -> None:
    wrong = fault.implementation  # type: ignore[attr-defined]
    assert any(check(STATEMENT, case, wrong).verdict is Verdict.FALSIFIED for case in [UNEQUAL, *DRAWN])


def test_the_assumption_that_optimal_tokens_tie_is_decided() -> None:
    tied = assumption_named("optimal-tokens-tied")
    for case in [*FIXED, *DRAWN]:
        assert tied.check(case).holds
        assert score_split(case.problem) is not None
    free = Case(Problem(OPPOSED.problem.keys[1:], [[1.0, 0.0]] * 2))
    assert tied.check(free).holds is False
    assert check(STATEMENT, free, REFERENCE).verdict is Verdict.NOT_APPLICABLE
    even = Case(Problem(OPPOSED.problem.keys, [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    assert tied.check(even).holds is False


def test_drawn_data_have_every_kind_of_tie_and_finite_part() -> None:
    splits = [split for case in DRAWN if (split := score_split(case.problem)) is not None]
    assert {0, 1, 2, 3} <= {len(split.level) for split in splits}
    assert any(not split.across.size for split in splits)
    assert any(split.convex for split in splits)
    assert any(not split.bounds_risk for split in splits)
    rests = [split.rest_near(np.zeros(len(split.level))) for split in splits if split.convex]
    assert any(rest is not None and (np.abs(rest) > 0.1).any() for rest in rests)


def test_a_missing_split_is_undecided_and_a_nan_is_falsified() -> None:
    nothing = REFERENCE.replace("", {score_split: lambda problem: None})
    assert check(STATEMENT, OPPOSED, nothing).verdict is Verdict.INCONCLUSIVE

    class Broken(module.ScoreSplit):
        def risk_within(self, x: object) -> float:
            return float("nan")

    def broken(problem: Problem) -> module.ScoreSplit:
        split = score_split(problem)
        assert split is not None
        return Broken(split.problem, split.master, split.supports, split.svm)

    outcome = check(STATEMENT, OPPOSED, REFERENCE.replace("", {score_split: broken}))
    assert outcome.verdict is Verdict.FALSIFIED
    assert "not finite" in outcome.reason


def test_a_result_that_reports_no_ties_is_refuted() -> None:
    """A result in which no token ties is refuted, although its weights, of which there are none, are all positive."""

    def untied(problem: Problem) -> module.ScoreSplit:
        split = score_split(Problem(problem.keys, problem.scores, problem.loss))
        assert split is not None
        sets = split.master.supports
        return replace(split, supports=replace(split.supports, sets=sets, tying={}, levelling={}))

    outcome = check(STATEMENT, OPPOSED, REFERENCE.replace("", {score_split: untied}))
    assert outcome.verdict is Verdict.FALSIFIED
    assert outcome.claims[-1].name == module.TIED
