"""Strategies for cases with a direction: promised properties hold by construction, corners occur, and examples
shrink.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.direction_cases import direction_cases, pair_cases
from generators.direction_keys import levels_allowed
from reference_attention.directions import direction, neighbour_optimal, not_below
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin

THEOREM_4 = ("distinct-scores", "general-position", "direction-given", "not-locally-optimal-direction")


@given(direction_cases())
def test_theorem_4_holds_by_construction(case: Case) -> None:
    for id in THEOREM_4:
        finding = ASSUMPTIONS[id].check(case)
        assert finding.holds, (id, finding.evidence)


@given(direction_cases(kinds=("higher",), general=False))
def test_higher_neighbours_hold_by_construction(case: Case) -> None:
    assert ASSUMPTIONS["higher-neighbours"].check(case).holds


@given(pair_cases())
def test_pairs_satisfy_their_assumptions_by_construction(case: Case) -> None:
    for id in ("wider-direction", "decided-neighbours"):
        assert ASSUMPTIONS[id].check(case).holds


@pytest.mark.parametrize("kind", ["lower", "mixed", "tied", "near", "higher"])
def test_each_kind_of_direction_has_its_property(kind: str) -> None:
    @settings(max_examples=25)
    @given(direction_cases(kinds=(kind,)))  # type: ignore[arg-type]
    def check(case: Case) -> None:
        result, scores = direction(case.problem.keys, case.arrays["q"]), case.problem.scores
        assert result.unique == (kind != "tied")
        if kind != "tied":
            assert neighbour_optimal(result, scores) == (kind in ("lower", "near"))
        if kind == "higher":
            assert len(not_below(result, scores)) == int(result.neighbours.sum())
        if kind == "near":
            solution = max_margin(case.problem.keys, result.best(scores))
            assert isinstance(solution, MaxMargin)
            assert 0 < np.linalg.norm(result.unit - solution.direction) < 2.0**-8

    check()


def test_the_corners_of_cases_with_a_direction_occur() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=150, phases=(Phase.generate,))
    @given(direction_cases())
    def look(case: Case) -> None:
        result, d = direction(case.problem.keys, case.arrays["q"]), case.problem.d
        seen["d neighbours"] += int(result.neighbours.sum()) == d > 1
        seen["d − 1 ties"] += int(result.selected.sum()) - case.problem.n == d - 1 > 0
        seen["d = 1"] += d == 1
        seen["several inputs"] += case.problem.n > 1
        seen["no neighbour"] += not result.neighbours.any()
        seen["far units"] += not 2.0**-30 < case.problem.key_scale < 2.0**30
        seen["a long or a short q"] += not 2.0**-40 < np.linalg.norm(case.arrays["q"]) < 2.0**40
        seen["higher-scoring token"] += bool((case.problem.gaps(result.best(case.problem.scores)) < 0).any())

    look()
    names = ("d neighbours", "d − 1 ties", "d = 1", "several inputs", "higher-scoring token", "no neighbour")
    names = (*names, "far units", "a long or a short q")
    assert all(seen[name] for name in names), seen


def test_cases_with_a_direction_shrink_to_small_data() -> None:
    small = find(direction_cases(), lambda case: True)
    assert small.problem.keys.size <= 6
    assert np.abs(small.problem.keys).max() <= 3  # where the shrinker stops depends on the draws


def test_levels_of_logits_are_not_allowed_where_general_position_excludes_them() -> None:
    assert levels_allowed(np.array([[0.0, 1.0, 1.0]]), 2)
    assert not levels_allowed(np.array([[0.0, 1.0, 1.0]]), 1), "two rows of level 1 in one dimension"
    assert not levels_allowed(np.array([[0.0, 0.0]]), 1), "a tie in one dimension is a zero row"
    assert not levels_allowed(np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 3.0], [0.0, 1.0, 7.0]]), 2)


PROBLEM = Problem(np.array([[[0.0, 0.0], [-1.0, 0.0]]]), np.array([[0.0, -1.0]]))


@pytest.mark.parametrize(
    "id", ["direction-given", "not-locally-optimal-direction", "wider-direction", "higher-neighbours"]
)
def test_without_a_direction_nothing_is_established(id: str) -> None:
    assert ASSUMPTIONS[id].check(Case(PROBLEM)).holds is None


def test_an_lmm_direction_violates_the_assumption_and_a_nearby_one_does_not() -> None:
    def holds(q: list[float], scores: list[float] | None = None) -> bool | None:
        other = PROBLEM if scores is None else Problem(PROBLEM.keys, np.array([scores]))
        return ASSUMPTIONS["not-locally-optimal-direction"].check(Case(other, arrays={"q": np.array(q)})).holds

    assert holds([3.0, 0.0]) is False
    assert holds([3.0, 1e-130]) is True
    assert holds([1.0, 1e-6]) is True
    assert holds([1.0, 0.0], [0.0, 1.0]) is True, "max-margin, but not locally optimal"
    assert holds([0.0, 1.0]) is True, "a tie"
