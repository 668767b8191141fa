"""Claims on normalized gradient descent: on runs that are not such runs, and with the rounding that is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import Stop, Trajectory, normalized_gradient_descent
from tests.theorems.token_selection.path_cases import figure_1a
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.curves.descent import NormalizedDescent
from theorems.token_selection.global_paths import descent_from_a_margin as margins_kept
from theorems.token_selection.global_paths.theorem_2_global_convergence import at_every_normalized_step

PROBLEM: Problem = figure_1a().problem
SVM = max_margin(PROBLEM.exact_keys, PROBLEM.optimal)
STARTS = np.array([[0.0, 0.5], [1.0, -1.0]])


def normalized_claims(under_test: Implementation) -> list[Claim]:
    """Return the claims on the run of the implementation from :data:`STARTS`."""
    assert isinstance(SVM, MaxMargin)
    return list(at_every_normalized_step(NormalizedDescent.of(PROBLEM, under_test, STARTS), SVM))


def claims_of(lost: int = 0, **changed: Any) -> list[Claim]:
    """Return the claims on a run with fields replaced, or without its last steps."""
    assert isinstance(SVM, MaxMargin)

    def loop(*arguments: Any, steps: int, **options: Any) -> Trajectory:
        run = normalized_gradient_descent(*arguments, steps=steps - lost, **options)
        return replace(run, **changed)

    return normalized_claims(REFERENCE.replace("other", {normalized_gradient_descent: loop}))


def test_a_run_that_is_too_short_falsifies_the_only_claim_made() -> None:
    [asked] = claims_of(lost=1)
    assert asked.verdict is Verdict.FALSIFIED


def test_on_a_run_that_overflows_only_one_claim_is_made_and_upheld() -> None:
    [asked] = claims_of(stop=Stop.OVERFLOW)
    assert asked.verdict is Verdict.UPHELD


def test_steps_along_an_almost_unknown_gradient_may_be_anywhere() -> None:
    """If a gradient's error exceeds its length, the normalized step may point anywhere, so tolerances are large."""
    assert isinstance(SVM, MaxMargin)
    coarse = replace(REFERENCE, textbook_eps=0.25)
    by_name = {claim.name: claim for claim in normalized_claims(coarse)}
    usual = {claim.name: claim for claim in normalized_claims(REFERENCE)}
    assert by_name["normalized-run-climbs"].tolerance > 0.1
    assert 0 <= usual["normalized-run-climbs"].tolerance < 1e-9


def test_a_run_counts_only_from_a_start_with_the_margin_until_the_margin_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two runs, the first starts below the required margin and reaches it later; the second loses the margin."""
    records: list[Any] = []
    margins = np.array([[0.0, 5.0], [9.0, 5.0], [9.0, 0.0], [9.0, 9.0]])

    def run_of(*arguments: Any) -> Iterator[Claim]:
        yield from ()
        return SimpleNamespace(p=margins)

    def turning(constants: Any, run: Any, climbs: str, turns: str, inside: Any) -> Iterator[Claim]:
        records.append(inside.tolist())
        yield from ()

    monkeypatch.setattr(margins_kept, "run_premises", run_of)
    monkeypatch.setattr(margins_kept, "turning", turning)
    monkeypatch.setattr(margins_kept, "affordable_steps", lambda *arguments: 3)
    constants = SimpleNamespace(problem=PROBLEM, reach=np.float64(1.0), region=2.0, margins=lambda p: p)
    under_test = REFERENCE.replace("any", {normalized_gradient_descent: lambda *arguments, **options: None})
    assert list(_unchecked(constants, under_test)) == []
    assert records == [[[False, True], [False, True], [False, False], [False, False]]]


def _unchecked(constants: Any, under_test: Implementation) -> Iterator[Claim]:
    run: Any = margins_kept.along_normalized_descent
    return iter(getattr(run, "__wrapped__", run)(constants, under_test, STARTS, 0.5))
