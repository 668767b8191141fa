"""Strategies for embeddings: separable by construction, and with the properties that make them hard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from generators.assumptions import assumption_named
from generators.case import Case
from generators.labelled_features import LabelledFeatures, separable_labels
from generators.realistic_numbers import realistic
from generators.steepest_descent.embeddings import (
    embedded_cases,
    embedded_labels,
    embedded_query_cases,
    embeddings,
    label_or_embedded_cases,
)

FEW = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
WANTED = ("strict-optimum", "separable")


@pytest.mark.parametrize("make", [embedded_cases, embedded_query_cases])
@pytest.mark.parametrize("single", [False, True])
def test_the_best_tokens_of_drawn_embeddings_are_separable(make: Any, single: bool) -> None:
    """The predicates that decide separability know nothing of the strategy."""
    expected = (*WANTED, "single-input", "equal-non-optimal-scores") if single else WANTED

    @FEW
    @given(make(single=single, equal=single))
    def check(case: Case) -> None:
        for id in expected:
            assert assumption_named(id).check(case).holds is True, id

    check()


@FEW
@given(embedded_labels())
def test_classes_are_separable(case: LabelledFeatures) -> None:
    assert separable_labels(case).holds is True


def drawn_by(strategy: SearchStrategy[Any], examples: int = 200) -> list[Any]:
    """Return what the strategy draws."""
    drawn: list[Any] = []

    @settings(FEW, max_examples=examples)
    @given(strategy)
    def draw(value: Any) -> None:
        drawn.append(value)

    draw()
    return drawn


def test_hard_embeddings_are_drawn() -> None:
    """Embeddings of very different lengths, copies, near-copies, and embeddings of unit length occur."""
    ratios, ties, unit = [], set(), 0
    for example in drawn_by(embeddings(6, 3)):
        lengths = np.linalg.norm(example, axis=1)
        ratios.append(lengths.max() / lengths.min())
        unit += bool(np.abs(lengths - 1).max() < 1e-12)
        apart = np.abs(example[:, None] - example[None]).max(axis=2) / np.abs(example).max(axis=1)
        near = apart[~np.eye(6, dtype=bool)].min()
        ties.add("copy" if near == 0 else "1e-12" if near < 1e-12 else "1e-8" if near < 1e-8 else "apart")
    assert max(ratios) > 1e5
    assert ties == {"copy", "1e-12", "1e-8", "apart"}
    assert unit > 0


def test_every_second_realistic_case_has_embeddings() -> None:
    """Embeddings are recognised by their digits: features of the ordinary strategy are short decimals."""

    def floats(every: bool) -> int:
        with realistic(every):
            cases = drawn_by(label_or_embedded_cases(), 60)
        return sum(bool((np.round(case.features * 1000, 6) != case.features * 1000).any()) for case in cases)

    assert floats(True) > floats(False)
    assert any(case.counts.max() > 1000 for case in drawn_by(embedded_labels()))
