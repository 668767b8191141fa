"""Faults in ATT-SVM', the union of Theorem 8."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.svm.max_margin_sets import (
    ChoiceSolution,
    InfeasibleSets,
    MaxMarginSets,
    Solver,
    max_margin_sets,
)
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Sets = MaxMarginSets | InfeasibleSets


@dataclass(frozen=True)
class SetSolver:
    """Size → the reference with that solver of ATT-SVM'."""

    solver: Any

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", max_margin_sets=self.solver)


def first_choice_only(keys: Any, optimal: Any, solver: Solver) -> Sets:
    """No enumeration: the first optimal token of each input, where that is feasible."""
    first = np.arange(optimal.shape[1]) == np.argmax(optimal, axis=1)[:, None]
    found = max_margin_sets(keys, optimal, solver)
    if not isinstance(found, MaxMarginSets):
        return found
    kept = tuple(c for c in found.choices if first[np.arange(len(first)), c.alpha].all())
    return replace(found, choices=kept or found.choices)


class Short(MaxMarginSets):
    """ATT-SVM' whose solutions are said to be the first of them alone."""

    @property
    def solutions(self) -> tuple[ChoiceSolution, ...]:
        """G_mm, cut short."""
        return super().solutions[:1]


def solutions_cut_short(keys: Any, optimal: Any, solver: Solver) -> Sets:
    """All choices, and of several solutions the first."""
    found = max_margin_sets(keys, optimal, solver)
    return Short(found.optimal, found.choices) if isinstance(found, MaxMarginSets) else found


def worst_choice(keys: Any, optimal: Any, solver: Solver) -> Sets:
    """The largest norm instead of the least."""
    found = max_margin_sets(keys, optimal, solver)
    return replace(found, choices=found.choices[-1:]) if isinstance(found, MaxMarginSets) else found


def one_of_several(keys: Any, optimal: Any, solver: Solver) -> Sets:
    """Of several solutions of the least norm only the first, and of choices that share it only one."""
    found = max_margin_sets(keys, optimal, solver)
    if not isinstance(found, MaxMarginSets):
        return found
    rest = [c for c in found.choices if c.norm_squared != found.choices[0].norm_squared]
    return replace(found, choices=(found.choices[0], *rest))


def convexify(keys: Any, optimal: Any, solver: Solver) -> Sets:
    """The mean of the optimal tokens stands for their set: the hull of the solutions."""
    keys = np.array(keys)
    for block, mask in zip(keys, optimal, strict=True):
        block[mask] = block[mask].mean(axis=0)
    return max_margin_sets(keys, optimal, solver)


def all_tokens_constrain(keys: Any, optimal: Any, solver: Solver) -> Sets:
    """ATT-SVM instead of ATT-SVM': the other optimal tokens are to be separated from as well."""
    first = np.arange(optimal.shape[1]) == np.argmax(optimal, axis=1)[:, None]
    return max_margin_sets(keys, first, solver)


SET_FAULTS = (
    Fault(
        "sets-first-choice-only",
        Kind.SETS,
        "only the first optimal token of each input is tried",
        "theorem-8",
        SetSolver(first_choice_only),
    ),
    Fault(
        "sets-worst-choice",
        Kind.SETS,
        "the choice of the largest norm instead of the least",
        "theorem-8",
        SetSolver(worst_choice),
    ),
    Fault(
        "sets-one-of-several",
        Kind.SETS,
        "only the first of several solutions of the least norm",
        "theorem-8",
        SetSolver(one_of_several),
    ),
    Fault(
        "sets-solutions-short",
        Kind.SETS,
        "all choices, but only the first of several points is called a solution",
        "theorem-8",
        SetSolver(solutions_cut_short),
    ),
    Fault(
        "sets-convexified",
        Kind.SETS,
        "the mean of the optimal tokens stands for their set",
        "theorem-8",
        SetSolver(convexify),
    ),
    Fault(
        "sets-all-tokens-constrain",
        Kind.SETS,
        "the other optimal tokens are separated from as well",
        "theorem-8",
        SetSolver(all_tokens_constrain),
    ),
)
"""Faults in ATT-SVM'."""
