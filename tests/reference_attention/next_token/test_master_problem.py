"""The master problem built from next tokens and from labels, and the input that its constructors refuse."""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq

from reference_attention.errors import InvalidInput
from reference_attention.next_token.master_problem import MasterProblem


def test_next_tokens_become_difference_vectors_of_logits() -> None:
    h = np.array([[1.0, -2.0], [0.5, 3.0]])
    problem = MasterProblem.of_tokens(h, [[2, 1, 0], [0, 0, 5]])
    W = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(problem.vectors @ W.ravel(), h @ W.T)
    assert problem.weights == [fmpq(3, 8), fmpq(5, 8)]
    assert problem.targets == [[fmpq(2, 3), fmpq(1, 3), fmpq(0)], [fmpq(0), fmpq(0), fmpq(1)]]
    assert problem.pairs == [(0, 1), (0, 2), (1, 0), (1, 1)]
    assert problem.embeddings is not None


def test_each_label_becomes_the_only_target_of_its_sample() -> None:
    problem = MasterProblem.of_labels([[1.0], [2.0]], [2, 0], 3)
    assert problem.one_hot
    assert problem.counts.tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    ("counts", "multiplicities", "says"),
    [
        ([[0, 0]], None, "nothing followed context 0"),
        ([[1, -1]], None, "no whole number"),
        ([[1, 0.5]], None, "no whole number"),
        ([[1, 2, 3]], None, "give whole numbers of shape"),
        ([[1, 1]], [[1, 0]], "multiplicity is 0"),
        ([[True, False]], None, "true and false"),
        ([[2**45, 0]], None, "common factor"),
    ],
)
def test_bad_master_problems_are_refused(counts: object, multiplicities: object, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        MasterProblem(np.ones((1, 2, 2)), counts, multiplicities)  # type: ignore[arg-type]


def test_a_label_that_is_no_class_is_refused() -> None:
    with pytest.raises(InvalidInput, match="labels: 2"):
        MasterProblem.of_labels([[1.0]], [2], 2)
