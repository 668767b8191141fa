"""Arguments that the functions of the library accept; all others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.kernel.kernel_source import KernelSource
from generators.case import Case
from generators.datasets import DATASETS, dataset_named
from reference_attention.errors import InvalidInput
from reference_attention.problem import Dataset, Problem
from theorems.core.implementation import REFERENCE
from theorems.library.arguments import as_given, data_and_ids, implementation_of, name_of, names_data
from theorems.library.hunt import hunt
from theorems.library.verify import verify
from theorems.run.registry.suite import statements

KEYS, SCORES = [[[1, 0], [0, 1], [0, 0]]], [[1, 0.5, 0.5]]
PROBLEM = Problem(KEYS, SCORES)


def test_no_dataset_has_the_name_of_a_statement() -> None:
    ids = {id for statement in statements().values() for id in (statement.id, *statement.aliases)}
    assert ids.isdisjoint(DATASETS)
    assert not any(map(names_data, ids))


@pytest.mark.parametrize(
    ("what", "ids", "data", "found"),
    [
        (None, (), None, (None, ())),
        ("lemma-2", ("lemma-3",), None, (None, ("lemma-2", "lemma-3"))),
        ("figure-1a", ("lemma-3",), None, ("figure-1a", ("lemma-3",))),
        ("mine.npz", (), None, ("mine.npz", ())),
        ("lemma-3", (), "figure-1a", ("figure-1a", ("lemma-3",))),
        (PROBLEM, ("lemma-3",), None, (PROBLEM, ("lemma-3",))),
    ],
)
def test_a_text_means_data_if_data_have_this_name_and_otherwise_an_id(
    what: Any, ids: Any, data: Any, found: Any
) -> None:
    assert data_and_ids(what, ids, data) == found


def test_unknown_and_repeated_arguments_are_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"^'lemma-99' is neither a statement \(lemma-1, .*\) nor data \(figure-1a, "
    ):
        verify("lemma-99")
    with pytest.raises(InvalidInput, match=r"^data: given twice"):
        verify(PROBLEM, "lemma-3", data="figure-1a")
    with pytest.raises(InvalidInput, match=r"nowhere\.py"):
        verify("nowhere.py:mine")
    with pytest.raises(InvalidInput, match=r"^data: float is none of Problem, "):
        as_given(3.0, 0)
    with pytest.raises(InvalidInput, match=r"^examples must be at least 1 and seed at least 0, not 0 and 0"):
        verify("lemma-3", examples=0)


@pytest.mark.parametrize(
    "data",
    [
        PROBLEM,
        Case(PROBLEM, seed=7),
        {"keys": KEYS, "scores": SCORES},
        {"keys": torch.tensor(KEYS), "scores": torch.tensor(SCORES, requires_grad=True)},
    ],
)
def test_arrays_a_problem_and_a_case_of_the_same_data_give_the_same_case(data: Any) -> None:
    case = as_given(data, 7).case
    assert np.array_equal(case.problem.keys, PROBLEM.keys)
    assert np.array_equal(case.problem.scores, PROBLEM.scores)
    assert case.seed == 7


def test_a_file_is_read_by_name_or_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, keys=KEYS, scores=SCORES, loss="exponential")
    for source in (path, str(path)):
        assert as_given(source, 0).case.problem.loss.name == "exponential"
        assert name_of(source) == str(path)
    assert verify(path, "lemma-3").data == str(path)


def test_a_dataset_keeps_its_labels_and_a_case_its_seed() -> None:
    dataset = Dataset([[[1, 0], [0, 1]]], [1], [1, 0])
    assert as_given(dataset, 5).case.dataset is dataset
    assert as_given(dataset, 5).case.seed == 5
    assert as_given(Case(PROBLEM, seed=2), 5).case.seed == 2
    assert as_given("figure-1a", 5).case.seed == 5
    assert name_of(dataset_named("figure-1a")) == "figure-1a"


def test_a_saved_failing_case_is_verified_on_the_statement_that_failed() -> None:
    record = as_given({"keys": KEYS, "scores": SCORES, "case_of": "lemma-3"}, 0)
    assert record.failed == "lemma-3"
    assert [result.id for result in verify({"keys": KEYS, "scores": SCORES, "case_of": "lemma-3"})] == ["lemma-3"]


def test_kernels_implementations_and_the_reference_are_accepted() -> None:
    assert implementation_of(None, None) is REFERENCE
    planted = REFERENCE.replace("planted")
    assert implementation_of(planted, None) is planted
    named = implementation_of("torch.nn.functional:scaled_dot_product_attention", "float32")
    assert isinstance(named, KernelSource)  # the kernel is not loaded yet
    assert named.load().textbook_eps == 2.0**-23
    with pytest.raises(InvalidInput, match=r"^dtype: is an option for attention kernels"):
        implementation_of(None, "float32")


@pytest.mark.parametrize(("limits", "why"), [({"seconds": 0.0}, "seconds: "), ({"cases": 0}, "seconds: ")])
def test_a_hunt_without_time_limit_is_refused(limits: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        hunt("lemma-3", **limits)
