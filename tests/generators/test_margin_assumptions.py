"""Exact predicates on margins: instances that fail by one ulp or by 3e-9, and solvers that return wrong results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import fmpq

from generators import margin_assumptions
from generators.assumptions import ASSUMPTIONS, Finding
from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, max_margin

NEAR = 1 + 2.0**-28
ULP = 2.0**-52


def case(keys: Any, scores: Any, alpha: Any = None, **arrays: float) -> Case:
    keys, scores = np.array(keys, dtype=np.float64), np.array(scores, dtype=np.float64)
    named = {key: np.array(value, dtype=np.float64) for key, value in arrays.items()}
    return Case(Problem(keys, scores), alpha=None if alpha is None else np.array(alpha), arrays=named)


def finding_of(id: str, *args: Any, **arrays: Any) -> Finding:
    return ASSUMPTIONS[id].check(case(*args, **arrays))


def test_separability_is_decided_and_refuted_by_a_farkas_proof() -> None:
    assert finding_of("separable", [[[1, 0], [0, 0]], [[0, 1], [0, 0]]], [[1, 0], [1, 0]]).holds
    opposed = finding_of("separable", [[[1, 0], [0, 0]], [[-1, 0], [0, 0]]], [[1, 0], [1, 0]])
    assert opposed.holds is False
    assert "1/2" in opposed.evidence
    assert opposed.exact == {"λ": {"0,1": "1/2", "1,1": "1/2"}}
    # If the two rows are not exactly opposed, the tokens are separable.
    assert finding_of("separable", [[[1, 0], [0, 0]], [[-1, 1e-12], [0, 0]]], [[1, 0], [1, 0]]).holds
    doubled = finding_of("separable", [[[1, 0], [1, 0]]], [[1, 0]])
    assert doubled.holds is False


def test_evidence_on_real_data_is_short_with_exact_numbers_kept() -> None:
    """Of nine multipliers of hundreds of digits the evidence shows the four largest, rounded; the proof keeps all."""
    rng = np.random.default_rng(0)
    result = ASSUMPTIONS["separable"].check(
        Case(Problem(rng.standard_normal((6, 10, 8)), rng.standard_normal((6, 10))))
    )
    assert result.holds is False
    assert len(result.evidence) < 170
    exact = {pair: fmpq(*map(int, text.split("/"))) for pair, text in result.exact["λ"].items()}
    assert sum(exact.values(), fmpq(0)) == 1
    assert len(str(max(exact.values()))) > 100
    largest = max(exact, key=lambda pair: exact[pair])
    assert f"({largest}): {float(exact[largest]):.6g}" in result.evidence
    assert f"… {len(exact)} in all" in result.evidence


def test_separability_depends_on_the_chosen_tokens() -> None:
    keys, scores = [[[2], [1], [0]]], [[1, 0, 0]]
    assert finding_of("separable", keys, scores).holds
    assert finding_of("separable", keys, scores, [2]).holds
    assert finding_of("separable", keys, scores, [1]).holds is False


def test_chosen_tokens_are_locally_optimal_only_if_their_neighbours_score_lower() -> None:
    keys = [[[0, 0], [-1, 0], [-2, 1]]]
    assert finding_of("locally-optimal", keys, [[0, -1, 5]], [0]).holds
    higher = finding_of("locally-optimal", keys, [[0, 0, 5]], [0])
    assert higher.holds is False
    assert "token 1" in higher.evidence
    assert "margin exactly 1" in higher.evidence
    assert finding_of("locally-optimal", keys, [[0, -ULP, 5]], [0]).holds
    assert finding_of("locally-optimal", [[[1, 0], [1, 0]]], [[1, 0]], [0]).holds is False


@pytest.mark.parametrize("beyond", [NEAR, 1 + ULP])
def test_a_token_whose_margin_is_almost_one_is_no_neighbour(beyond: float) -> None:
    # A tolerance of 1e-8 would make token 2, which scores higher, a neighbour.
    assert finding_of("locally-optimal", [[[0], [-1], [-beyond]]], [[0, -1, 5]], [0]).holds
    assert finding_of("locally-optimal", [[[0], [-1], [-1]]], [[0, -1, 5]], [0]).holds is False


def test_scores_of_an_input_without_neighbours_do_not_matter() -> None:
    keys = [[[1, 0], [0, 0]], [[-2, 1], [0, 0]]]
    assert finding_of("locally-optimal", keys, [[1, 0], [1, 0]], [0, 1]).holds
    assert finding_of("locally-optimal", keys, [[1, 0], [1, 0]], [1, 0]).holds is False


def test_optimal_sets_are_separable_though_no_single_token_is() -> None:
    # Two tokens with the equal key 1 are optimal: ATT-SVM for one of them is infeasible, ATT-SVM' for both is not.
    keys, scores = [[[1], [1], [0]]], [[1, 1, 0]]
    assert finding_of("separable", keys, scores).holds is False
    assert finding_of("separable-optimal-sets", keys, scores).holds
    assert finding_of("separable-optimal-sets", [[[0], [0], [1], [-1]]], [[1, 1, 0, 0]]).holds is False
    # Of the optimal tokens only the second lies outside the hull of the others.
    second = finding_of("separable-optimal-sets", [[[0], [2], [1], [-1]]], [[1, 1, 0, 0]])
    assert second.holds
    assert "[1]" in second.evidence
    assert finding_of("separable-optimal-sets", [[[0], [2]]], [[1, 1]]).holds


def test_separability_of_sets_with_too_many_choices_is_not_established() -> None:
    keys, scores = np.zeros((4, 10, 1)), np.ones((4, 10))
    scores[:, -1] = 0
    assert finding_of("separable-optimal-sets", keys, scores).holds is None


def start_in_cone(start: list[float], mu: float, radius: float) -> Finding:
    # The solution of ATT-SVM is p_mm = (1, 0).
    one = case([[[1, 0], [0, 0]]], [[1, 0]], cone_mu=mu, cone_radius=radius)
    return ASSUMPTIONS["in-cone"].check(one.replace(start=np.array(start, dtype=np.float64)))


def test_the_start_is_decided_exactly_at_the_boundary_of_the_cone() -> None:
    # The cosine 3/5 lies between 1 − 7/16 and 1 − 3/8; no float μ gives 1 − μ = 3/5 exactly.
    assert start_in_cone([3, 4], 0.4375, 5).holds
    assert start_in_cone([3, 4], 0.375, 5).holds is False
    # The start (1, 0) is on the axis, so that any μ will do; its length is exactly the radius, then half an ulp less.
    assert start_in_cone([1, 0], 0.0, 1).holds
    assert start_in_cone([1 - ULP / 2, 0], 0.0, 1).holds is False
    assert start_in_cone([1, 2.0**-60], 0.0, 1).holds is False
    assert start_in_cone([-1, 0], 1.5, 1).holds is False
    assert start_in_cone([-1, 0], 2.0, 1).holds
    assert start_in_cone([0, 0], 0.5, 0).holds is False


def test_in_cone_holds_without_a_start_and_is_undecided_without_constants() -> None:
    one = case([[[1, 0], [0, 0]]], [[1, 0]])
    assert ASSUMPTIONS["in-cone"].check(one).holds
    assert ASSUMPTIONS["in-cone"].check(one.replace(start=np.ones(2))).holds is None
    apart = case([[[1, 0], [1, 0]]], [[1, 0]], cone_mu=0.1, cone_radius=1.0).replace(start=np.ones(2))
    assert ASSUMPTIONS["in-cone"].check(apart).holds is False


def test_a_step_size_is_compared_with_its_bound() -> None:
    one = case([[[1, 0], [0, 0]]], [[1, 0]])
    largest = float(np.exp(-one.problem.log_smoothness))
    assert ASSUMPTIONS["step-size"].check(one).holds
    for eta, holds in ((largest, True), (largest / 2, True), (largest * (1 + 1e-9), False), (0.0, False)):
        arrays = {"eta": np.array(eta)}
        assert ASSUMPTIONS["step-size"].check(one.replace(arrays=arrays)).holds is holds
    flat = case([[[0, 0], [0, 0]]], [[1, 0]], eta=1e9)
    assert ASSUMPTIONS["step-size"].check(flat).holds


def test_wrong_results_of_a_solver_establish_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, alpha = np.array([[[1.0, 0], [0, 0]], [[0, 1], [0, 0]]]), np.zeros(2, dtype=np.int64)
    lie = Infeasible(alpha, np.zeros((2, 2)), {(0, 1): fmpq(1)})
    honest = max_margin(keys, alpha)
    other = max_margin(2 * keys, alpha)
    for answer, proven in ((honest, True), (lie, False), (other, False)):
        monkeypatch.setattr(margin_assumptions, "max_margin", lambda *_, answer=answer: answer)
        margin_assumptions.solve_and_check.cache_clear()
        checked = margin_assumptions.checked_margins(keys, alpha)
        assert checked.proven is proven
        one = Case(Problem(keys, np.array([[1.0, 0], [1, 0]])))
        assert ASSUMPTIONS["separable"].check(one).holds is (True if proven else None)
        assert ASSUMPTIONS["locally-optimal"].check(one).holds is (True if proven else None)
    margin_assumptions.solve_and_check.cache_clear()
