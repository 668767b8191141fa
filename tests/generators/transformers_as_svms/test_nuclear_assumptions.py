"""The assumptions on the W of least nuclear norm, with decisions that are known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq_mat
from hypothesis import given, settings

from generators.assumptions import assumption_named
from generators.case import Case
from generators.nuclear_assumptions import rank_gap, unique_nuclear_solution
from generators.transformers_as_svms.nuclear_cases import aligned_cases
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.svm.nuclear_nonuniqueness import is_semidefinite, two_nuclear_solutions


def case_of(X: object, queries: object) -> Case:
    data = QueryDataset(X, queries, np.ones(len(np.asarray(X))), np.eye(len(np.asarray(X)[0, 0]))[0])
    return Case(data.problem, queried=data, alpha=np.zeros(len(data.Y), dtype=np.int64))


SEVERAL = case_of([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]], np.eye(2))
ONE = case_of([[[1.0, 0], [0, 0]], [[2.0, 1.0], [0, 0]]], [[1.0, 0], [1.0, 3.0]])


def test_rows_in_orthogonal_planes_have_several_nuclear_solutions() -> None:
    result = unique_nuclear_solution(SEVERAL)
    assert result.holds is False
    assert result.evidence == "both ((1, 0), (0, 1)) and ((1, 1), (1, 1)) are solutions"
    assert rank_gap(SEVERAL).holds is None


def test_the_nuclear_solution_is_unique_where_it_is_proven() -> None:
    result, gap = unique_nuclear_solution(ONE), rank_gap(ONE)
    assert result.holds is True
    assert gap.holds is True
    assert "τ ≥ " in result.evidence
    assert "g ≥ " in gap.evidence


def test_uniqueness_is_not_decided_where_a_tight_constraint_has_no_dual() -> None:
    """The rows are (1, −1) and (1, 0): p = (1, 0) has margin 1 on both, but only the second row has a positive dual."""
    undecided = case_of([[[1.0, 0], [0, 1.0], [0, 0]]], [[1.0, 2.0]])
    assert unique_nuclear_solution(undecided).holds is None


def test_without_queries_or_a_solution_uniqueness_is_not_established() -> None:
    problem = Problem([[[1.0], [0.0]]], [[1.0, 0.0]])
    infeasible = case_of([[[1.0, 0], [0, 0], [3.0, 0]]], [[1.0, 1.0]])
    for check in (unique_nuclear_solution, rank_gap):
        assert check(Case(problem)).holds is None
        assert check(infeasible).holds is False


def test_two_solutions_given_as_evidence_are_feasible_and_optimal() -> None:
    assert SEVERAL.queried is not None
    svm = nuclear_max_margin(SEVERAL.queried.keys, [0, 0])
    assert isinstance(svm, NuclearMaxMargin)
    two = two_nuclear_solutions(svm)
    assert two is not None
    for W in two:
        floats = np.array([[float(x.p) / float(x.q) for x in row] for row in W.tolist()])
        assert np.linalg.norm(floats, ord="nuc") == pytest.approx(2.0, rel=1e-14)
        assert (np.diagonal(floats) >= 1).all()


@pytest.mark.parametrize(
    ("rows", "semidefinite"),
    [([[1, 1], [1, 1]], True), ([[0, 0], [0, 2]], True), ([[0, 1], [1, 5]], False), ([[1, 2], [2, 1]], False)],
)
def test_semidefinite_matrices_are_recognised(rows: list[list[int]], semidefinite: bool) -> None:
    assert is_semidefinite(fmpq_mat(rows)) is semidefinite


def test_the_nuclear_assumptions_are_registered() -> None:
    assert assumption_named("unique-nuclear-solution").check is unique_nuclear_solution
    assert assumption_named("rank-gap").check is rank_gap


@given(aligned_cases())
@settings(max_examples=25, deadline=None)
def test_aligned_data_have_several_solutions_of_a_known_norm(case: Case) -> None:
    data = case.queried
    assert data is not None
    sizes = np.abs(data.X[:, 0]).max(axis=1) * np.abs(data.queries).max(axis=1)
    svm = nuclear_max_margin(data.keys, case.problem.optimal)
    assert isinstance(svm, NuclearMaxMargin)
    assert case.problem.optimal.tolist() == [0] * len(data.Y)
    assert svm.bounds[0] <= (1 / sizes).sum() <= svm.bounds[1]
    assert svm.bounds[1] - svm.bounds[0] < 1e-10 * svm.norm
    assert unique_nuclear_solution(case).holds is False
