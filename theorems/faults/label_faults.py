"""Faults in the max-margin problem (SVM) of the head, and in p_relax of Theorem 6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reference_attention.loss import Array
from reference_attention.svm.label_svm import LabelSvm, label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.LABELS)
RightSolver = Callable[..., MaxMargin | Infeasible]
Change = Callable[..., LabelSvm]


def _label(name: str, says: str, **further: Any) -> Callable[[Change], Change]:
    """Return a decorator that plants the decorated function, (solution, size if any, features) → wrong solution."""
    return FAULTS.change(name, says, "lemma-13", label_svm, only=LabelSvm, **further)


def _solve(features: Array) -> LabelSvm:
    solution = label_svm(features)
    assert isinstance(solution, LabelSvm)
    return solution


@_label("label-svm-misses-a-constraint", "the constraint of the support with the largest dual is left out")
def _lose_the_heaviest(right: LabelSvm, features: Array) -> LabelSvm:
    """Return v_mm with the constraint of largest dual weakened 1024-fold, but the right slacks, support and duals."""
    if len(features) == 1:
        return right
    weaker = np.array(features)
    weaker[int(np.argmax(right.duals))] *= 1024
    wrong = _solve(weaker)
    return replace(right, v=wrong.v, direction=wrong.direction, margin=wrong.margin)


@_label("label-svm-with-intercept", "constraints z·v + b ≥ 1 with an intercept b, which the model does not have")
def _add_intercept(right: LabelSvm, features: Array) -> LabelSvm:
    wrong = _solve(np.concatenate([features, np.ones((len(features), 1))], axis=1))
    v = wrong.v[:-1]
    return replace(wrong, v=v, direction=v / np.linalg.norm(v))


@_label("label-margin-wide", "(1 + ε) Γ in place of the margin Γ", size=1.0)
def _widen(right: LabelSvm, size: float, features: Array) -> LabelSvm:
    return replace(right, margin=(1 + size) * right.margin)


@_label(
    "label-svm-coordinate-off",
    "ε times the largest coordinate of v_mm is added to its smallest",
    size=1e-3,
)
def _move_coordinate(right: LabelSvm, size: float, features: Array) -> LabelSvm:
    v = np.array(right.v)
    v[int(np.argmin(np.abs(v)))] += size * np.abs(v).max()  # changing the smallest entry changes the direction of v_mm
    return replace(right, v=v, direction=v / np.linalg.norm(v))


@_label("label-dual-off", "the largest dual of (SVM) is multiplied by 1 + ε", size=1e-2)
def _scale_dual(right: LabelSvm, size: float, features: Array) -> LabelSvm:
    changed = np.array(right.duals)
    changed[int(np.argmax(changed))] *= 1 + size
    return replace(right, duals=changed)


@_label("all-inputs-supports", "every input is reported as a support")
def _lose_slack(right: LabelSvm, features: Array) -> LabelSvm:
    return replace(right, support=np.ones_like(right.support), slack=np.zeros_like(right.slack))


@_label("support-lost", "the support with the largest dual is not reported")
def _lose_support(right: LabelSvm, features: Array) -> LabelSvm:
    if right.support.sum() < 2:
        return right
    fewer = right.support.copy()
    fewer[int(np.argmax(right.duals))] = False
    return replace(right, support=fewer)


@FAULTS.plant("relaxed-is-not-relaxed", "p_mm in place of p_relax", "theorem-6", relaxed_max_margin)
def _keep_unrelaxed(right: RightSolver, keys: Array, alpha: Array, support: Array) -> MaxMargin | Infeasible:
    return max_margin(keys, alpha)


@FAULTS.plant(
    "relaxed-without-quadrant",
    "p_relax without the constraints (k_iα − k_it)·p ≥ 0 of the non-supports",
    "theorem-6",
    relaxed_max_margin,
)
def _without_quadrant(right: RightSolver, keys: Array, alpha: Array, support: Array) -> MaxMargin | Infeasible:
    """Return p_relax with only the constraints of inputs in ``support``; other inputs may have negative margins."""
    weaker = np.array(keys)
    weaker[~support] = keys[~support][np.arange(int((~support).sum())), alpha[~support]][:, None]
    return right(weaker, alpha, support)
