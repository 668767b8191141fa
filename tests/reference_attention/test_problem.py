"""Problems and datasets: the quantities derived from their arrays, and the refusal of unsuitable arrays."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.problem import Dataset, Problem, checked_array

EPS = float(np.finfo(float).eps)
RNG = np.random.default_rng(0)
X, Y, V, W = RNG.normal(size=(3, 4, 2)), np.array([1.0, -1.0, 1.0]), RNG.normal(size=2), RNG.normal(size=(5, 2))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_smoothness_constants_of_a_problem_are_the_documented_sums(loss: str) -> None:
    dataset = Dataset(X, Y, V, W, LOSSES[loss])
    problem = dataset.problem
    m0 = math.exp(problem.loss.log_lipschitz(*problem.score_range))
    m1 = math.exp(problem.loss.log_bound(*problem.score_range))
    keys, scores = (np.array([np.linalg.norm(x, 2) for x in a]) for a in (problem.keys, problem.scores))
    expected = np.mean(m0 * scores**2 * keys**2 + 3 * m1 * scores * keys**2)
    assert problem.log_smoothness == pytest.approx(math.log(expected), abs=64 * EPS)
    x, v, w = np.array([np.linalg.norm(a, 2) for a in X]), np.linalg.norm(V), np.linalg.norm(W, 2)
    expected = np.mean(m0 * v**2 * w**2 * x**4 + 3 * m1 * v * w**2 * x**3)
    assert dataset.log_smoothness == pytest.approx(math.log(expected), abs=64 * EPS)


def test_a_problem_whose_scores_are_zero_has_zero_smoothness_constants() -> None:
    assert Problem(X, np.zeros((3, 4))).log_smoothness == -math.inf


@pytest.mark.parametrize(("largest", "scale"), [(1.0, 1.0), (-3.5, 2.0), (0.3, 0.25), (0.0, 1.0)])
def test_the_scale_of_the_keys_is_the_power_of_two_below_the_largest_entry(largest: float, scale: float) -> None:
    assert Problem(np.array([[[largest, 0.0], [0.0, 0.0]]]), np.zeros((1, 2))).key_scale == scale


def test_a_dataset_has_the_keys_and_scores_of_its_tokens() -> None:
    problem = Dataset(X, Y, V, W).problem
    assert problem.keys == pytest.approx(X @ W.T, rel=16 * EPS, abs=16 * EPS)
    assert problem.scores == pytest.approx(Y[:, None] * (X @ V), rel=16 * EPS, abs=16 * EPS)
    assert (Dataset(X, Y, V).problem.keys == X).all()
    assert (Dataset(X, Y, V).key_query == np.eye(2)).all()


def test_every_problem_comes_from_some_dataset() -> None:
    problem = Problem(X, RNG.normal(size=(3, 4)), LOSSES["exponential"])
    again = Dataset.realising(problem).problem
    assert (again.keys == problem.keys).all()
    assert (again.scores == problem.scores).all()
    assert again.loss is problem.loss


TRUTH = "a: true and false are no numbers; write 1 for true and 0 for false."


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2.0], [3.0]], "a: the rows have different lengths; give an array of shape (n, 2)."),
        (np.array([["x", "y"]]), "a: dtype <U1 is not real numeric; give float64 of shape (n, 2)."),
        (np.zeros(2), "a: shape (2,) has 1 dimension(s); give shape (n, 2)."),
        (
            np.zeros((4, 3)),
            "a: shape (4, 3) has length 3 along axis 1, but the other arrays need 2; give shape (n, 2).",
        ),
        (np.zeros((0, 2)), "a: shape (0, 2) is empty along axis 0; give at least one entry."),
        (np.array([[1, 2**53 + 1]]), "a: integers beyond 2^53 are not exact in float64; scale the array down."),
        (np.array([[1.0, 2.0], [3.0, np.inf]]), "a: entry (1, 1) is inf; replace NaN and infinite entries."),
        (
            np.array([[1.0, 2e140]]),
            "a: magnitudes must be 0 or between 1e-140 and 1e+140 to be squared in float64; rescale the array.",
        ),
        (
            np.array([[1.0, 0.5e-140]]),
            "a: magnitudes must be 0 or between 1e-140 and 1e+140 to be squared in float64; rescale the array.",
        ),
        ([[0.5, True]], TRUTH),
        ([np.array([1.0, 2.0]), (np.bool_(False), 1)], TRUTH),
        (np.array([[True, False]]), TRUTH),
        (torch.tensor([[True, False]]), TRUTH),
        (np.array([[1.0, True]], dtype=object), "a: dtype object is not real numeric; give float64 of shape (n, 2)."),
    ],
)
def test_unsuitable_arrays_are_refused_in_one_sentence(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        checked_array("a", value, ("n", 2))
    assert str(refusal.value) == message


def test_suitable_arrays_are_copied_and_read_only() -> None:
    given = np.array([[1, 0], [2, 3]])
    array = checked_array("a", given, ("n", 2))
    given[0, 0] = 5
    assert array.dtype == np.float64
    assert array.tolist() == [[1.0, 0.0], [2.0, 3.0]]
    assert not array.flags.writeable
    assert checked_array("a", np.array([1e140, -1e-140, 0.0]), (3,)).tolist() == [1e140, -1e-140, 0.0]


def test_single_tokens_and_labels_other_than_1_and_minus_1_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^keys: T = 1 leaves nothing to select"):
        Problem(X[:, :1], np.zeros((3, 1)))
    with pytest.raises(InvalidInput, match=r"^X: T = 1 leaves nothing to select"):
        Dataset(X[:, :1], Y, V)
    with pytest.raises(InvalidInput, match=r"^Y: label 1 is 0\.5; labels must be -1 or \+1\.$"):
        Dataset(X, np.array([1.0, 0.5, -1.0]), V)


def test_arrays_given_as_lists_or_tensors_and_losses_given_by_name_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    of_lists = Problem([[[1, 0], [0, 2]]], [[1, 0]], "exponential")
    of_tensors = Problem(torch.tensor([[[1.0, 0], [0, 2]]], requires_grad=True), torch.tensor([[1, 0]]))
    assert of_lists.keys.tolist() == of_tensors.keys.tolist() == [[[1.0, 0.0], [0.0, 2.0]]]
    assert of_lists.keys.dtype == of_tensors.keys.dtype == of_tensors.scores.dtype == np.float64
    assert (of_lists.loss, of_tensors.loss) == (LOSSES["exponential"], LOSSES["logistic"])
    assert Dataset([[[1, 0], [0, 2]]], [1], [1, 0], loss="correlation").problem.loss is LOSSES["correlation"]


def test_values_that_are_not_arrays_or_losses_are_refused_in_one_sentence() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match=r"^a: torch\.Tensor is no array for NumPy \(.*\); give float64 of shape"):
        checked_array("a", torch.ones(1, 2, dtype=torch.bfloat16), ("n", 2))
    with pytest.raises(InvalidInput, match=r"^loss: 'hinge' is not one of logistic, "):
        Problem(X, np.zeros((3, 4)), "hinge")


def test_a_problem_keeps_its_arguments() -> None:
    keys = X.copy()
    problem = Problem(keys, np.zeros((3, 4)))
    keys[0] = 0
    assert (problem.keys == X).all()
    with pytest.raises(AttributeError):
        problem.keys = keys  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        problem.keys[0] = 0


@pytest.mark.parametrize(
    ("labels", "fix"),
    [([0, 1], "give 2*Y - 1"), ([0, 0], "give 2*Y - 1"), ([2, 1], "labels must"), ([0, -1], "labels")],
)
def test_the_refusal_of_labels_0_and_1_names_the_formula_that_converts_them(labels: list[int], fix: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^Y: label 0 is {labels[0]}; {re.escape(fix)}"):
        Dataset([[[1, 2], [3, 4]], [[1, 2], [3, 4]]], labels, [1, 0])


def test_the_selected_token_is_the_first_of_the_largest_logit() -> None:
    keys = np.array([[[1.0, 0.0], [0.0, 3.0], [0.0, 3.0]], [[2.0, 2.0], [1.0, 1.0], [0.0, 5.0]]])
    problem = Problem(keys, np.zeros((2, 3)))
    assert problem.selection_at(np.array([1.0, 1.0])).tolist() == [1, 2]
    assert problem.selection_at(np.array([2.0, 0.0])).tolist() == [0, 0]


def test_a_scaled_problem_has_multiplied_keys() -> None:
    problem = Problem(np.array([[[1.0, 2.0], [3.0, -4.0]]]), np.array([[1.0, 0.0]]))
    assert problem.with_keys_scaled(4.0).keys.tolist() == [[[4.0, 8.0], [12.0, -16.0]]]


def test_replacing_one_array_of_a_problem_keeps_the_others() -> None:
    problem = Problem(RNG.normal(size=(2, 3, 4)), np.arange(6.0).reshape(2, 3))
    result = replace(problem, scores=-problem.scores)
    assert (result.keys == problem.keys).all()
    assert (result.optimal == 0).all()
