"""The simplifier of counterexamples: it reaches the smallest case with a property, and keeps the property
throughout.
"""

from __future__ import annotations

import numpy as np
import pytest

from generators.case import Case
from reference_attention.losses import LOSSES
from reference_attention.problem import Dataset, Problem
from theorems.counterexamples.simplification import STEPS, Parts, _complexity, simplify_counterexample


def large() -> Case:
    rng = np.random.default_rng(1)
    keys, scores = rng.normal(size=(3, 4, 3)), rng.normal(size=(3, 4))
    return Case(Problem(keys, scores, LOSSES["logistic"]), start=rng.normal(size=3), seed=77)


def test_a_property_that_always_holds_leaves_the_smallest_case() -> None:
    small = simplify_counterexample(large(), lambda case: True)
    assert (small.problem.n, small.problem.T, small.problem.d) == (1, 2, 1)
    assert not small.problem.keys.any()
    assert not small.problem.scores.any()
    assert small.seed == 0
    assert small.problem.loss.name == "correlation"
    assert small.start is not None
    assert not small.start.any()


def test_numbers_that_the_property_needs_are_kept_and_rounded() -> None:
    def two_inputs_that_disagree(case: Case) -> bool:
        k = case.problem.keys
        return case.problem.n >= 2 and bool(k[0, 0, 0] > 1.7) and bool(k[1, 0, 0] < -0.3)

    case = large()
    keys = case.problem.keys.copy()
    keys[0, 0, 0], keys[1, 0, 0] = 1.83, -0.41
    small = simplify_counterexample(
        case.replace(problem=Problem(keys, case.problem.scores, case.problem.loss)), two_inputs_that_disagree
    )
    assert two_inputs_that_disagree(small)
    assert (small.problem.n, small.problem.T, small.problem.d) == (2, 2, 1)
    assert small.problem.keys[0, 0, 0] == 2
    assert small.problem.keys[1, 0, 0] in (-1.0, -0.5)


def test_equal_scores_stay_equal() -> None:
    scores = np.array([[0.731, 0.205, 0.205]])

    def tied(case: Case) -> bool:
        g = case.problem.scores[0]
        return bool(g[1] == g[2] < g[0]) if len(g) == 3 else False

    keys = np.random.default_rng(0).normal(size=(1, 3, 2))
    small = simplify_counterexample(Case(Problem(keys, scores, LOSSES["logistic"])), tied)
    assert sorted(set(small.problem.scores.ravel())) in ([-1.0, 0.0], [0.0, 1.0])


def test_chosen_tokens_are_renumbered_when_tokens_are_dropped() -> None:
    case = large().replace(alpha=np.array([3, 1, 2]))
    chosen = [tuple(case.problem.keys[i, a]) for i, a in enumerate(case.alpha)]  # type: ignore[arg-type]

    def still(other: Case) -> bool:
        assert other.alpha is not None
        held = [tuple(other.problem.keys[i, a]) for i, a in enumerate(other.alpha)]
        return held == chosen

    small = simplify_counterexample(case, still)
    assert small.problem.T == 2
    assert still(small)


def test_keys_are_recomputed_when_tokens_labels_or_head_are_simplified() -> None:
    rng = np.random.default_rng(2)
    data = Dataset(rng.normal(size=(2, 3, 3)), np.array([1.0, -1.0]), rng.normal(size=3), None, LOSSES["logistic"])
    case = Case(data.problem, dataset=data)

    def still(other: Case) -> bool:
        assert other.dataset is not None
        return np.array_equal(other.dataset.problem.keys, other.problem.keys)

    small = simplify_counterexample(case, still)
    assert small.dataset is not None
    assert small.dataset.X.shape == (1, 2, 1)


def test_the_number_of_simplifying_steps_is_bounded() -> None:
    calls = 0

    def never(case: Case) -> bool:
        nonlocal calls
        calls += 1
        return False

    case = large()
    assert simplify_counterexample(case, never) is not None
    assert calls <= STEPS


@pytest.mark.parametrize("name", ["keys", "scores", "start"])
def test_a_case_is_rebuilt_from_its_parts(name: str) -> None:
    case = large()
    again = Parts.of(case).build()
    assert again is not None
    made = {"keys": again.problem.keys, "scores": again.problem.scores, "start": again.start}[name]
    assert np.array_equal(made, {"keys": case.problem.keys, "scores": case.problem.scores, "start": case.start}[name])


def test_numbers_are_ordered_from_simple_to_complicated() -> None:
    ordered = (0.0, 1.0, -1.0, 2.0, 10.0, 30.0, 100.0, 1600.0, 4194304.0)
    costs = [_complexity(x) for x in ordered]
    assert costs == sorted(costs)
    assert len(set(costs)) == len(costs)
    assert _complexity(0.5) < _complexity(0.25) < _complexity(0.3) < _complexity(1 / 3)
    assert _complexity(1e6) < _complexity(999981.5) < _complexity(0.1 + 0.2)
