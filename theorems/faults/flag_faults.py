"""Faults in what is said about a right p_mm: claims are made or left out by these flags."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Force = Callable[[MaxMargin], MaxMargin]


@dataclass(frozen=True)
class ForcedFlag:
    """p_mm and p_relax with a flag of their own. Calling it with a size makes the fault."""

    force: Force

    def solve(self, keys: Any, alpha: Any) -> MaxMargin | Infeasible:
        """As :func:`reference_attention.svm.max_margin.max_margin`."""
        right = max_margin(keys, alpha)
        return right if isinstance(right, Infeasible) else self.force(right)

    def relax(self, keys: Any, alpha: Any, support: Any) -> MaxMargin | Infeasible:
        """As :func:`reference_attention.svm.label_svm.relaxed_max_margin`."""
        right = relaxed_max_margin(keys, alpha, support)
        return right if isinstance(right, Infeasible) else self.force(right)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", max_margin=self.solve, relaxed_max_margin=self.relax)


@dataclass(frozen=True)
class ForcedAnswer:
    """Local optimality answered without looking."""

    answer: bool

    def decide(self, solution: MaxMargin, scores: Any) -> bool:
        """As :func:`reference_attention.svm.max_margin.locally_optimal`."""
        return self.answer

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", locally_optimal=self.decide)


class Complementary(MaxMargin):
    """A solution that calls itself strictly complementary, and is right in everything else."""

    @property
    def strictly_complementary(self) -> bool:
        """Without looking."""
        return True


def _called_complementary(right: MaxMargin) -> MaxMargin:
    forced = copy(right)
    object.__setattr__(forced, "__class__", Complementary)
    return forced


def ties_allowed(solution: MaxMargin, scores: Any) -> bool:
    """Definition 2 with ≤ for <."""
    chosen = np.take_along_axis(scores, solution.alpha[:, None], axis=1)
    return not (solution.neighbours & (scores > chosen)).any()


@dataclass(frozen=True)
class Ties:
    """Size → Definition 2 that lets neighbours of equal score in."""

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", locally_optimal=ties_allowed)


def _with(right: MaxMargin, **flags: Any) -> MaxMargin:
    forced = copy(right)
    for derived in ("positive_duals", "dual_support"):
        vars(forced).pop(derived, None)
    vars(forced).update(flags)
    return forced


def _independent(right: MaxMargin) -> MaxMargin:
    return _with(right, independent=True)


def _dependent(right: MaxMargin) -> MaxMargin:
    return _with(right, independent=False)


def _complementary(right: MaxMargin) -> MaxMargin:
    """The duals at hand, 1 where there is none."""
    pairs = [(int(i), int(t)) for i, t in np.argwhere(right.neighbours)]
    duals = {pair: right.exact.duals.get(pair) or fmpq(1) for pair in pairs}
    return right if right.strictly_complementary else _with(right, exact_maximal_duals=duals)


def _not_complementary(right: MaxMargin) -> MaxMargin:
    """Without the last of the duals."""
    rest = dict(list(right.exact_maximal_duals.items())[:-1])
    return _with(right, exact_maximal_duals=rest) if right.strictly_complementary else right


FLAG_FAULTS = (
    Fault(
        "always-independent",
        Kind.SVM,
        "all neighbours' rows are called independent",
        "lemma-7",
        ForcedFlag(_independent),
    ),
    Fault(
        "never-independent", Kind.SVM, "no neighbours' rows are called independent", "lemma-7", ForcedFlag(_dependent)
    ),
    Fault(
        "always-complementary",
        Kind.SVM,
        "all neighbours are said to have a positive dual together",
        "theorem-1",
        ForcedFlag(_complementary),
    ),
    Fault(
        "called-complementary",
        Kind.SVM,
        "right duals, and strictly complementary is answered without looking at them",
        "theorem-1",
        ForcedFlag(_called_complementary),
    ),
    Fault(
        "never-complementary",
        Kind.SVM,
        "no duals are said to be positive at all neighbours",
        "lemma-7",
        ForcedFlag(_not_complementary),
    ),
    Fault("always-locally-optimal", Kind.SVM, "every α is called locally optimal", "lemma-7", ForcedAnswer(True)),
    Fault("never-locally-optimal", Kind.SVM, "no α is called locally optimal", "lemma-7", ForcedAnswer(False)),
    Fault("locally-optimal-with-ties", Kind.SVM, "neighbours of equal score are let in", "lemma-7", Ties()),
)
"""Flags of a right solution, forced."""
