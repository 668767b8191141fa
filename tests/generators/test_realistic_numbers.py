"""Realistic numbers in drawn cases: exact assumptions, how often each kind is drawn, neighbours without a dual,
shrinking.

A neighbour of a chosen token has margin 1; its dual may nevertheless be zero in every dual solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from generators import problem_cases, realistic_keys
from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.hypothesis_driver import drawing_from_the_seed_alone, each_case_drawn_anew
from generators.idle_neighbours import solver, with_idle_neighbour
from generators.numbers import MODERATE, Frame
from generators.problems import cases
from generators.realistic_numbers import (
    EVERY,
    SHORT,
    Grid,
    Kind,
    grids,
    in_bfloat16,
    levels,
    realistic,
    repeated_inputs,
)
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.generators.test_strategies import COMBINATIONS, broken_assumptions
from theorems.run.registry.lookup import statement_named

EXAMPLES = 60
OWN = [id for id in COMBINATIONS if not {"general-position", "optimal-tokens", "optimal-support-tokens"} & {*id}]
LATER = {"prompt-selects", "descent-selects", "in-cone", "step-size"}
"""Assumptions that data alone do not decide, because they depend on a statement's constants or on a run."""


def sample(strategy: SearchStrategy[Any], examples: int = EXAMPLES) -> list[Any]:
    """Return the same draws in every run."""
    drawn: list[Any] = []

    # Only the health check for slowness is off: filter_too_much would show that the data are filtered, not constructed.
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(strategy)
    def collect(one: Any) -> None:
        drawn.append(one)

    with drawing_from_the_seed_alone(), each_case_drawn_anew():
        collect()
    return drawn


@pytest.fixture
def users_only() -> Iterator[None]:
    """Make every case realistic if its assumptions allow realistic numbers."""
    with realistic(True):
        yield


@pytest.mark.parametrize("kind", EVERY)
def test_adjacent_levels_of_a_grid_are_different_floats_in_order(kind: Kind) -> None:
    for grid in sample(grids(2, (kind,)), 30):
        every = np.arange(grid.low, grid.high - grid.least + 1)[:, None] * np.ones(2, dtype=np.int64)
        assert (grid.values(every) < grid.values(every + grid.least)).all()
        assert (grid.values(np.zeros((1, 2), dtype=np.int64)) == 0).all()


def test_each_kind_of_numbers_is_drawn_about_as_often_as_any_other() -> None:
    # An integer is drawn too, because Hypothesis drops repeated draws and there is only one grid of zeros and ones.
    kinds = Counter(grid.kind for grid, _ in sample(st.tuples(grids(3), st.integers(0, 2**32)), 420))
    assert set(kinds) == set(EVERY)
    assert all(35 <= count <= 95 for count in kinds.values()), kinds
    assert {grid.kind for grid in sample(grids(3, SHORT))} == set(SHORT)


def test_grids_of_several_units_and_of_unit_norm_are_drawn() -> None:
    drawn = sample(grids(3), 400)
    scale = [(grid.factor[0] / grid.factor[1]).tolist() for grid in drawn if grid.kind is Kind.DECIMALS]
    assert {0.01, 0.001, 1e-5, 10.0, 1.0} <= {x for row in scale for x in row}
    assert any(len(set(row)) > 1 for row in scale)
    assert {grid.unit_norm for grid in drawn if grid.kind is Kind.TF_IDF} == {False, True}


@st.composite
def tokens_of(draw: DrawFn, kind: Kind) -> tuple[Grid, Any]:
    grid = draw(grids(5, (kind,), scaled=False))
    return grid, grid.values(draw(levels(Frame(3, 5, 5, (3, 5, 5)), grid)))


FORMATS: dict[Kind, Callable[[Any], Any]] = {
    Kind.SPARSE: lambda x: x == np.rint(x),
    Kind.ONE_HOT: lambda x: (x == 0) | (x == 1),
    Kind.DECIMALS: lambda x: [float(f"{y:.3f}") == y for y in x.ravel().tolist()],
    Kind.FLOAT16: lambda x: x.astype(np.float16).astype(float) == x,
    Kind.BFLOAT16: lambda x: x.astype(np.float32).view(np.uint32) % 2**16 == 0,
    Kind.PIXELS: lambda x: [y in {k / 255 for k in range(256)} for y in x.ravel().tolist()],
    Kind.TF_IDF: lambda x: x >= 0,
}


@pytest.mark.parametrize("kind", EVERY)
def test_drawn_numbers_have_the_format_of_their_kind(kind: Kind) -> None:
    drawn = sample(tokens_of(kind), 40)
    assert all(np.all(FORMATS[kind](x)) for _, x in drawn)
    sparse = [np.mean(x == 0) for grid, x in drawn if grid.sparse]
    assert not sparse or np.mean(sparse) > 0.5


def test_numbers_in_bfloat16_are_rounded_to_nearest() -> None:
    x = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -3.14159, 0.0, 2.0**-9])
    assert in_bfloat16(x).tolist() == [1.0, 1.0, 1 + 2.0**-6, -3.140625, 0.0, 2.0**-9]


@st.composite
def separated(draw: DrawFn) -> tuple[Any, Any, Any]:
    """Draw keys, α, and a mask of the tokens from which α is to be separated."""
    n, T, d = (draw(st.integers(low, high)) for low, high in ((1, 3), (2, 5), (1, 4)))
    frame = Frame(n, T, d, (3, 5, 4))
    repeats = draw(repeated_inputs(n))
    alpha = draw(frame.integers("n", 0, T - 1))[repeats]
    constrained = draw(frame.choices("nT", (True, True, False)))[repeats]
    constrained[0, (alpha[0] + 1) % T] = True
    constrained = constrained[repeats]
    return draw(realistic_keys.realistic_keys(frame, alpha, constrained, repeats)), alpha, constrained


def separable(keys: Any, alpha: Any, constrained: Any) -> bool:
    """Decide separability with the exact solver; an unconstrained token is replaced by a constrained one, or its input
    left out.
    """
    made = keys.copy()
    free = constrained & (np.arange(keys.shape[1]) != alpha[:, None])
    for i, mask in enumerate(free):
        others = ~mask
        others[alpha[i]] = False
        made[i, others] = made[i, np.argmax(mask)]
    some = free.any(axis=1)
    return isinstance(max_margin(made[some], alpha[some]), MaxMargin)


def test_chosen_tokens_are_separated_from_constrained_ones_and_a_planted_fault_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all(separable(*item) for item in sample(separated(), 120))
    monkeypatch.setattr(realistic_keys, "_set_apart", lambda *args, **options: None)
    assert not all(separable(*item) for item in sample(separated(), 60))


@pytest.mark.usefixtures("users_only")
@pytest.mark.parametrize("expected", OWN, ids="+".join)
def test_realistic_cases_satisfy_their_assumptions(expected: tuple[str, ...]) -> None:
    for case in sample(cases(assumptions=expected)):
        assert not broken_assumptions(case, expected)


@pytest.mark.usefixtures("users_only")
@pytest.mark.parametrize("id", ["theorem-5", "theorem-6", "lemma-8", "lemma-9", "theorem-4"])
def test_realistic_cases_of_other_strategies_satisfy_their_assumptions(id: str) -> None:
    assert unmet_assumptions(id) == []


def unmet_assumptions(id: str) -> list[tuple[str, str]]:
    """Draw cases of a statement and return the assumptions that are decided by data and not satisfied by a case."""
    statement = statement_named(id)
    return [
        (expected, result.evidence)
        for case in sample(statement.cases(), 30)
        for expected in {*statement.assumptions} - LATER
        if (result := statement.assumption(expected).check(case)).holds is not True
    ]


def idle(case: Case) -> bool:
    """Return whether some neighbour of the chosen tokens has dual 0 in every dual solution."""
    svm = max_margin(case.problem.exact_keys, case.chosen_tokens)
    return (
        isinstance(svm, MaxMargin)
        and not svm.strictly_complementary
        and bool((svm.neighbours & (svm.duals == 0)).any())
    )


@pytest.mark.usefixtures("users_only")
@pytest.mark.parametrize(
    "expected",
    [("separable", "strict-optimum"), ("locally-optimal",), ("single-input", "equal-non-optimal-scores", "separable")],
    ids="+".join,
)
def test_a_third_of_cases_has_neighbours_without_duals(expected: tuple[str, ...]) -> None:
    drawn = sample(cases(assumptions=expected, large=MODERATE), 90)
    assert np.mean([idle(case) for case in drawn]) > 1 / 3


@pytest.mark.usefixtures("users_only")
@pytest.mark.parametrize("id", ["theorem-5", "theorem-6"])
def test_more_than_a_quarter_of_other_cases_has_a_neighbour_without_a_dual(id: str) -> None:
    assert share_with_idle_neighbour(id) > 1 / 4


def share_with_idle_neighbour(id: str) -> float:
    """Draw cases of a statement and return the share in which a neighbour has no dual."""
    return float(np.mean([idle(case) for case in sample(statement_named(id).cases(), 60)]))


def test_a_copied_token_leaves_the_solution_unchanged_and_has_no_dual() -> None:
    keys = np.array([[[0.0, 0.0], [-1.0, 0.0], [-3.0, 5.0], [-2.0, 0.0]]])
    made = with_idle_neighbour(keys, np.array([0]), 1, 0.25, solver(np.array([0])))
    svm = max_margin(made, [0])
    assert isinstance(svm, MaxMargin)
    assert made.tolist() == [[[0.0, 0.0], [-1.0, 0.0], [-1.0, 0.25], [-2.0, 0.0]]]
    assert svm.p.tolist() == [1.0, 0.0]
    assert svm.neighbours.tolist() == [[False, True, True, False]]
    assert not svm.strictly_complementary
    kept = with_idle_neighbour(keys[:, [0, 1, 3, 2]], np.array([0]), 1, 0.25, solver(np.array([0])))
    assert kept.tolist() == [[[0.0, 0.0], [-1.0, 0.0], [-1.0, 0.25], [-3.0, 5.0]]]


def test_an_idle_copy_is_appended_where_no_token_can_be_replaced() -> None:
    keys = np.array([[[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]])
    made = with_idle_neighbour(keys, np.array([0]), 2, 1.0, solver(np.array([0])))
    svm = max_margin(made, [0])
    assert isinstance(svm, MaxMargin)
    assert not svm.strictly_complementary
    # Where α is not separable there is no support to be copied, and the keys are unchanged.
    inside = np.array([[[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]])
    assert with_idle_neighbour(inside, np.array([0]), 1, 1.0, solver(np.array([0]))) is inside


def test_one_case_in_five_has_realistic_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[bool] = []
    chosen = problem_cases._as_users_have_them

    def spy(draw: DrawFn, expected: frozenset[str]) -> bool:
        requests.append(chosen(draw, expected))
        return requests[-1]

    monkeypatch.setattr(problem_cases, "_as_users_have_them", spy)
    sample(cases(assumptions=("separable", "strict-optimum")), 200)
    assert 0.13 < np.mean(requests) < 0.28
    requests.clear()
    sample(cases(assumptions=("separable",), plain=True), 30)
    sample(cases(assumptions=("general-position",)), 30)
    assert not any(requests)


def shrunk(holds: Callable[[Case], bool]) -> Case:
    quick = settings(max_examples=60, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink])
    with drawing_from_the_seed_alone():
        return find(cases(assumptions=("separable", "strict-optimum")), holds, settings=quick)


@pytest.mark.usefixtures("users_only")
def test_a_neighbour_without_a_dual_shrinks_to_few_small_integers() -> None:
    problem = shrunk(idle).problem
    assert problem.n == 1
    assert problem.T == 3
    assert np.abs(problem.keys).max() <= 4
    assert (problem.keys == np.rint(problem.keys)).all()
    assert (problem.keys != 0).sum() <= 4


def test_the_simplest_separable_case_has_two_tokens() -> None:
    assert shrunk(lambda case: ASSUMPTIONS["separable"].check(case).holds is True).problem.keys.tolist() == [
        [[0.0], [-1.0]]
    ]
