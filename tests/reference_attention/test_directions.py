"""The locally optimal directions of Definition 3, decided exactly: by hand, at ties and near ties, and at any scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st

from generators.case import Case
from generators.direction_cases import direction_cases
from reference_attention.directions import (
    direction,
    exact_direction,
    margin_difference,
    margin_sign,
    neighbour_optimal,
    not_below,
    parallel,
    unit_difference,
    within_cone,
)
from reference_attention.errors import InvalidInput
from reference_attention.exact import rational
from theorems.core.direction_certificate import by_definition

EPS = float(np.finfo(float).eps)
KEYS = np.array([[[0.0, 0.0], [-1.0, 5.0], [-1.0, -7.0]], [[2.0, 0.0], [0.0, 1.0], [2.0, 3.0]]])


def test_margins_and_neighbours_of_a_direction_are_those_found_by_hand() -> None:
    result = direction(KEYS, np.array([2.0, 0.0]))
    assert result.selected.tolist() == [[True, False, False], [True, False, True]]
    assert result.neighbours.tolist() == [[False, True, True], [False, False, False]]
    assert result.margin == 1.0
    assert not result.unique
    assert result.tied_inputs.tolist() == [1]
    assert result.best(np.array([[0.0, 1.0, 2.0], [0.0, 5.0, 1.0]])).tolist() == [0, 2]


@pytest.mark.parametrize("nudge", [2.0**-52, -(2.0**-52), 0.0])
def test_logits_one_unit_in_the_last_place_apart_do_not_tie(nudge: float) -> None:
    keys = np.array([[[0.0], [-1.0 - nudge], [-1.0]]])
    result = direction(keys, np.array([1.0]))
    assert int(result.neighbours.sum()) == (2 if nudge == 0 else 1)


def test_where_every_token_is_selected_there_is_no_margin() -> None:
    result = direction(np.ones((2, 2, 2)), np.array([1.0, 0.0]))
    assert result.least is None
    assert result.margin == math.inf
    assert not result.neighbours.any()


@given(direction_cases(), st.sampled_from([2.0**-60, 2.0**60, 3.0]))
def test_directions_follow_definition_3_at_any_length_of_q(case: Case, factor: float) -> None:
    keys, q = case.problem.keys, case.arrays["q"]
    result = direction(keys, q)
    selected, neighbours = by_definition(keys, q)
    assert np.array_equal(result.selected, selected)
    assert np.array_equal(result.neighbours, neighbours)
    if factor != 3.0:
        longer = direction(keys, q * factor)
        assert np.array_equal(longer.neighbours, result.neighbours)
        assert margin_sign(longer, result) == 0
        assert margin_difference(longer, result) == 0.0
    same = exact_direction(keys, [rational(x) / 7 for x in q.tolist()])
    assert np.array_equal(same.neighbours, result.neighbours)
    assert margin_sign(same, result) == 0


def test_neighbours_with_equal_scores_do_not_score_lower() -> None:
    result = direction(KEYS, np.array([1.0, 0.0]))
    assert not_below(result, np.array([[0.0, 0.0, -1.0], [0.0, 9.0, 0.0]])) == [(0, 1)]
    assert neighbour_optimal(result, np.array([[0.0, -1.0, -1.0], [0.0, 9.0, 0.0]]))


def test_margins_closer_than_rounding_are_distinguished() -> None:
    keys = np.array([[[0.0, 0.0], [-1.0, 0.0]]])
    straight, tilted = direction(keys, np.array([1.0, 0.0])), direction(keys, np.array([1.0, 1e-12]))
    assert straight.margin == tilted.margin
    assert margin_sign(straight, tilted) == 1
    assert margin_difference(straight, tilted) == pytest.approx(5e-25, rel=1e-12)


def test_parallels_and_cones_are_decided_exactly() -> None:
    q = [fmpq(1), fmpq(1)]
    assert parallel(q, [fmpq(1, 3), fmpq(1, 3)])
    assert not parallel(q, [fmpq(-1), fmpq(-1)])
    assert not parallel(q, [fmpq(1), fmpq(1) + fmpq(1, 10**40)])
    # The cosine between (1, 1) and (1, 0) is 1/√2, which is below 1 − μ = 0.75 and above 0.5.
    assert not within_cone(q, [fmpq(1), fmpq(0)], 0.25)
    assert within_cone(q, [fmpq(1), fmpq(0)], 0.5)
    assert within_cone([fmpq(3), fmpq(4)], [fmpq(1), fmpq(0)], 1 - 0.6) == (rational(1 - 0.6) >= fmpq(2, 5))


@pytest.mark.parametrize("q", [np.zeros(2), np.ones(3), np.array([np.nan, 1.0])])
def test_a_bad_direction_is_refused(q: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match=r"^q: "):
        direction(KEYS, q)
    with pytest.raises(InvalidInput, match=r"^mu: "):
        within_cone([fmpq(1)], [fmpq(1)], 1.5)


def test_a_direction_that_selects_every_token_has_the_widest_margin() -> None:
    """The margin is then a minimum over the empty set."""
    q = np.array([1.0, 0.0])
    every, some = direction(np.zeros((1, 2, 2)), q), direction(np.array([[[1.0, 0.0], [0.0, 0.0]]]), q)
    assert every.least is None
    assert [margin_sign(every, every), margin_sign(every, some), margin_sign(some, every)] == [0, 1, -1]
    assert margin_difference(every, every) == 0.0
    assert margin_difference(every, some) == math.inf
    assert margin_difference(some, every) == -math.inf
    assert unit_difference(None, every, None, some) == 0.0


def test_a_direction_is_unique_if_it_selects_one_token_in_every_input() -> None:
    assert direction(KEYS, np.array([2.0, 1.0])).unique
    both = direction(np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]]), np.array([1.0, 0.0]))
    assert not both.unique
    assert both.tied_inputs.tolist() == [0]


def test_margins_do_not_depend_on_the_length_of_q() -> None:
    result = direction(KEYS, np.array([3.0, 4.0]))
    # The logits are (0, 17, −31) and (6, 4, 18), divided by ‖q‖ = 5.
    assert result.margins == pytest.approx(np.array([[17.0, 0.0, 48.0], [12.0, 14.0, 0.0]]) / 5, rel=4 * EPS)
    assert result.unit == pytest.approx([0.6, 0.8], rel=4 * EPS)


def test_a_difference_of_margins_has_its_sign_and_its_size_at_any_length_of_q() -> None:
    keys = np.array([[[0.0, 0.0], [-1.0, -1.0]]])
    narrow, wide = direction(keys, np.array([0.0, 7.0])), direction(keys, np.array([3.0, 4.0]))
    assert [margin_sign(narrow, wide), margin_sign(wide, narrow)] == [-1, 1]
    assert margin_difference(narrow, wide) == pytest.approx(1 - 7 / 5, rel=8 * EPS)
    assert margin_difference(wide, narrow) == pytest.approx(7 / 5 - 1, rel=8 * EPS)
    assert unit_difference(fmpq(0), narrow, fmpq(0), wide) == 0.0


def test_an_exact_direction_has_exact_margins_whatever_its_denominators() -> None:
    result = exact_direction(KEYS, [fmpq(1, 3), fmpq(-2, 7)])
    for keys, margins in zip(KEYS.tolist(), result.exact, strict=True):
        logits = [fmpq(int(x)) * fmpq(1, 3) - fmpq(int(y)) * fmpq(2, 7) for x, y in keys]
        assert list(margins) == [max(logits) - logit for logit in logits]
    assert result.least == min(x for row in result.exact for x in row if x > 0)


@pytest.mark.parametrize("entry", [-1, 1])
def test_the_zero_vector_is_refused_as_a_direction(entry: int) -> None:
    assert exact_direction(KEYS, [fmpq(entry), fmpq(entry)]).q.tolist() == [entry, entry]
    with pytest.raises(InvalidInput, match="the zero vector is no direction"):
        exact_direction(KEYS, [fmpq(0), fmpq(0)])


def test_a_difference_of_margins_below_float_rounding_has_its_sign() -> None:
    keys = np.array([[[0.0, 0.0], [-0.25, -0.125]]])
    wide, narrow = direction(keys, np.array([1.0, 0.0])), direction(keys, np.array([0.0, 1.0]))
    assert (margin_sign(wide, narrow), margin_sign(narrow, wide), margin_sign(wide, wide)) == (1, -1, 0)


def test_perpendicular_opposite_and_zero_vectors_are_not_parallel() -> None:
    half, zero = fmpq(1, 2), fmpq(0)
    assert parallel([half, zero], [fmpq(3), zero])
    for other in ([-half, zero], [zero, half], [zero, zero], [half, half]):
        assert not parallel([half, zero], other)


@pytest.mark.parametrize("size", [fmpq(1, 8), fmpq(8)])
def test_a_cone_contains_its_boundary(size: fmpq) -> None:
    """The cosine between (1, 1, 1, 1) and an axis is 1/2, that between (3, 4) and an axis 3/5."""
    ones, axis, up = [size] * 4, [size, *[fmpq(0)] * 3], [fmpq(0), size, fmpq(0), fmpq(0)]
    assert [within_cone(ones, axis, mu) for mu in (0.0, 0.49, 0.5, 0.51, 1.0)] == [False, False, True, True, True]
    sharp = [3 * size, 4 * size]
    assert [within_cone(sharp, axis[:2], mu) for mu in (0.375, 0.4375)] == [False, True]
    assert within_cone(axis, axis, 0.0)
    assert [within_cone(up, axis, mu) for mu in (0.999, 1.0)] == [False, True]
    assert not within_cone([-x for x in axis], axis, 1.0)


@pytest.mark.parametrize("mu", [-0.5, -1e-300, 1.0000001, float("nan")])
def test_a_cone_larger_than_a_half_space_is_refused(mu: float) -> None:
    with pytest.raises(InvalidInput, match="0 ≤ mu ≤ 1"):
        within_cone([fmpq(1)], [fmpq(1)], mu)
