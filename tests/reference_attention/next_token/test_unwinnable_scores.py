"""Data on which no prompt selects all optimal tokens: the split of the inputs is proven, and the flow has a finite
part.

Notation: a row is the key of an input's optimal token minus the key of another token; F is the subspace in which the
flow converges, and L_F the risk of the inputs whose tokens stay tied, as a function on F. Inputs are opposed if their
rows have a positive combination that is zero, and free otherwise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from flint import fmpq
from jaxtyping import Float64

from reference_attention.next_token.unwinnable_scores import ScoreSplit, SplitFlow, follow_split_flow, score_split
from reference_attention.problem import Problem
from reference_attention.risk import log_excess_risk, scaled_gradient, softmax_weights
from reference_attention.training.flow import gradient_flow

TWO = [[[1.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]
"""Two opposed inputs and a free one."""
THREE = [[[1.0, 0.0, 0.0], [0.0] * 3], [[-1.0, 1.0, 0.0], [0.0] * 3], [[0.0, -1.0, 0.0], [0.0] * 3]]
"""Three opposed inputs, whose rows add up to 0."""
FREE = [[0.0, 0.5, 1.0], [0.0] * 3]
SHORTER = [[[2.0, 1.0], [0.0, 0.0]], [[-1.0, -0.5], [0.0, 0.0]], [[0.3, 1.0], [0.0, 0.0]]]
"""Opposed rows of different lengths, oblique to the axes."""
PROBLEMS = {
    "two": Problem(TWO, [[1.0, 0.0]] * 3),
    "scores": Problem(TWO, [[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
    "lengths": Problem(SHORTER, [[1.0, 0.0]] * 3),
    "three": Problem([*THREE, FREE], [[1.0, 0.0]] * 4),
    "third token": Problem(
        [[*rows, [extra, -1.0]] for rows, extra in zip(TWO, (0.5, 0.25, 0.0), strict=True)], [[1.0, 0.0, 0.0]] * 3
    ),
}


def split_of(problem: Problem) -> ScoreSplit:
    """Return the score split of a problem that has one."""
    split = score_split(problem)
    assert split is not None
    return split


def parts_of(problem: Problem, norm: float = 1e6) -> SplitFlow:
    """Return the flow from the origin, split into its two parts, up to a given norm."""
    records = np.geomspace(1e-9, 1.0, 73) * norm
    flow = gradient_flow(problem, np.zeros(problem.d), norm=norm, record=records)
    parts = follow_split_flow(split_of(problem), flow, records, norm)
    assert isinstance(parts, SplitFlow), parts
    return parts


@cache
def known_parts(name: str) -> SplitFlow:
    return parts_of(PROBLEMS[name])


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_risk_is_at_least_that_of_the_tied_tokens_and_attains_it_in_the_limit(problem: Problem) -> None:
    split = split_of(problem)
    assert split.error == ""
    assert split.bounds_risk
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, problem.d)) * np.exp(rng.uniform(-3, 3, (200, 1)))
    losses = problem.loss.value(np.sum(softmax_weights(problem.keys, points) * problem.scores, axis=-1)).mean(axis=-1)
    within = np.array([split.risk_within(p @ split.level.T) for p in points])
    assert (losses >= within * (1 - 1e-14)).all()
    out = points[:10] + 400 * split.svm.floats
    losses = problem.loss.value(np.sum(softmax_weights(problem.keys, out) * problem.scores, axis=-1)).mean(axis=-1)
    assert losses == pytest.approx(within[:10], rel=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_derivatives_within_are_the_derivatives_of_risk_within(problem: Problem) -> None:
    split = split_of(problem)
    x = np.random.default_rng(1).normal(size=len(split.level))
    slope, second = split.derivatives_within(x)
    for k, e in enumerate(np.eye(len(x)) * 1e-5):
        assert (split.risk_within(x + e) - split.risk_within(x - e)) / 2e-5 == pytest.approx(slope[k], abs=1e-9)
        by = (split.derivatives_within(x + e)[0] - split.derivatives_within(x - e)[0]) / 2e-5
        assert by == pytest.approx(second[k], abs=1e-9)


def test_two_opposed_inputs_keep_weights_of_one_half() -> None:
    parts = known_parts("two")
    assert parts.split.tied_inputs == [0, 1]
    assert parts.split.convex
    assert np.array_equal(parts.weights, [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    assert np.array_equal(parts.finite_part, [0.0, 0.0])
    assert np.array_equal(parts.split.direction, [0.0, 1.0])
    assert parts.flow.final == pytest.approx([0.0, 1e6])


def test_unequal_scores_have_a_finite_part_that_is_the_least_risk() -> None:
    parts = known_parts("scores")
    s = np.linspace(0.0, 1.0, 100_001)
    risks = (np.log1p(np.exp(-2 * s)) + np.log1p(np.exp(s - 1)) + math.log1p(math.exp(-1))) / 3
    assert parts.split.convex
    assert parts.risk == pytest.approx(risks.min(), abs=1e-10)
    assert parts.weights[0, 0] == pytest.approx(s[risks.argmin()], abs=1e-4)
    assert parts.weights[0, 0] == pytest.approx(1 - parts.weights[1, 0])
    assert parts.one_minus_cosine < 1e-9


def test_opposed_rows_of_different_lengths_have_a_stationary_finite_part() -> None:
    parts = known_parts("lengths")
    assert not parts.split.convex
    assert parts.split.derivatives_within(parts.rest)[0] == pytest.approx([0.0], abs=1e-15)
    assert abs(parts.weights[0, 0] + parts.weights[1, 0] - 1) > 0.1
    assert parts.one_minus_cosine < 1e-9


def test_three_opposed_inputs_share_their_weights_equally() -> None:
    parts = known_parts("three")
    assert len(parts.split.level) == 2
    assert parts.split.tied_inputs == [0, 1, 2]
    assert parts.weights[:3] == pytest.approx(np.full((3, 2), 0.5))
    assert parts.split.direction == pytest.approx([0.0, 0.0, 1.0])


def test_a_token_behind_the_tied_ones_gets_no_weight() -> None:
    """Along (0, 1) the third tokens of both opposed inputs have lower logits; they change neither the tie nor F."""
    parts = known_parts("third token")
    assert np.array_equal(parts.weights, [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert parts.one_minus_cosine < 1e-9


def test_where_all_inputs_are_opposed_the_flow_converges() -> None:
    split = split_of(Problem(TWO[:2], [[1.0, 0.0]] * 2))
    assert split.sets.all()
    assert not split.svm.floats.any()
    assert len(split.across) == 0
    assert split.rest_near(np.array([0.3])) == pytest.approx([0.0], abs=1e-12)


def test_no_finite_part_where_giving_up_an_input_lowers_the_risk() -> None:
    """The risk L_F decreases for ever towards the first input's token: |ℓ'(1)| > 0.3 |ℓ'(0)|, so that the second input
    loses less than the first one gains.
    """
    split = split_of(Problem(TWO, [[1.0, 0.0], [0.3, 0.0], [1.0, 0.0]]))
    assert split.rest_near(np.array([0.0])) is None


def test_no_split_exists_where_all_optimal_tokens_can_be_selected_or_scores_tie() -> None:
    assert score_split(Problem(TWO[1:], [[1.0, 0.0]] * 2)) is None
    assert score_split(Problem(TWO, [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])) is None


def test_with_a_token_better_than_a_tied_one_the_split_does_not_bound_the_risk() -> None:
    keys = [[*rows, [0.5, -1.0]] for rows in TWO]
    better = split_of(Problem(keys, [[1.0, 0.0, 0.9], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    assert not better.bounds_risk


@pytest.mark.parametrize("change", ["supports", "multipliers", "separator", "svm"])
def test_a_wrong_proof_of_the_split_is_refuted(change: str) -> None:
    split = split_of(PROBLEMS["third token"])
    supports, svm = split.supports, split.svm
    wrong = {
        "supports": replace(split, supports=replace(supports, sets=split.master.supports)),
        "multipliers": replace(split, supports=replace(supports, tying={pair: fmpq(0) for pair in supports.tying})),
        "separator": replace(split, supports=replace(supports, separator=[-x for x in supports.separator])),
        "svm": replace(split, svm=replace(svm, point=[2 * x for x in svm.point])),
    }
    assert wrong[change].error


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_two_parts_together_are_the_flow_up_to_norm_30(name: str) -> None:
    """Compare the flow in two parts with the ordinary flow, which is still accurate up to norm 30: points and
    gradients.
    """
    problem, parts = PROBLEMS[name], known_parts(name)
    start = np.zeros(problem.d)
    beyond = np.flatnonzero((parts.flow.norms > parts.apart_from * 1.05) & (parts.flow.norms < 26))
    assert beyond.size
    for k in beyond.tolist():
        norm = float(parts.flow.norms[k])
        plain = gradient_flow(problem, start, norm=norm, record=np.array([norm]), relative=1e-11)
        assert plain.final == pytest.approx(parts.flow.points[k], abs=1e-5 * norm)
        gradient = scaled_gradient(problem.keys, problem.scores, problem.loss, parts.flow.points[k])
        size = float(gradient.log_scale) + math.log(np.linalg.norm(gradient.direction @ parts.split.across.T))
        assert size == pytest.approx(parts.flow.log_gradient_norm[k], abs=1e-3)
    sign, _ = log_excess_risk(problem.keys, problem.scores, problem.loss, parts.flow.final, problem.optimal)
    assert sign == 1


def invariants(parts: SplitFlow) -> tuple[float, float, Float64[np.ndarray, "n T"]]:
    """Return two numbers and the weights of tokens, none of which a change of coordinates alters."""
    return parts.risk, float(np.linalg.norm(parts.finite_part)), parts.weights


CHANGES = {
    "axes": "three",
    "zeros": "two",
    "shift": "lengths",
    "inputs": "scores",
    "tokens": "third token",
    "twice": "scores",
    "keys / 512": "third token",
    "128 keys": "scores",
}
"""Changes of coordinates, each with the problem on which ``make test`` tries it."""


@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param(name, change, marks=[] if CHANGES[change] == name else [pytest.mark.nightly])
        for name in PROBLEMS
        for change in CHANGES
    ],
)
def test_the_split_is_invariant_under_permutations_shifts_and_units(name: str, change: str) -> None:
    problem = PROBLEMS[name]
    keys, scores = np.array(problem.keys), np.array(problem.scores)
    risk, size, weights = invariants(known_parts(name))
    rng = np.random.default_rng(3)
    signs, axes = rng.choice([-1.0, 1.0], problem.d), rng.permutation(problem.d)
    inputs, tokens = rng.permutation(problem.n), rng.permutation(problem.T)
    shift = rng.integers(-4, 5, size=(problem.n, 1, problem.d)) / 8
    changed = {
        "axes": (keys[..., axes] * signs, scores, weights),
        "zeros": (np.pad(keys, ((0, 0), (0, 0), (0, 2))), scores, weights),
        "shift": (keys + shift, scores, weights),
        "inputs": (keys[inputs], scores[inputs], weights[inputs]),
        "tokens": (keys[:, tokens], scores[:, tokens], weights[:, tokens]),
        "twice": (np.tile(keys, (2, 1, 1)), np.tile(scores, (2, 1)), np.tile(weights, (2, 1))),
    }
    unit = {"keys / 512": 2.0**-9, "128 keys": 2.0**7}.get(change, 1.0)
    k, s, expected = changed.get(change, (keys * unit, scores, weights))
    moved = invariants(parts_of(Problem(k, s), norm=1e6 / unit))
    assert moved[0] == pytest.approx(risk, rel=1e-12)
    assert moved[1] * unit == pytest.approx(size, abs=1e-9)
    assert moved[2] == pytest.approx(expected, abs=1e-9)
