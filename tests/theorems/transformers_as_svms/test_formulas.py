"""Formulas of the statements on key-query weights, by hand.

A row is a difference k_α − k_t, a gap a difference of scores, and a harmful token scores at least as much as α.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq

from generators.sequence_assumptions import optimal_tokens_of, sequence_rows
from reference_attention.losses import loss_named
from reference_attention.paths.local_path import LocalPath
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import log_excess_risk
from reference_attention.sequence_dataset import SequenceDataset
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.sequence_max_margin import SequenceMaxMargin, sequence_max_margin
from tests.theorems.transformers_as_svms.local_examples import local_example
from theorems.bounded import exact
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.core.sequence_certificate import _wrong_solution
from theorems.rounding.attention_at import AttentionAt
from theorems.token_selection.local_paths.local_constants import local_constants
from theorems.transformers_as_svms import local_path
from theorems.transformers_as_svms.feasible_weights import by_labels
from theorems.transformers_as_svms.floor_bounds import FloorBounds
from theorems.transformers_as_svms.local_path import _path, follow_local_path
from theorems.transformers_as_svms.local_path_bounds import LocalPathBounds
from theorems.transformers_as_svms.risk_floor import _violation
from theorems.transformers_as_svms.sequence_numbers import SequenceRows

LINE = Problem(np.array([[[0.0], [-1.0], [-3.0]], [[0.0], [-2.0], [-2.0]]]), np.array([[2.0, 1, -2], [1.0, 0.5, 0.5]]))
"""Two inputs: the first has the rows 1 and 3 with gaps 1 and 4, the second twice the row 2 with gap ½."""


def linear() -> Problem:
    return Problem(LINE.keys, LINE.scores, loss_named("correlation"))


def test_separating_weights_from_labels_are_those_of_the_formula() -> None:
    """The weights are v qᵀ divided by the gap, with the separating combination q of queries."""
    data = QueryDataset([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 2.0, 3.0]], [1.0], [2.0, 3.0], "correlation")
    result = by_labels(data, [fmpq(1), fmpq(2), fmpq(3)], fmpq(4))
    assert [[float(x.p) / float(x.q) for x in row] for row in result.tolist()] == [[0.5, 1, 1.5], [0.75, 1.5, 2.25]]


def test_the_lower_bound_of_the_excess_risk_by_margins() -> None:
    """For each input, the bound on the excess risk is Γ/(1 + e^h), with the input's least gap Γ, which is 1 or ½, and
    its least margin h, which is p or 2p.
    """
    result = FloorBounds(AttentionAt(linear(), np.array([[0.0], [1.5]]))).lower["excess-at-least-by-margins"]
    due = [[math.log(g / (1 + math.exp(h * p))) for g, h in ((1, 1), (0.5, 2))] for p in (0.0, 1.5)]
    assert result.value == pytest.approx(np.array(due), rel=1e-14)


def test_the_violation_of_an_excess_risk_outside_its_bounds() -> None:
    """The reference's excess risk is within its bounds; multiplied by e^40, it exceeds the least upper bound by the
    expected amount.
    """
    points = np.array([[0.0], [1.0], [4.0]])
    inside = _violation(linear(), REFERENCE, points)
    assert (inside <= 1e-12).all()

    def scaled(*arguments: object) -> tuple[np.ndarray, np.ndarray]:
        sign, size = log_excess_risk(*arguments)  # type: ignore[union-attr]
        return np.asarray(sign), np.asarray(size) + 40.0

    over = _violation(linear(), REFERENCE.replace("forty", {log_excess_risk: scaled}), points)
    at = FloorBounds(AttentionAt(linear(), points))
    excess = log_excess_risk(LINE.keys, LINE.scores, linear().loss, points, LINE.optimal)[1] + math.log(2)
    least = np.min([np.min(b.value, axis=-1) for b in at.upper.values()], axis=0)
    assert over == pytest.approx(excess + 40 - least, rel=1e-12)


def bounds() -> LocalPathBounds:
    case = local_example()
    svm = max_margin(case.problem.exact_keys, case.chosen_tokens)
    assert isinstance(svm, MaxMargin)
    constants = local_constants(case.problem, svm)
    assert constants is not None
    return LocalPathBounds(constants, REFERENCE)


def test_harm_is_summed_over_harmful_tokens() -> None:
    """For a single harmful token the sum is |gap| e^{−ρm}, with its least margin m in the cone."""
    of = bounds()
    harmful = of.constants.harmful
    assert harmful.sum() == 1
    lowest, gap = float(of.constants.lowest[harmful][0]), float(of.constants.gaps[harmful][0])
    result = of.log_harm(exact(np.array([1.0, 5.0])))
    assert result.value == pytest.approx(math.log(-gap) - np.array([1.0, 5.0]) * lowest, rel=1e-12)
    assert of.first > 0


def test_a_path_turns_within_its_bound_and_is_compared_with_its_own_seeds() -> None:
    of = bounds()
    radii = np.array([4.0, 64.0]) * float(of.kappa.value)
    claims = {claim.name: claim for claim in _path(of, radii, 0)}
    assert set(claims) == {*("path-is-in-the-cone", "path-is-no-higher-than-its-seeds"), *("path-margin", "path-turns")}
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())
    # The bound decreases like the logarithm of the radius divided by the radius.
    assert 0 <= claims["path-turns"].slack < 0.2


def test_a_starting_point_outside_the_cone_is_replaced_by_one_on_the_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second starting point is orthogonal to W^mm at the first radius, and on the ray at the second."""
    records: list[np.ndarray] = []

    def recorder(of: LocalPathBounds, norms: np.ndarray, starts: np.ndarray, seed: int) -> LocalPath:
        records.append(starts.reshape(len(norms), 2, -1))
        return follow_local_path(of, norms, starts, seed)

    of = bounds()
    solution = of.constants.solution
    across = np.eye(len(solution.direction))[0]
    across -= (across @ solution.direction) * solution.direction

    def beside(self: LocalPathBounds, rho: float) -> np.ndarray:
        ray = rho * solution.p
        return np.stack([ray, ray if rho > 100 else np.linalg.norm(ray) * across / np.linalg.norm(across)])

    monkeypatch.setattr(local_path, "follow_local_path", recorder)
    monkeypatch.setattr(LocalPathBounds, "beside", beside)
    list(_path(of, np.array([50.0, 200.0]), 0))
    assert np.array_equal(records[0][:, 0], np.array([[50.0], [200.0]]) * solution.p)
    assert np.array_equal(records[0][:, 1], records[0][:, 0])


def sequence_rows_of() -> tuple[SequenceRows, SequenceDataset]:
    data = SequenceDataset([[[1, 2], [3, 4], [0, 1]]], [[[1, 0.5], [-1, 2]]], [[1, -1]], [1, 0])
    return SequenceRows(data.parts, REFERENCE, data.parts), data


def test_bounds_of_slopes_carry_a_few_roundings() -> None:
    rows, _ = sequence_rows_of()
    result = rows.log_slope_bounds
    assert (result.error > 0).all()
    assert (result.error <= 16 * 2.0**-52 * (1 + np.abs(result.value))).all()


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_an_excess_risk_under_test_is_allowed_at_least_twice_the_reference_s_error(size: float) -> None:
    rows, _data = sequence_rows_of()
    points = exact(size * np.array([[1.0, -0.5, 2.0, 0.25]]))
    ours, theirs = rows.excess(points), rows.excess_under_test(points, "excess")
    assert np.abs(ours.log_unit).max() > 1
    scale = np.exp(theirs.log_unit - ours.log_unit)
    assert (theirs.x.error * scale >= 2 * ours.x.error * (1 - 1e-9)).all()
    assert (ours.x.error > 0).all()


def test_a_sequence_solution_with_margins_below_one_is_refused() -> None:
    """The solution is divided by 2, so margins are ½, and it reports no neighbours."""
    _, data = sequence_rows_of()
    alpha = optimal_tokens_of(data.parts)
    svm = sequence_max_margin([part.problem.exact_keys for part in data.parts], alpha)
    assert isinstance(svm, SequenceMaxMargin)
    rows = sequence_rows(data, data.parts, alpha)
    assert _wrong_solution(rows, alpha, svm) == ""
    halved = replace(svm, exact_p=[x / 2 for x in svm.exact_p], neighbours=tuple(map(np.zeros_like, svm.neighbours)))
    assert "< 1" in _wrong_solution(rows, alpha, halved)
