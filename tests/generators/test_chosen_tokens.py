"""The chosen tokens for user data: all locally optimal choices if they can be counted, otherwise those that flows
reach.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from generators import chosen_tokens
from generators.case import Case
from generators.chosen_tokens import locally_optimal_choices, separable_choices
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, locally_optimal, max_margin


def random_problem(seed: int, n: int = 2, tokens: int = 3, d: int = 2) -> Problem:
    rng = np.random.default_rng(seed)
    return Problem(rng.standard_normal((n, tokens, d)), rng.standard_normal((n, tokens)))


def by_hand(problem: Problem) -> tuple[list[list[int]], list[list[int]]]:
    """Return all α that are separable, and those of them that are locally optimal, by trying every α."""
    separable, local = [], []
    for choice in itertools.product(range(problem.T), repeat=problem.n):
        solution = max_margin(problem.keys, np.array(choice, dtype=np.int64))
        if not isinstance(solution, Infeasible):
            separable.append(list(choice))
            if locally_optimal(solution, problem.scores):
                local.append(list(choice))
    return separable, local


@pytest.mark.parametrize("seed", range(6))
def test_all_separable_and_locally_optimal_choices_are_found(seed: int) -> None:
    problem = random_problem(seed, n=3, tokens=4)
    separable, local = by_hand(problem)
    assert [alpha.tolist() for alpha in separable_choices(problem)] == separable
    assert 0 < len(separable) < 4**3  # some choices are excluded, but not all
    results = [case.chosen_tokens.tolist() for case in locally_optimal_choices(Case(problem))]
    assert results == (local or [problem.optimal.tolist()])


def test_a_choice_of_tokens_given_by_the_user_is_kept() -> None:
    case = Case(random_problem(0), alpha=np.array([2, 0]))
    assert [c.chosen_tokens.tolist() for c in locally_optimal_choices(case)] == [[2, 0]]


def test_without_a_locally_optimal_choice_the_optimal_tokens_are_used() -> None:
    # The optimal token lies in the segment between the two others: no p selects it alone, and each end has the optimal
    # token for its neighbour.
    problem = Problem(np.array([[[-1.0], [0.0], [1.0]]]), np.array([[0.0, 1.0, 0.0]]))
    assert by_hand(problem)[1] == []
    assert [case.chosen_tokens.tolist() for case in locally_optimal_choices(Case(problem))] == [[1]]


def test_flows_find_locally_optimal_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(3)
    everything = [case.chosen_tokens.tolist() for case in locally_optimal_choices(Case(problem))]
    monkeypatch.setattr(chosen_tokens, "MOST_CHOICES", 8)  # of 9
    for scale in (1.0, 2.0**30):
        case = Case(problem.with_keys_scaled(scale), seed=5)
        results = [c.chosen_tokens.tolist() for c in locally_optimal_choices(case)]
        assert results
        assert all(choice in everything for choice in results)
        assert results == [c.chosen_tokens.tolist() for c in locally_optimal_choices(case)]
