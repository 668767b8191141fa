"""Predicates on losses and scores, each with an instance that violates it by one ulp. M0 and M1 are the constants of
Assumption A.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from generators.assumptions import ASSUMPTIONS, Finding, assumption_named
from generators.case import Case
from reference_attention.errors import InvalidInput
from reference_attention.losses import Exponential, Logistic, loss_named
from reference_attention.problem import Problem

UP = float(np.nextafter(1.0, 2.0))


def finding_of(id: str, scores: Any, loss: Any = "logistic") -> Finding:
    scores = np.array(scores, dtype=np.float64)
    loss = loss_named(loss) if isinstance(loss, str) else loss
    return ASSUMPTIONS[id].check(Case(Problem(np.zeros((*scores.shape, 1)), scores, loss)))


def test_a_strict_optimum_is_decided_exactly() -> None:
    assert finding_of("strict-optimum", [[1, 0.5], [UP, 1]]).holds
    tied = finding_of("strict-optimum", [[1, 0.5], [0, 1.5, 1.5][1:]])
    assert tied.holds is False
    assert tied.evidence == "input 1: tokens 0 and 1 both score 1.5"


def test_equal_non_optimal_scores_are_decided_exactly() -> None:
    assert finding_of("equal-non-optimal-scores", [[2, 1, 1], [0, 5, 0]]).holds
    assert finding_of("equal-non-optimal-scores", [[2, 1], [3, 9]]).holds
    near = finding_of("equal-non-optimal-scores", [[2, 1, UP], [0, 5, 0]])
    assert near.holds is False
    assert near.evidence == "input 0: non-optimal tokens 1 and 2 score 1 and 1.0000000000000002"
    tied = finding_of("equal-non-optimal-scores", [[2, 2, 1]])
    assert tied.holds is False
    assert "both score 2" in tied.evidence


def test_distinct_scores_are_decided_exactly() -> None:
    assert finding_of("distinct-scores", [[1, UP, 0], [1, 0, 2]]).holds
    same = finding_of("distinct-scores", [[1, UP, 0], [1, 0, 1]])
    assert same.holds is False
    assert same.evidence == "input 1: tokens 0 and 2 both score 1"
    assert finding_of("distinct-scores", [[0.0, -0.0]]).holds is False


def test_a_single_input_is_recognised() -> None:
    assert finding_of("single-input", [[1, 0]]).holds
    assert finding_of("single-input", [[1, 0], [1, 0]]) == Finding(False, "n = 2")


def test_mixing_hurts_holds_unless_an_input_has_no_token_of_lower_score() -> None:
    mixed = finding_of("mixing-hurts", [[1, 1, 0.5], [2, 2, 2]])
    assert mixed.holds
    assert "Lemma 14" in mixed.evidence
    assert finding_of("mixing-hurts", [[1, 1], [2, 2]]).holds is False


def test_well_behaved_losses_are_recognised() -> None:
    assert finding_of("well-behaved-loss", [[-2, 3]], "exponential").holds
    assert finding_of("well-behaved-loss", [[-2, 3]], "correlation").holds


class Increasing(Logistic):
    """A loss that increases and so violates Assumption A."""

    def derivative(self, u: Any) -> Any:
        return -super().derivative(u)


class Steeper(Exponential):
    """A loss whose stated M1 is too small by a millionth."""

    def log_bound(self, low: float, high: float) -> float:
        return super().log_bound(low, high) - 1e-6


class Rougher(Exponential):
    """A loss whose stated M0 is far too small."""

    def log_lipschitz(self, low: float, high: float) -> float:
        return super().log_lipschitz(low, high) - 3


class Renamed(Logistic):
    """A loss of a class unknown to the predicate: its constants are right, but have no proof there."""


@pytest.mark.parametrize(
    ("loss", "holds", "message"),
    [
        (Increasing(), False, "not negative"),
        (Steeper(), False, "exceeds M1"),
        (Rougher(), False, "M0"),
        (Renamed(), None, "no proof"),
    ],
)
def test_an_unknown_loss_is_refuted_or_not_established(loss: Any, holds: bool | None, message: str) -> None:
    finding = finding_of("well-behaved-loss", [[-2, 3]], loss)
    assert finding.holds is holds
    assert message in finding.evidence


def test_assumptions_are_looked_up_by_id() -> None:
    assert assumption_named("separable").id == "separable"
    with pytest.raises(InvalidInput, match="separable"):
        assumption_named("seperable")
    assert all(id == item.id and item.title and item.source for id, item in ASSUMPTIONS.items())
