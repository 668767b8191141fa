"""Faults in facts about p_mm by which statements decide which claims they make; p_mm itself is right."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.SVM)


def _flag(name: str, says: str, by: str) -> Callable[[Callable[..., MaxMargin]], Callable[..., MaxMargin]]:
    """Return a decorator that plants the decorated function, right p_mm or p_relax → solution with wrong facts."""
    return FAULTS.change(name, says, by, max_margin, relaxed_max_margin, only=MaxMargin)


def _with(right: MaxMargin, **flags: Any) -> MaxMargin:
    forced = copy(right)
    for derived in ("positive_duals", "dual_support", "strictly_complementary"):
        vars(forced).pop(derived, None)
    vars(forced).update(flags)
    return forced


@_flag("always-independent", "the rows of neighbours are always reported as independent", "lemma-7")
def _independent(right: MaxMargin, *arguments: Any) -> MaxMargin:
    return _with(right, independent=True)


@_flag("never-independent", "the rows of neighbours are never reported as independent", "lemma-7")
def _dependent(right: MaxMargin, *arguments: Any) -> MaxMargin:
    return _with(right, independent=False)


@_flag("always-complementary", "there always seem to be duals that are positive at all neighbours", "theorem-1")
def _complementary(right: MaxMargin, *arguments: Any) -> MaxMargin:
    """Report duals that are positive at all neighbours: 1 where no positive dual is known."""
    pairs = [(int(i), int(t)) for i, t in np.argwhere(right.neighbours)]
    duals = {pair: right.exact.duals.get(pair) or fmpq(1) for pair in pairs}
    return right if right.strictly_complementary else _with(right, exact_maximal_duals=duals)


@_flag(
    "called-complementary", "the solution is always reported as strictly complementary, whatever its duals", "theorem-1"
)
def _call_complementary(right: MaxMargin, *arguments: Any) -> MaxMargin:
    return _with(right, strictly_complementary=True)


@_flag("never-complementary", "there never seem to be duals that are positive at all neighbours", "lemma-7")
def _not_complementary(right: MaxMargin, *arguments: Any) -> MaxMargin:
    """Report that a neighbour has dual 0 in every solution, although all neighbours can have positive duals."""
    rest = dict(list(right.exact_maximal_duals.items())[:-1])
    return _with(right, exact_maximal_duals=rest) if right.strictly_complementary else right


@FAULTS.plant("always-locally-optimal", "every α is reported as locally optimal", "lemma-7", locally_optimal)
def _always(right: Callable[..., bool], solution: MaxMargin, scores: Any) -> bool:
    return True


@FAULTS.plant("never-locally-optimal", "no α is reported as locally optimal", "lemma-7", locally_optimal)
def _never(right: Callable[..., bool], solution: MaxMargin, scores: Any) -> bool:
    return False


@FAULTS.plant(
    "locally-optimal-with-ties",
    "α counts as locally optimal although a neighbour has the same score",
    "lemma-7",
    locally_optimal,
)
def _allow_ties(right: Callable[..., bool], solution: MaxMargin, scores: Any) -> bool:
    """Return whether no neighbour scores above the chosen token, which Definition 2 requires to be strictly best."""
    chosen = np.take_along_axis(scores, solution.alpha[:, None], axis=1)
    return not (solution.neighbours & (scores > chosen)).any()
