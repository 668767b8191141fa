"""The strategies reach the hard corners, and shrink to small readable data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.hypothesis_driver import drawing_from_the_seed_alone
from generators.problems import cases
from reference_attention.svm.max_margin import MaxMargin, max_margin

EXAMPLES, FEWER = 200, 60
"""Numbers of examples among which a corner must occur: 200 if one case in fifty has it, 60 if one in fifteen has it."""


@cache
def pool(*expected: str, dataset: bool = False, examples: int = EXAMPLES) -> tuple[Case, ...]:
    """Return examples of a strategy, the same ones in every run, whatever modules are imported."""
    drawn: list[Case] = []

    @settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate])
    @given(cases(assumptions=expected, dataset=dataset))
    def collect(case: Case) -> None:
        drawn.append(case)

    with drawing_from_the_seed_alone():
        collect()
    return tuple(drawn)


def share(corner: Callable[[Case], Any], *expected: str, **options: Any) -> float:
    """Return the share of the examples with the given property."""
    return float(np.mean([bool(corner(case)) for case in pool(*expected, **options)]))


def simplest(corner: Callable[[Case], Any], *expected: str) -> Case:
    """Return the example with the given property to which Hypothesis shrinks."""
    quick = settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink])
    with drawing_from_the_seed_alone():
        return find(cases(assumptions=expected), lambda case: bool(corner(case)), settings=quick)


@cache
def solved(case: Case) -> MaxMargin:
    solution = max_margin(case.problem.keys, case.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    return solution


def scale(case: Case) -> float:
    return float(np.abs(case.problem.keys).max())


def far_margins(case: Case) -> np.ndarray[Any, Any]:
    """Return the margins, less one, of all tokens that are no neighbours."""
    solution = solved(case)
    rest = ~solution.neighbours & np.isfinite(solution.margins)
    return solution.margins[rest] - 1


def some_input_scores(test: Callable[[np.ndarray[Any, Any]], Any]) -> Callable[[Case], bool]:
    return lambda case: any(test(row) for row in case.problem.scores)


def smallest_gap(case: Case) -> float:
    ranked = np.sort(case.problem.scores, axis=1)
    return float((ranked[:, -1] - ranked[:, -2]).min())


def a_token_is_doubled(case: Case) -> bool:
    return any(len({tuple(k) for k in block}) < len(block) for block in case.problem.keys)


def a_token_is_collinear_with_the_chosen_one(case: Case) -> bool:
    for block, a in zip(case.problem.keys, case.chosen_tokens, strict=True):
        for t, key in enumerate(block):
            if t != a and key.any() and block[a].any() and np.linalg.matrix_rank(np.stack([key, block[a]])) == 1:
                return True
    return False


SEPARABLE_CORNERS: dict[str, Callable[[Case], Any]] = {
    "one input": lambda c: c.problem.n == 1,
    "two tokens": lambda c: c.problem.T == 2,
    "dimension one": lambda c: c.problem.d == 1,
    "d < T": lambda c: c.problem.d < c.problem.T,
    "d > nT": lambda c: c.problem.d > c.problem.n * c.problem.T,
    "more neighbours than dimensions": lambda c: solved(c).neighbours.sum() > c.problem.d,
    "neighbours linearly dependent": lambda c: not solved(c).independent,
    "an input without neighbours": lambda c: not solved(c).neighbours.any(axis=1).all(),
    "a neighbour with zero dual": lambda c: (solved(c).neighbours & (solved(c).duals == 0)).any(),
    "no strictly complementary dual": lambda c: not solved(c).strictly_complementary,
    "a margin within 1e-8 of a neighbour's": lambda c: (far_margins(c) < 1e-8).any(),
    "a margin above 100": lambda c: (far_margins(c) > 99).any(),
    "a token twice": a_token_is_doubled,
    "a collinear token": a_token_is_collinear_with_the_chosen_one,
    "keys in extreme units": lambda c: not 1e-30 < scale(c) < 1e30,
    "inputs of different scale": lambda c: (
        c.problem.n > 1 and np.ptp(np.log10(np.abs(c.problem.keys).max(axis=(1, 2)) + 1e-99)) > 2
    ),
    "ill-conditioned": lambda c: solved(c).norm * scale(c) > 1e3,
    "well-conditioned": lambda c: solved(c).norm * scale(c) < 10,
    "generic floats": lambda c: (c.problem.keys * 4 % 1 != 0).mean() > 0.5,
}


@pytest.mark.parametrize("corner", SEPARABLE_CORNERS)
@pytest.mark.parametrize("expected", [("separable", "strict-optimum"), ("locally-optimal",)], ids="+".join)
def test_corners_of_separable_cases_are_reached(corner: str, expected: tuple[str, ...]) -> None:
    assert share(SEPARABLE_CORNERS[corner], *expected) > 0


def test_units_from_tiny_to_huge_are_reached() -> None:
    scales = [scale(c) for c in (*pool("separable", "strict-optimum"), *pool("locally-optimal"))]
    assert min(scales) < 1e-30
    assert max(scales) > 1e30


def test_a_corner_that_no_case_has_is_noticed_as_missing() -> None:
    assert share(lambda case: case.problem.n == 5, "locally-optimal") == 0


def test_most_problems_are_well_conditioned() -> None:
    # Runs can be followed to their limits up to about ‖p_mm‖·max|k| = 100; some examples must be far beyond.
    expected = ("separable", "strict-optimum")
    assert share(lambda c: solved(c).norm * scale(c) < 100, *expected) > 0.6
    assert share(lambda c: solved(c).norm * scale(c) > 1e3, *expected) > 0.01


def test_corners_of_scores_are_reached() -> None:
    assert share(lambda c: smallest_gap(c) < 1e-5, "separable", "strict-optimum") > 0
    assert share(lambda c: smallest_gap(c) >= 2, "separable", "strict-optimum") > 0
    assert share(lambda c: {*c.problem.optimal} >= {0, 1}, "separable", "strict-optimum") > 0
    assert share(some_input_scores(lambda row: len(set(row)) == 1), examples=FEWER) > 0
    ties = some_input_scores(lambda row: (row == row.max()).sum() > 1)
    assert share(ties, "mixing-hurts", "separable-optimal-sets", examples=FEWER) > 0
    assert share(lambda c: np.ptp(c.problem.scores) > 6, "locally-optimal") > 0


@pytest.mark.parametrize(
    ("further", "least"), [((), 0.25), (("distinct-scores",), 0.25), (("equal-non-optimal-scores",), 0.1)]
)
def test_locally_but_not_globally_optimal_tokens_are_frequent(further: tuple[str, ...], least: float) -> None:
    # Under Assumption B the chosen token α_i of an input i with a neighbour is optimal; that of another may not be.
    assert (
        share(
            lambda c: (c.problem.gaps(c.alpha) < 0).any(),
            "locally-optimal",
            *further,
            examples=FEWER if further else EXAMPLES,
        )
        > least
    )


def test_corners_of_datasets_are_reached() -> None:
    lemma = ("positive-labels", "strict-optimum", "head-in-key-range")
    given_w = lambda c: c.dataset.W is not None  # noqa: E731
    assert share(lambda c: c.dataset.W is None, *lemma) > 0
    assert share(lambda c: given_w(c) and np.linalg.matrix_rank(c.dataset.W) < min(c.dataset.W.shape), *lemma) > 0
    assert share(lambda c: given_w(c) and c.dataset.W.shape[0] > c.dataset.W.shape[1], *lemma) > 0
    assert share(lambda c: given_w(c) and c.dataset.W.shape[0] < c.dataset.W.shape[1], *lemma) > 0
    assert share(lambda c: {*c.dataset.Y} == {-1, 1}, dataset=True, examples=FEWER) > 0
    assert share(lambda c: {*c.dataset.Y} == {-1, 1}, "optimal-tokens", examples=FEWER) > 0
    chosen_rank = lambda c: np.linalg.matrix_rank(c.dataset.X[np.arange(c.problem.n), c.chosen_tokens])  # noqa: E731
    assert share(lambda c: chosen_rank(c) == 2, "optimal-tokens", examples=FEWER) > 0
    relaxed = lambda c: ASSUMPTIONS["optimal-tokens"].check(c).holds is False  # noqa: E731
    assert share(relaxed, "optimal-support-tokens", examples=FEWER) > 0


MINIMAL: list[tuple[tuple[str, ...], list[Any], list[Any]]] = [
    (("separable",), [[[0.0], [-1.0]]], [[0.0, 0.0]]),
    (("separable", "strict-optimum"), [[[0.0], [-1.0]]], [[0.0, -1.0]]),
    (("locally-optimal",), [[[0.0], [-1.0]]], [[0.0, -1.0]]),
    (("single-input", "equal-non-optimal-scores", "separable"), [[[0.0], [-1.0]]], [[0.0, -1.0]]),
    (("mixing-hurts", "separable-optimal-sets"), [[[0.0], [-1.0]]], [[0.0, -1.0]]),
    (("positive-labels", "strict-optimum", "head-in-key-range"), [[[1.0], [0.0]]], [[1.0, 0.0]]),
    (("optimal-tokens",), [[[4.0], [0.0]]], [[16.0, 0.0]]),
]


@pytest.mark.parametrize(("expected", "keys", "scores"), MINIMAL, ids=lambda x: "+".join(map(str, x))[:40])
def test_the_simplest_example_of_a_strategy_is_small(
    expected: tuple[str, ...], keys: list[Any], scores: list[Any]
) -> None:
    case = simplest(lambda _: True, *expected)
    assert case.problem.keys.tolist() == keys
    assert case.problem.scores.tolist() == scores
    assert case.problem.loss.name == "logistic"
    assert case.seed == 0


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (lambda c: (c.problem.gaps(c.alpha) < 0).any(), ("locally-optimal",)),
        (lambda c: (far_margins(c) < 1e-8).any(), ("separable",)),
    ],
    ids=["not global", "near tie"],
)
def test_hard_examples_shrink_to_few_small_integers(what: Callable[[Case], Any], expected: tuple[str, ...]) -> None:
    problem = simplest(what, *expected).problem
    assert problem.n <= 3
    assert problem.T <= 4
    assert np.abs(problem.keys).max() <= 8
    # Nine numbers to read, all of them integers apart from the deliberate near-tie.
    assert (problem.keys != np.round(problem.keys)).sum() <= 1
    assert (problem.keys != 0).sum() <= 9
