"""The neighbourhood of Theorem 4, leading terms and Lemma 8, by hand, for whole numbers.

A row is a difference k_α − k_t; the margin of token t along a unit direction is row·direction. B is the largest norm of
a
difference of keys; δ, δ' and the radii are those of
:mod:`theorems.token_selection.directions.excluded_neighbourhood`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.directions import direction
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from theorems.bounded import value_of
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.directions.directional_risk import Costs
from theorems.token_selection.directions.excluded_neighbourhood import BeatenByDirection, BeatenByPoint, Cone, cone_of
from theorems.token_selection.directions.leading_term import leading_term

Q, ALPHA = np.array([1.0, 0.0]), np.array([0])


def posed(rows: Any, scores: Any) -> tuple[Problem, Costs]:
    """Return one input with the given rows, whose first token is α with key 0, and its costs."""
    keys = np.concatenate([np.zeros((1, len(rows[0]))), -np.array(rows, dtype=float)])[None]
    problem = Problem(keys, np.array([scores], dtype=float), loss_named("correlation"))
    return problem, Costs.of(problem, ALPHA)


def beaten() -> BeatenByDirection:
    """Return q = (1, 0) and the better direction (1, 1)/√2.

    The token that scores two less than α has the margins 1 and √2 along these, the one that scores two more 4 and 4/√2.
    """
    problem, costs = posed([[1, 1], [4, 0]], [1, -1, 3])
    result, better = direction(problem.keys, Q), direction(problem.keys, np.array([1.0, 1.0]))
    assert BeatenByDirection.is_better(better, result, costs)
    return BeatenByDirection.of(result, better, costs, np.array([[False, True, False]]), Cone(0.02, 0.5))


def outdone() -> BeatenByPoint:
    """Return q = (1, 0) and the better direction (1, −½)/√1.25.

    The token that scores two more than α has the margins 2 and 1/√1.25 along these, the one that scores two less 2 and
    3/√1.25.
    """
    problem, costs = posed([[2, 2], [2, -2]], [1, 3, -1])
    result, better = direction(problem.keys, Q), direction(problem.keys, np.array([1.0, -0.5]))
    assert BeatenByPoint.is_better(better, result, costs)
    return BeatenByPoint.of(result, better, costs, np.array([[False, True, True]]), Cone(0.02, 0.25))


def test_radii_and_widths_where_all_neighbours_score_lower_are_those_of_the_formulas() -> None:
    region = beaten()
    delta = (math.sqrt(2) - 1) / 16
    assert region.delta == pytest.approx(delta, rel=1e-12)
    drift = 4 * delta
    radius = max(math.log(6) / (3 - 2 * drift), math.log(6) / (math.sqrt(2) - 1 - drift))
    assert region.radius == pytest.approx(radius, rel=1e-12)
    assert region.near == pytest.approx(1 + drift, rel=1e-12)
    # With B = 4 and δ' = ½/4, the difference of margins within δ' is at least 3 − 2Bδ' = 2.
    assert region.narrow.mu == 0.02
    assert region.narrow.radius == pytest.approx(math.log(6) / 2, rel=1e-12)
    slope = region.near + 4 * (0.2 - delta)
    norms = np.array([10.0, 20.0])
    assert region.norm_at_least(norms) == pytest.approx((norms * math.sqrt(2) - math.log(6)) / slope, rel=1e-12)
    assert region.log_lead(norms) == pytest.approx(norms * (math.sqrt(2) - 1 - drift) - math.log(6), rel=1e-12)


def test_a_higher_token_near_the_neighbours_makes_the_narrow_region_narrower() -> None:
    """The difference of margins, ½, decides the width: Bδ' = ½/4."""
    problem, costs = posed([[1, 0.5], [1.5, 0]], [1, -1, 3])
    result, better = direction(problem.keys, Q), direction(problem.keys, np.array([1.0, 0.5]))
    region = BeatenByDirection.of(result, better, costs, np.array([[False, True, False]]), Cone(0.02, 0.01))
    assert region.narrow.radius == pytest.approx(math.log(6) / (0.5 - 2 * 0.125), rel=1e-12)


def test_radii_where_a_neighbour_scores_higher_are_those_of_the_formulas() -> None:
    """Beyond the first radius, the lower token takes at most half of what the higher token gains."""
    region = outdone()
    gap, theta = 2 / math.sqrt(1.25), 1 / math.sqrt(1.25)
    first = math.log(6) / gap
    assert region.first == pytest.approx(first, rel=2e-6)
    assert region.first > first
    delta = 1 / math.sqrt(8)
    assert region.delta == pytest.approx(delta, rel=1e-12)
    assert region.near == pytest.approx(2 - math.sqrt(8) * delta, rel=1e-12)
    assert region.radius == pytest.approx((math.log(6) + first * theta) / region.near, rel=4e-6)


def test_a_direction_is_not_better_than_itself() -> None:
    problem, costs = posed([[1, 1], [1, -1]], [1, 3, -1])
    assert not BeatenByPoint.is_better(direction(problem.keys, Q), direction(problem.keys, Q), costs)


def test_margins_drift_in_proportion_to_the_distance_from_the_axis() -> None:
    """The drift of margins is B times the distance of a point from the axis, per unit of the radius."""
    region = beaten()
    radii = np.array([1.0, 16.0])
    points, drift = region.hunt_points(REFERENCE, np.random.default_rng(0), radii)
    assert value_of(drift)[:, 0] == pytest.approx(np.zeros(2), abs=1e-13)
    off = np.linalg.norm(points.value - radii[:, None, None] * Q, axis=-1)
    assert value_of(drift) == pytest.approx(4 * off, rel=1e-9, abs=1e-12)


def test_a_cone_begins_where_the_least_margin_is_one() -> None:
    """If no margin is positive, the cone begins at norm 1."""
    problem, _ = posed([[4, 0], [8, 0]], [1, 0, 0])
    cone = cone_of(Case(problem), direction(problem.keys, Q))
    assert cone == Cone(0.125, 0.25)
    alone, _ = posed([[0, 1], [0, 2]], [1, 0, 0])
    assert cone_of(Case(alone), direction(alone.keys, Q)).radius == 1.0
    assert replace(cone, mu=1.0).within(0.5).mu == pytest.approx(0.125, rel=2e-6)


@pytest.mark.parametrize(("norm", "decided"), [(1e13, True), (2e13, False)])
def test_comparisons_below_rounding_are_undecided(norm: float, decided: bool) -> None:
    """At radius R = 2·10¹³ the bound on the rounding of logits, 8 (d + 8) eps R B with B = √8, exceeds one."""
    assert outdone().decidable(np.array([norm])).tolist() == [decided]


def test_the_leading_term_and_its_remainder_are_those_found_by_hand() -> None:
    """With rows 1 and 3, score gaps 1 and 4 and the correlation loss, e^R times the excess risk is 1 up to the
    remainder 4 e^{−2R} + 2 e^{−R}.
    """
    problem, costs = posed([[1], [3]], [2, 1, -2])
    radii = np.array([1.0, 2.0])
    lead = leading_term(direction(problem.keys, np.array([1.0])), costs, radii)
    assert lead.term.value == pytest.approx(1.0)
    assert lead.log_unit == pytest.approx(0.0, abs=1e-14)
    assert lead.remainder.value == pytest.approx(4 * np.exp(-2 * radii) + 2 * np.exp(-radii), rel=1e-12)


def lemma_8() -> Iterator[Claim]:
    """Yield the claims of Lemma 8 for (1, 0), of margin 2, and (1, ½)/√1.25, of margin 3/√1.25."""
    problem, _ = posed([[2, 2], [9, 0]], [1, -1, 3])
    arrays = MappingProxyType({"q1": np.array([1.0, 0.0]), "q2": np.array([1.0, 0.5])})
    return statement_named("lemma-8").conclusion(Case(problem, arrays=arrays), REFERENCE)


def test_every_claim_of_lemma_8_is_made_and_upheld() -> None:
    """The margins differ by 0.68, which is enough for every claim to be made."""
    claims = {claim.name: claim.verdict for claim in lemma_8()}
    assert set(claims.values()) == {Verdict.UPHELD}
    made = {"definition-3-of-first", "definition-3-of-second", "wider-margin", "narrower-anywhere", "wider-anywhere"}
    assert made | {"leading-term-of-first", "leading-term-of-second"} <= set(claims)
