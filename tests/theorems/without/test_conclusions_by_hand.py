"""Conclusions that hunts for counterexamples examine, by hand: limits that are approached or not, margins, constants
and schedules of radii.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.datasets import DATASETS
from reference_attention.losses import loss_named
from reference_attention.paths.joint_minimisers import Pair
from reference_attention.paths.joint_risk import Joint, joint_of_chosen
from reference_attention.problem import Problem
from reference_attention.training.joint_descent import JointTrajectory
from tests.theorems.flows import flow_through
from theorems.bounded import exact
from theorems.core.claim import Claim
from theorems.core.implementation import REFERENCE
from theorems.without import (
    conjecture_joint_descent,
    flow_claims,
    joint_path_claims,
    lemma_05,
    lemma_06,
    lemma_14,
    theorem_4,
    theorem_6,
)
from theorems.without.noisy_excess import Excess

FIGURE_3B = DATASETS["figure-3b"]().normalise()


def joint_3b() -> Joint:
    joint = joint_path_claims.joint_of(FIGURE_3B)
    assert joint is not None
    return joint


def test_joint_descent_is_compared_with_the_limits_for_its_ratio_of_norms() -> None:
    joint = joint_3b()
    head, prompt = 3.0 * joint.svm.direction, 7.0 * np.array([0.6, 0.8])
    run = JointTrajectory(np.stack([head, head]), np.stack([prompt, prompt]))
    aside, apart = conjecture_joint_descent._distances(joint, run, 1)
    assert apart == pytest.approx(0.0, abs=1e-15)
    limit = conjecture_joint_descent.scheduled_direction(joint, 3 / 7)
    assert aside == pytest.approx(np.linalg.norm(prompt / 7 - limit))


def test_a_deviation_that_halves_counts_as_converging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deviation that does not halve has a negative slack, with a tolerance of one logit, 1/(Θ‖p‖) for the
    margin Θ.
    """
    steps = conjecture_joint_descent.STEPS
    far = np.full((steps + 1, 2), 30.0)
    monkeypatch.setattr(
        conjecture_joint_descent, "_run", lambda case, steps: (joint_3b(), JointTrajectory(far, far), 0.25)
    )
    monkeypatch.setattr(
        conjecture_joint_descent, "_distances", lambda joint, run, at: {steps // 4: (1.0, 1.0), steps: (0.4, 0.6)}[at]
    )
    prompt, head = conjecture_joint_descent._limit_claims(FIGURE_3B, REFERENCE)
    assert (prompt.slack, head.slack) == (0.0, -0.6)
    assert prompt.tolerance == pytest.approx(1 / (0.25 * 30 * math.sqrt(2)))


@pytest.mark.parametrize(
    ("angles", "slack"), [((0.1, 0.04, 0.04), 0.0), ((0.1, 0.06, 0.04), 0.0), ((0.04, 0.04, 0.04), -0.04)]
)
def test_a_direction_converges_if_its_angle_halves_from_an_earlier_norm_to_the_last(
    angles: tuple[float, ...], slack: float
) -> None:
    """If the angle has not halved since an earlier norm, it is compared with 1/√ρ, with ρ the last norm in units of
    ‖p_mm‖.
    """
    far = flow_claims.NORM
    norms = np.array([far / (flow_claims.NORM / flow_claims.EARLIER), far / 10, far])
    points = norms[:, None] * np.array([[math.cos(a), math.sin(a)] for a in angles])
    claim = flow_claims.direction_claim("direction", flow_through(points, norms), np.array([1.0, 0.0]), 2.0)
    assert claim.slack == pytest.approx(slack, rel=1e-3)
    assert claim.tolerance == pytest.approx(0.0 if slack == 0 else (far / 2) ** -0.5)


def test_the_tolerance_of_a_selection_is_one_over_the_root_of_the_largest_logit() -> None:
    problem = Problem(np.array([[[4.0, 0.0], [0.0, 0.0]]]), np.array([[1.0, 0.0]]))
    claim = flow_claims.selection_claim(problem, np.array([30.0, 40.0]), np.array([0]))
    assert claim.slack == pytest.approx(0.6)
    assert claim.tolerance == pytest.approx(1 / math.sqrt(50 * 4))


@pytest.mark.parametrize(("margin", "best"), [(0.5, True), (1.0, False), (1.0 + 1e-13, False), (2.0, False)])
def test_chosen_tokens_have_the_largest_label_margin(margin: float, best: bool) -> None:
    """With one input, the label margin of a token is its norm; equality up to rounding counts as a tie."""
    tokens = np.array([[[1.0, 0.0], [0.0, margin]]])
    joint = joint_of_chosen(tokens, tokens, np.array([0]))
    assert joint is not None
    assert joint_path_claims.selects_best(joint) is best


def test_pairs_that_do_not_approach_their_limit_have_a_negative_slack() -> None:
    joint, at = joint_3b(), np.zeros(2)
    pairs = [Pair(joint, 1.0, R, at, at, units) for R, units in ((50.0, 1e2), (5e3, 1e4))]
    claim = joint_path_claims._limit("limit", pairs, [0.3, 0.2], "distance")
    assert (claim.slack, claim.tolerance) == (-0.2, pytest.approx(1e-2))
    assert joint_path_claims._limit("limit", pairs, [0.3, 0.1], "distance").slack == 0


def recorder(seen: list[Any], at: int) -> Any:
    """Return a function that records its argument number ``at``, and returns a text in place of a claim."""

    def record(*arguments: Any) -> Claim:
        seen.append(arguments[at])
        return "a claim"  # type: ignore[return-value]

    return record


def test_in_one_dimension_lemma_5_compares_the_better_direction_with_its_factor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records: list[Any] = []
    monkeypatch.setattr(lemma_05, "lasting", recorder(records, 2))
    monkeypatch.setattr(lemma_05, "descent", lambda problem, at, q: exact(np.array([0.5, 0.25]) * q[0]))
    case = Case(Problem(np.array([[[1.0], [0.0], [-1.0]]]), np.array([[0.0, 1.0, 0.0]])))
    list(lemma_05.not_separable.conclusion(case, REFERENCE))
    assert records[0].value.tolist() == [lemma_05.PI * 0.5, lemma_05.PI * 0.25]


def test_no_jump_of_the_slope_is_sought_where_the_gradient_is_zero() -> None:
    flat = Problem(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([[1.0, 1.0]]), loss_named("kinked"))
    assert list(lemma_06.jumping_slope.conclusion(Case(flat, start=np.array([1.0, 2.0])), REFERENCE)) == []


def test_the_smoothness_constant_for_a_given_m0_is_that_of_the_formula() -> None:
    """The formula is the mean over inputs of M0 ‖γ‖² ‖K‖² + 3 M1 ‖γ‖ ‖K‖², with M1 = 1 for the correlation loss."""
    keys = np.array([[[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]])
    problem = Problem(keys, np.array([[3.0, 4.0], [0.6, 0.8]]), loss_named("correlation"))
    due = ((2 * 25 * 16 + 3 * 5 * 16) + (2 * 1 * 4 + 3 * 1 * 4)) / 2
    assert lemma_06._smoothness_for(problem, 2.0) == pytest.approx(due)


@pytest.mark.parametrize(
    ("logs", "others", "asked"),
    [
        (-np.arange(3.0, 8.0), -np.arange(2.0, 7.0), False),
        (-np.arange(3.0, 8.0) * 1.5, -np.arange(2.0, 7.0), True),
        (-0.5 * np.arange(6.0, 11.0), -np.ones(5), True),
        (-np.full(5, 3.0), -np.ones(5), False),
    ],
)
def test_mixing_is_compared_only_where_the_assumption_requires_it(
    logs: np.ndarray, others: np.ndarray, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assumption is about pairs of points at which log q ≤ 1.5 log q' at all radii and q decreases, where q and q'
    are the weights of other tokens.
    """
    worst = iter([exact(logs), exact(others)])
    monkeypatch.setattr(lemma_14, "worst_mixing", lambda case, at: next(worst))
    monkeypatch.setattr(lemma_14, "difference", lambda *arguments: None)
    monkeypatch.setattr(lemma_14, "lasting", recorder([], 0))
    case = FIGURE_3B.replace(arrays=MappingProxyType({"q": np.ones(2), "q_other": np.ones(2)}))
    risk = Excess(np.ones(5), np.zeros(5), np.zeros(5))
    assert len(list(lemma_14.mixing_hurts(case, risk, risk))) == asked


@pytest.mark.parametrize(
    ("q", "radius", "unit"), [((0.6, 0.8), 0.1, 1 / 1.2), ((0.0, 1.0), 0.1, 0.5), ((0.6, 0.8), 9.0, 9.0)]
)
def test_the_unit_of_radii_of_a_local_path_is_that_of_the_formula(
    q: tuple[float, float], radius: float, unit: float
) -> None:
    """For keys (2, 0) and 0 the unit of radii is one over the margin of q, or one over the size of the keys if q
    prefers no token, but never less than the radius of the cone.
    """
    problem = Problem(np.array([[[2.0, 0.0], [0.0, 0.0]]]), np.array([[1.0, 0.0]]))
    case = Case(problem, arrays=MappingProxyType({"q": np.array(q), "cone_radius": np.array(radius)}))
    assert theorem_4._unit(case) == pytest.approx(unit)


@pytest.mark.parametrize(
    ("apart", "slack"),
    [
        ((0.5, 0.4, 0.3), 0.3),  # the distance neither halves nor is small, so the path stays away
        ((0.5, 0.4, 0.1), 0.1 * 1e3 - 1),  # the distance halves, so it counts only as far as it exceeds ρ^{−1/2}
        ((1e-6, 1e-6, 1e-6), 1e-6 * 1e3 - 1),  # the distance is smaller than the tolerance
        ((0.009, 0.009, 0.009), 0.009),
    ],
)
def test_a_path_stays_away_unless_its_distance_halves_or_is_small(
    apart: tuple[float, ...], slack: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theorem_4, "_ratio", lambda case, radii: (np.array(apart), np.ones(3)))
    claim = next(theorem_4._stays_away(FIGURE_3B, REFERENCE))
    assert claim.slack == pytest.approx(slack, rel=1e-9)


def with_radii(head: list[float], prompt: list[float]) -> Case:
    return FIGURE_3B.replace(arrays=MappingProxyType({"head_radii": np.array(head), "prompt_radii": np.array(prompt)}))


def test_a_schedule_interpolates_and_extrapolates_its_radii() -> None:
    """A schedule gives log r as a piecewise linear function of log R, here with r = 2, 4, 5 at R = 1, 8, 64."""
    result = theorem_6.slow_schedule(with_radii([2.0, 4.0, 5.0], [1.0, 8.0, 64.0]))
    assert result is not None
    schedule, radii = result
    assert radii.tolist() == [1.0, 8.0, 64.0]
    by_hand = {1.0: 2.0, math.sqrt(8): math.sqrt(8), 8.0: 4.0, 64.0: 5.0, 512.0: 6.25, 0.125: 1.0}
    for R, r in by_hand.items():
        assert math.exp(schedule(R)) == pytest.approx(r)


@pytest.mark.parametrize(
    ("head", "prompt"), [([2.0, 2.0], [1.0, 8.0]), ([2.0, 4.0], [8.0, 8.0]), ([2.0, 4.0], [1.0, 2.0])]
)
def test_radii_that_do_not_grow_strictly_are_no_schedule(head: list[float], prompt: list[float]) -> None:
    assert theorem_6.slow_schedule(with_radii(head, prompt)) is None


def test_a_joint_path_is_followed_between_the_radii_of_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Any] = []

    def pairs(joint: Any, schedule: Any, units: Any, unit: float, seed: int) -> list[Any]:
        records.append(np.array(units) * unit)
        return []

    def none(*arguments: Any) -> Iterator[Claim]:
        yield from ()

    monkeypatch.setattr(theorem_6, "follow_joint_path", pairs)
    monkeypatch.setattr(theorem_6, "target_claims", none)
    assert list(theorem_6.schedule_claims(with_radii([2.0, 4.0, 5.0], [10.0, 80.0, 640.0]), REFERENCE)) == []
    assert records[0] == pytest.approx([10.0, 640.0])
