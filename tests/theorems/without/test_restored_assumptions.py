"""Each counterexample with the missing assumption put back: the conclusion holds,
so its code is no verdict by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.finding import Finding
from reference_attention.directions import direction
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem
from tests.places import ROOT
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.counterexamples.record import load
from theorems.counterexamples.weakened_statements import weakened_named

FOLDER = ROOT / "counterexamples"
Restore = Callable[[Case], Case]


def with_problem(case: Case, **changed: Any) -> Case:
    return case.replace(problem=replace(case.problem, **changed))


def with_arrays(case: Case, **changed: Any) -> Case:
    return case.replace(arrays=MappingProxyType({**case.arrays, **{k: np.array(v) for k, v in changed.items()}}))


def linear_loss(case: Case) -> Case:
    return with_problem(case, loss=loss_named("correlation"))


def one_optimum(case: Case) -> Case:
    """All tokens but α score as low as the lowest."""
    others = np.arange(case.problem.T) != case.chosen_tokens[:, None]
    return with_problem(case, scores=np.where(others, case.problem.scores.min(), case.problem.scores))


def one_side(case: Case) -> Case:
    """All keys on one side of the best, which is at the origin."""
    return with_problem(case, keys=np.abs(case.problem.keys))


def reversed_scores(case: Case) -> Case:
    return with_problem(case, scores=-case.problem.scores)


def first_input(case: Case) -> Case:
    return with_problem(case, keys=case.problem.keys[:1], scores=case.problem.scores[:1])


def step_of_four(case: Case) -> Case:
    """η = 4/L_p, up to which the Hessian allows it: four times what the lemma asks for."""
    return with_arrays(case, eta=4 * math.exp(-case.problem.log_smoothness))


def comparable(case: Case) -> Case:
    """One direction wider than the other, both select the better of two tokens."""
    problem = Problem(np.array([[[-1.0, 0.0], [0.0, 0.0]]]), case.problem.scores, case.problem.loss)
    return with_arrays(case.replace(problem=problem), q1=[1.0, 1.0], q2=[1.0, 0.0])


def higher_neighbour(case: Case) -> Case:
    """The only directional neighbour of q1, which scored the same, scores higher."""
    scores = case.problem.scores.copy()
    first = direction(case.problem.keys, case.arrays["q1"])
    scores[first.neighbours] += 1.0
    return with_problem(case, scores=scores)


def other_lengths(case: Case) -> Case:
    """The differences of the second input are twice as long."""
    keys = case.problem.keys.copy()
    keys[1:] *= 2
    return with_problem(case, keys=keys)


def with_data(case: Case, **changed: Any) -> Case:
    assert case.dataset is not None
    data: Dataset = replace(case.dataset, **changed)
    return case.replace(dataset=data, problem=data.problem)


def positive(case: Case) -> Case:
    assert case.dataset is not None
    return with_data(case, Y=np.ones_like(case.dataset.Y))


def apart(case: Case) -> Case:
    """The second of two equal tokens is moved."""
    assert case.dataset is not None
    X = case.dataset.X.copy()
    X[:, 1] -= case.dataset.v
    return with_data(case, X=X)


def full_rank(case: Case) -> Case:
    return with_data(case, W=None)


def harmful_mixing(case: Case) -> Case:
    return with_arrays(case, head_features=-np.asarray(case.arrays["head_features"]))


def full_width(case: Case) -> Case:
    """K(0) with a second column."""
    return with_arrays(case, K0=np.asarray(case.arrays["K0"]) + np.array([[0.0, 1.0], [0.0, 1.0]]))


RESTORED: dict[tuple[str, str], Restore] = {
    ("lemma-4", "well-behaved-loss"): linear_loss,
    ("lemma-4", "strict-optimum"): one_optimum,
    ("lemma-4", "equal-non-optimal-scores"): one_optimum,
    ("lemma-4", "separable"): one_side,
    ("lemma-5", "well-behaved-loss"): linear_loss,
    ("lemma-5", "strict-optimum"): one_optimum,
    ("lemma-5", "equal-non-optimal-scores"): one_optimum,
    ("lemma-5", "separable"): one_side,
    ("lemma-5", "single-input"): first_input,
    ("lemma-6", "well-behaved-loss"): linear_loss,
    ("lemma-6", "step-size"): step_of_four,
    ("lemma-7", "well-behaved-loss"): linear_loss,
    ("lemma-7", "separable"): one_side,
    ("lemma-7", "locally-optimal"): reversed_scores,
    ("lemma-8", "well-behaved-loss"): linear_loss,
    ("lemma-8", "wider-direction"): comparable,
    ("lemma-8", "decided-neighbours"): higher_neighbour,
    ("lemma-9", "well-behaved-loss"): linear_loss,
    ("lemma-9", "higher-neighbours"): reversed_scores,
    ("lemma-10", "general-position"): other_lengths,
    ("lemma-11", "positive-labels"): positive,
    ("lemma-11", "strict-optimum"): apart,
    ("lemma-11", "head-in-key-range"): full_rank,
    ("lemma-14", "well-behaved-loss"): linear_loss,
    ("lemma-14", "mixing-hurts"): harmful_mixing,
    ("theorem-1", "well-behaved-loss"): linear_loss,
    ("theorem-1", "strict-optimum"): one_optimum,
    ("theorem-1", "separable"): one_side,
    ("theorem-8", "well-behaved-loss"): linear_loss,
    ("theorem-8", "mixing-hurts"): harmful_mixing,
    ("theorem-8", "separable-optimal-sets"): one_side,
    ("tsvm-factored-flow", "definite-imbalance"): full_width,
}


@pytest.mark.parametrize(("id", "without"), RESTORED, ids=[f"{a}-without-{b}" for a, b in RESTORED])
def test_with_the_assumption_back_the_conclusion_holds(id: str, without: str) -> None:
    weakened = weakened_named(id, without)
    case = load(FOLDER / f"{weakened.name}.json").case
    restored = RESTORED[id, without](case).normalise()
    assert weakened.statement.assumption(without).check(case).holds is False
    if without != "step-size":
        assert weakened.statement.assumption(without).check(restored).holds is True
    for kept in weakened.keeps:
        assert weakened.statement.assumption(kept).check(restored).holds is True, kept
    claims = list(weakened.conclusion(restored, REFERENCE))
    assert claims
    assert [c for c in claims if c.verdict is not Verdict.UPHELD] == []


@pytest.mark.parametrize(("factor", "fails"), [(4.0, False), (5.0, True)])
def test_four_over_the_smoothness_constant_is_a_safe_step_and_five_is_not(factor: float, fails: bool) -> None:
    """Lemma 6: the Hessian is at most L_p/4; at scores ±1000 of the logistic loss it nearly is."""
    problem = Problem(np.array([[[1.0], [-1.0]]]), np.array([[1000.0, -1000.0]]), loss_named("logistic"))
    eta = np.array(factor * math.exp(-problem.log_smoothness))
    case = Case(problem, start=np.zeros(1), arrays=MappingProxyType({"eta": eta}))
    (claim,) = weakened_named("lemma-6", "step-size").conclusion(case, REFERENCE)
    assert (claim.verdict is Verdict.FALSIFIED) is fails
    assert (-claim.slack > 100 * claim.tolerance) is fails


def test_a_tie_of_which_the_chosen_token_is_no_part_is_not_the_tie_that_was_meant() -> None:
    result: Finding = weakened_named("theorem-1", "strict-optimum").fails(
        Case(Problem(np.zeros((1, 3, 1)), np.array([[1.0, 1.0, 0.0]])), alpha=np.array([2]))
    )
    assert result.holds is None
