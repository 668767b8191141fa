"""Faults in ATT-SVM', the problem of Theorem 8 for sets of optimal tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.svm.max_margin_sets import InfeasibleSets, MaxMarginSets, max_margin_sets
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.SETS)
Solution = MaxMarginSets | InfeasibleSets
SETS = ("theorem-8", max_margin_sets)
"""The statement that catches the faults of this module, and the function that they replace."""
RightSets = Callable[..., Solution]


def _first_optimal(optimal: Array) -> Array:
    return np.arange(optimal.shape[1]) == np.argmax(optimal, axis=1)[:, None]


@FAULTS.change(
    "sets-first-choice-only", "only the first optimal token of each input is tried", *SETS, only=MaxMarginSets
)
def _keep_first_tokens(right: MaxMarginSets, keys: Array, optimal: Array, *arguments: Any) -> MaxMarginSets:
    """Keep only the solutions that choose the first optimal token of each input, if there are any."""
    first = _first_optimal(optimal)
    choices = tuple(c for c in right.choices if first[np.arange(len(first)), c.alpha].all())
    return replace(right, choices=choices or right.choices)


@FAULTS.change("sets-worst-choice", "the choice with the largest norm in place of the least", *SETS, only=MaxMarginSets)
def _keep_worst(right: MaxMarginSets, *arguments: Any) -> MaxMarginSets:
    return replace(right, choices=right.choices[-1:])


@FAULTS.change(
    "sets-one-of-several", "only the first of several solutions of least norm is returned", *SETS, only=MaxMarginSets
)
def _keep_one_of_several(right: MaxMarginSets, *arguments: Any) -> MaxMarginSets:
    rest = [c for c in right.choices if c.norm_squared != right.choices[0].norm_squared]
    return replace(right, choices=(right.choices[0], *rest))


@FAULTS.change(
    "sets-solutions-short",
    "all choices are returned, but only the first point as a solution",
    *SETS,
    only=MaxMarginSets,
)
def _cut_solutions(right: MaxMarginSets, *arguments: Any) -> MaxMarginSets:
    changed = replace(right)
    vars(changed)["solutions"] = right.solutions[:1]
    return changed


@FAULTS.plant("sets-convexified", "the set of optimal tokens is replaced by its mean", *SETS)
def _convexify(right: RightSets, keys: Array, optimal: Array, *arguments: Any) -> Solution:
    """Return the solution for keys in which each optimal token is the mean of its input's optimal tokens."""
    keys = np.array(keys)
    for block, mask in zip(keys, optimal, strict=True):
        block[mask] = block[mask].mean(axis=0)
    return right(keys, optimal, *arguments)


@FAULTS.plant("sets-all-tokens-constrain", "the chosen tokens are separated from the other optimal tokens, too", *SETS)
def _constrain_all(right: RightSets, keys: Array, optimal: Array, *arguments: Any) -> Solution:
    """Return the solution of ATT-SVM for the first optimal token of each input, in place of ATT-SVM'."""
    return right(keys, _first_optimal(optimal), *arguments)
