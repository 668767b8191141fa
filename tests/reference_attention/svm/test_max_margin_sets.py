"""ATT-SVM', which has a set of optimal tokens for each input: against brute force and solutions by hand; and input that
is refused. G_mm is the set of its solutions.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.max_margin_sets import (
    MOST_CHOICES,
    InfeasibleSets,
    MaxMarginSets,
    exact_logits,
    max_margin_sets,
)

PAPER = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
PAPER_SETS = np.array([[True, True, False]])


def solved(keys: np.ndarray, optimal: np.ndarray) -> MaxMarginSets:  # type: ignore[type-arg]
    sets = max_margin_sets(keys, optimal)
    assert isinstance(sets, MaxMarginSets)
    return sets


def test_the_solution_set_of_the_papers_example_has_two_points_and_is_not_convex() -> None:
    """With optimal tokens (1, 0) and (0, 1), and (0, 0) otherwise, G_mm = {(1, 0), (0, 1)}; their mean is
    infeasible.
    """
    solution = solved(PAPER, PAPER_SETS)
    assert sorted(c.p.tolist() for c in solution.solutions) == [[0.0, 1.0], [1.0, 0.0]]
    assert all(c.norm_squared == 1 for c in solution.solutions)
    assert solution.runner_up is None
    middle = np.mean([c.p for c in solution.solutions], axis=0)
    assert (PAPER[0] @ middle).max() == 0.5


def test_one_token_of_each_set_suffices() -> None:
    """The nearer optimal token is the worse choice, and ATT-SVM with both optimal tokens at once is infeasible."""
    keys = np.array([[[2.0], [-1.0], [0.0]]])
    solution = solved(keys, PAPER_SETS)
    assert [c.alpha.tolist() for c in solution.choices] == [[0], [1]]
    assert solution.choices[0].norm_squared == fmpq(1, 4)
    assert solution.runner_up is not None
    assert solution.runner_up.p.tolist() == [-1.0]
    assert solution.margin == 2.0


def test_a_point_shared_by_several_choices_is_returned_once_for_the_larger_logit() -> None:
    # The constraint of input 1 is tight; input 0 may take either of its optimal tokens at the same p.
    keys = np.array([[[8.0], [4.0], [0.0]], [[1.0], [0.0], [0.0]]])
    optimal = np.array([[True, True, False], [True, False, False]])
    solution = solved(keys, optimal)
    assert len(solution.choices) == 2
    assert [c.alpha.tolist() for c in solution.solutions] == [[0, 0]]


def test_optimal_tokens_with_equal_keys_are_one_choice() -> None:
    keys = np.array([[[1.0], [1.0], [-0.0], [0.0]]])
    solution = solved(keys, np.array([[True, True, False, False]]))
    assert len(solution.choices) == 1
    assert solution.choices[0].neighbours.tolist() == [[False, False, True, True]]


def test_optimal_tokens_whose_keys_differ_however_little_are_several_choices() -> None:
    keys = np.array([[[1.0, 2.0**-60], [1.0, 2.0**-61], [0.0, 0.0]]])
    solution = solved(keys, PAPER_SETS)
    assert [c.alpha.tolist() for c in solution.choices] == [[0], [1]]
    assert solution.choices[0].norm_squared < solution.choices[1].norm_squared


def test_arrays_of_a_solution_are_read_only() -> None:
    for choice in solved(PAPER, PAPER_SETS).choices:
        for array in (choice.alpha, choice.margins, choice.duals, choice.neighbours):
            assert not array.flags.writeable


def test_inputs_without_a_non_optimal_token_have_no_constraint() -> None:
    keys = np.array([[[1.0], [-5.0]], [[1.0], [0.0]]])
    solution = solved(keys, np.array([[True, True], [True, False]]))
    assert solution.choices[0].p.tolist() == [1.0]
    assert np.isinf(solution.choices[0].margins[0]).all()
    assert not solution.choices[0].duals[0].any()


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_max_margin_sets_agree_with_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, T, d = int(rng.integers(1, 4)), int(rng.integers(2, 5)), int(rng.integers(1, 4))
    keys = rng.integers(-3, 4, (n, T, d)).astype(np.float64)
    optimal = rng.random((n, T)) < 0.5
    optimal[np.arange(n), rng.integers(T, size=n)] = True
    if optimal.all():
        optimal[0] = np.arange(T) == 0
    best: dict[tuple[int, ...], MaxMargin] = {}
    for alpha in product(*(np.flatnonzero(row) for row in optimal)):
        blocks = []
        for i, a in enumerate(alpha):
            others = np.flatnonzero(~optimal[i])
            if others.size:
                # The other optimal tokens become copies of a non-optimal one.
                kept = [t if t == a or not optimal[i, t] else others[0] for t in range(T)]
                blocks.append((keys[i, kept], a))
        solution = max_margin(np.array([k for k, _ in blocks]), np.array([int(a) for _, a in blocks]))
        if isinstance(solution, MaxMargin):
            best[alpha] = solution
    sets = max_margin_sets(keys, optimal)
    if not best:
        assert isinstance(sets, InfeasibleSets)
        assert sets.refusals
        return
    assert isinstance(sets, MaxMarginSets)
    least = min(s.exact.norm_squared for s in best.values())
    assert sets.choices[0].norm_squared == least
    expected = {tuple(map(str, s.exact.p)) for s in best.values() if s.exact.norm_squared == least}
    assert {tuple(map(str, c.svm.exact.p)) for c in sets.solutions} == expected
    norms = {s.exact.norm_squared for s in best.values()}
    assert {c.norm_squared for c in sets.choices} == norms
    for choice in sets.choices:
        _is_optimal(keys, optimal, choice.alpha, best)
        rows = keys[np.arange(n), choice.alpha][:, None] - keys
        assert np.allclose(np.einsum("nt,ntd->d", choice.duals, rows), choice.p, rtol=0, atol=1e-12 * sets.norm)
        assert (choice.duals[~choice.neighbours] == 0).all()
        assert not choice.neighbours[optimal].any()
        margins = np.where(optimal, np.inf, rows @ choice.p)
        assert np.allclose(margins, choice.margins, rtol=1e-12)
    for solution in sets.solutions:
        logits = keys @ solution.p
        own = logits[np.arange(n), solution.alpha]
        mixed = ~optimal.all(axis=1)
        assert (own >= np.where(optimal, logits, -np.inf).max(axis=1) - 1e-9)[mixed].all()


def _is_optimal(
    keys: np.ndarray, optimal: np.ndarray, alpha: np.ndarray, best: dict[tuple[int, ...], MaxMargin]
) -> None:  # type: ignore[type-arg]
    assert optimal[np.arange(len(alpha)), alpha].all()
    assert tuple(alpha.tolist()) in {tuple(map(int, a)) for a in best}


def test_a_partial_choice_that_is_infeasible_is_not_completed() -> None:
    """Ten inputs have two optimal tokens each, but two inputs before them contradict each other, so that few problems
    need to be solved.
    """
    calls = 0

    def counting(keys, alpha):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        return max_margin(keys, alpha)

    keys = np.array([[[1.0], [0.0], [0.0]], [[-1.0], [0.0], [0.0]]] + [[[1.0], [-1.0], [0.0]]] * 10)
    optimal = np.array([[True, False, False]] * 2 + [[True, True, False]] * 10)
    sets = max_margin_sets(keys, optimal, counting)
    assert isinstance(sets, InfeasibleSets)
    assert calls == 1


@pytest.mark.parametrize(
    ("optimal", "says"),
    [
        (np.array([[True, True]]), "shape"),
        (np.array([[1.0, 1.0, 0.0]]), "dtype"),
        (np.array([[False, False, False]]), "no optimal token"),
        (np.array([[True, True, True]]), "every token is optimal"),
    ],
)
def test_invalid_masks_are_refused(optimal: np.ndarray, says: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InvalidInput, match=says):
        # The shape check of the signature, which is active only in tests, is skipped.
        max_margin_sets.__wrapped__(PAPER, optimal) if hasattr(max_margin_sets, "__wrapped__") else max_margin_sets(
            PAPER, optimal
        )


def test_too_many_choices_are_refused() -> None:
    n = MOST_CHOICES.bit_length()
    keys = np.tile(PAPER, (n, 1, 1))
    with pytest.raises(InvalidInput, match=f"more than the {MOST_CHOICES}"):
        max_margin_sets(keys, np.tile(PAPER_SETS, (n, 1)))


def test_choices_are_enumerated_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    count = int(PAPER_SETS.sum(axis=1).prod())
    monkeypatch.setattr("reference_attention.svm.max_margin_sets.MOST_CHOICES", count)
    assert not solved(PAPER, PAPER_SETS).optimal.flags.writeable
    monkeypatch.setattr("reference_attention.svm.max_margin_sets.MOST_CHOICES", count - 1)
    with pytest.raises(InvalidInput, match=f"{count} choices"):
        max_margin_sets(PAPER, PAPER_SETS)


def test_exact_logits_are_products_with_the_exact_point() -> None:
    svm = max_margin(np.array([[[3.0, 0.0], [0.0, 0.0]]]), np.array([0]))
    assert isinstance(svm, MaxMargin)
    assert exact_logits(np.array([[3.0, 5.0], [-1.5, 0.0], [0.0, 0.0]]), svm) == [fmpq(1), fmpq(-1, 2), fmpq(0)]
