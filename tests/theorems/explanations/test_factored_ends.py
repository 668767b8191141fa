"""Ends of the flows on W and on (K, Q): each at the solution of its SVM, from the user's factors, and in words."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.query_dataset import QueryDataset
from theorems.explanations.content import sections
from theorems.explanations.factored_ends import MOST_ENTRIES, TrainedEnd, ends_in_words, trained_ends
from theorems.explanations.facts import facts_of
from theorems.explanations.selection import follow_flow


def ends(case: Case) -> tuple[TrainedEnd, ...]:
    return trained_ends(case, follow_flow(case.problem, np.zeros(case.problem.d)))


def test_the_flow_on_w_ends_at_the_frobenius_solution_and_that_on_factors_at_the_nuclear_one() -> None:
    by_w, by_factors = ends(dataset_named("tsvm-paths-5"))
    assert (by_w.trained, by_factors.trained) == ("W", "(K, Q)")
    assert by_w.selects == by_factors.selects == (0, 0)
    assert by_w.frobenius == pytest.approx(0, abs=1e-9)
    assert by_factors.nuclear == pytest.approx(0, abs=1e-4)
    assert by_factors.excess is not None
    assert by_w.excess is not None
    assert by_factors.excess < 1e-4 < 0.05 < by_w.excess


def test_factored_training_begins_at_the_user_s_factors() -> None:
    thin = {"K0": np.array([[-1.0], [2.0]]), "Q0": np.array([[1.0], [0.0]])}
    case = dataset_named("tsvm-paths-5").replace(arrays=MappingProxyType(thin))
    assert ends(case)[1].rank == 1
    rest = {"K0": np.zeros((2, 1)), "Q0": np.zeros((2, 1))}
    stuck = ends(case.replace(arrays=MappingProxyType(rest)))[1]
    assert (stuck.ended, stuck.frobenius, stuck.norm) == ("stationary at its start", None, 0.0)


def test_the_flow_on_factors_is_followed_only_with_queries_and_few_entries() -> None:
    assert ends(dataset_named("figure-1a")) == ()
    d = 13
    data = QueryDataset(np.eye(d)[None, :2], np.ones((1, d)), [1], np.eye(d)[0])
    assert 2 * d * d > MOST_ENTRIES
    assert [item.trained for item in ends(Case(data.problem, queried=data))] == ["W"]


def test_factored_ends_are_in_the_table_and_in_a_sentence() -> None:
    case = dataset_named("tsvm-paths-3")
    it = facts_of(case, "tsvm-paths-3")
    [table] = [item for item in sections(it) if item.caption.startswith("Where gradient flows end")]
    assert [row[0] for row in table.rows] == ["W", "(K, Q)"]
    words = ends_in_words(it.ends)
    assert "The flow on W ends (norm reached) with the largest weights at [0, 2]; W has rank" in words
    assert "The flow on (K, Q), W = K Qᵀ, ends (norm reached) with the largest weights at [0, 2]; W has rank 1" in words
    assert ends_in_words(()) == ""
    assert "which no W separates from the others" in ends_in_words((replace(it.ends[0], frobenius=None),))


@pytest.mark.parametrize("flow", [0, 1])
def test_a_flow_not_followed_to_large_norms_is_not_reported_as_selecting(flow: int) -> None:
    end = replace(facts_of(dataset_named("tsvm-paths-3"), "tsvm-paths-3").ends[flow], norm=2.5)
    failed, at_rest = (ends_in_words((replace(end, ended=how),)) for how in ("failed", "stationary at its start"))
    assert failed.endswith("could not be followed beyond ‖W‖_F = 2.5, and where it ends is not decided.")
    assert at_rest.endswith("ends at a finite W (stationary at its start), of norm 2.5, and selects nothing.")
